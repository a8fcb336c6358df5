//! Engines in a file that may change.
//!
//! The file is read twice a second instead of being watched: that costs next to nothing, works on
//! every file system, those of other machines included, and sees at once whatever people do to
//! files: writing in place, renaming over, swapping a symbolic link some directories above, as
//! Kubernetes does with a `ConfigMap`. A watch on the file would miss the last two.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::Found;
use crate::config::engine_list;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Reads the file whenever it has changed, for ever.
pub(super) async fn run(path: &Path, tell: impl Fn(Found)) {
    let mut watched = Watched::default();
    loop {
        match watched.look(read(path).await) {
            Some(Ok(text)) => match engine_list(path, &text) {
                Ok(engines) => {
                    log::info!("{}: {} engines", path.display(), engines.len());
                    tell(Found::all(engines));
                }
                Err(mistakes) => {
                    for mistake in mistakes.lines() {
                        log::error!("{mistake}");
                    }
                    log::warn!("{}: what was known before stays", path.display());
                }
            },
            Some(Err(why)) => {
                log::error!(
                    "{}: cannot be read, what was known before stays: {why}",
                    path.display()
                );
            }
            None => {}
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The text of the file, or why there is none.
type Content = Result<String, String>;

async fn read(path: &Path) -> Content {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path));
    let read = read
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(|error| error.to_string())
}

/// What the looks at the file have seen so far.
#[derive(Debug, Default)]
struct Watched {
    last: Option<Content>,
    taken: Option<Content>,
}

impl Watched {
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
        let mut watched = Watched::default();
        assert_eq!(watched.look(text("a")), Some(text("a")));
        assert_eq!(watched.look(text("a")), None);
        assert_eq!(watched.look(text("b, half")), None);
        assert_eq!(watched.look(text("b, whole")), None);
        assert_eq!(watched.look(text("b, whole")), Some(text("b, whole")));
        assert_eq!(watched.look(text("b, whole")), None);
    }

    #[test]
    fn what_was_gone_for_one_look_was_not_gone() {
        let mut watched = Watched::default();
        let gone = || Err("no such file".to_owned());
        watched.look(text("a"));
        assert_eq!(watched.look(gone()), None);
        assert_eq!(watched.look(text("a")), None);
        assert_eq!(watched.look(text("a")), None);
        assert_eq!(watched.look(gone()), None);
        assert_eq!(watched.look(gone()), Some(gone()));
        assert_eq!(watched.look(gone()), None);
        assert_eq!(watched.look(text("a")), None);
        assert_eq!(watched.look(text("a")), Some(text("a")));
    }
}
