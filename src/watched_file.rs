//! A file that people change while it is in use.
//!
//! It is read twice a second instead of being watched: that costs next to nothing, works on every
//! file system, those of other machines included, and sees at once whatever people do to files:
//! writing in place, renaming over, swapping a symbolic link some directories above, as Kubernetes
//! does with a `ConfigMap`. A watch on the file would miss the last two.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The text of a file, or why there is none.
pub type Content = Result<String, String>;

/// A file, and what the looks at it have seen so far.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    looks: Looks,
}

impl WatchedFile {
    /// Watches the file at `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            looks: Looks::default(),
        }
    }

    /// Waits until its content is another one than was told before. The first time it tells what
    /// is there, at once.
    pub async fn changed(&mut self) -> Content {
        loop {
            if let Some(content) = self.looks.look(read(&self.path).await) {
                return content;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

async fn read(path: &Path) -> Content {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
    let read = read
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| error.to_string())
}

/// What the looks at a file have seen so far.
#[derive(Debug, Default)]
struct Looks {
    last: Option<Content>,
    taken: Option<Content>,
}

impl Looks {
    /// Takes one look in; gives what there is to act on, once.
    ///
    /// A change counts when two looks in a row have seen the same: one look might fall between the
    /// two halves of a write. The first look of all counts at once, as nothing is at stake yet.
    fn look(&mut self, now: Content) -> Option<Content> {
        let is_settled = self.last.as_ref().is_none_or(|last| *last == now);
        self.last = Some(now.clone());
        if !is_settled || self.taken.as_ref() == Some(&now) {
            return None;
        }
        self.taken = Some(now.clone());
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Content {
        Ok(text.to_owned())
    }

    #[test]
    fn a_change_counts_once_it_has_settled() {
        let mut looks = Looks::default();
        assert_eq!(looks.look(text("a")), Some(text("a")));
        assert_eq!(looks.look(text("a")), None);
        assert_eq!(looks.look(text("b, half")), None);
        assert_eq!(looks.look(text("b, whole")), None);
        assert_eq!(looks.look(text("b, whole")), Some(text("b, whole")));
        assert_eq!(looks.look(text("b, whole")), None);
    }

    #[test]
    fn what_was_gone_for_one_look_was_not_gone() {
        let mut looks = Looks::default();
        let gone = || Err("no such file".to_owned());
        looks.look(text("a"));
        assert_eq!(looks.look(gone()), None);
        assert_eq!(looks.look(text("a")), None);
        assert_eq!(looks.look(text("a")), None);
        assert_eq!(looks.look(gone()), None);
        assert_eq!(looks.look(gone()), Some(gone()));
        assert_eq!(looks.look(gone()), None);
        assert_eq!(looks.look(text("a")), None);
        assert_eq!(looks.look(text("a")), Some(text("a")));
    }
}
