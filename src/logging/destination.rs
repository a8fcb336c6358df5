//! Where lines are written to: the standard error, or a file that can be opened anew.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// How long to wait where the other end takes nothing just now.
const PAUSE: Duration = Duration::from_millis(10);

/// Takes lines; only its own thread waits for it.
pub(super) trait Destination: Send + 'static {
    /// Writes whole lines, however long that takes.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Opens it anew under the same name, where it has one.
    fn reopen(&mut self) -> io::Result<()>;
}

/// The standard error.
#[derive(Debug, Default)]
pub(super) struct StandardError(Whole);

impl Destination for StandardError {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.0.write(&mut io::stderr().lock(), lines)
    }

    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file that lines are appended to.
#[derive(Debug)]
pub(super) struct File {
    path: PathBuf,
    open: fs::File,
    whole: Whole,
}

impl File {
    /// Opens or creates it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            open: append_to(path)?,
            whole: Whole::default(),
        })
    }
}

fn append_to(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().append(true).create(true).open(path)
}

impl Destination for File {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        self.whole.write(&mut self.open, lines)
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.open = append_to(&self.path)?;
        self.whole = Whole::default();
        Ok(())
    }
}

/// Keeps lines apart after a write that failed in the middle of one, as on a full disk.
#[derive(Debug, Default)]
struct Whole {
    is_broken: bool,
}

impl Whole {
    fn write(&mut self, out: &mut impl Write, lines: &[u8]) -> io::Result<()> {
        if self.is_broken {
            write_some(out, b"\n").map_err(|(_, error)| error)?;
            self.is_broken = false;
        }
        write_some(out, lines).map_err(|(written, error)| {
            let last = written.checked_sub(1).and_then(|last| lines.get(last));
            self.is_broken = last.is_some_and(|byte| *byte != b'\n');
            error
        })
    }
}

/// Writes all of it, or tells how much was written, and what went wrong.
fn write_some(out: &mut impl Write, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match out.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(more) => written += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Somebody else has made the terminal one that does not block.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Takes so many bytes per write, or fails.
    struct Script {
        steps: VecDeque<io::Result<usize>>,
        taken: Vec<u8>,
    }

    impl Script {
        fn new(steps: impl IntoIterator<Item = io::Result<usize>>) -> Self {
            Self {
                steps: steps.into_iter().collect(),
                taken: Vec::new(),
            }
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = self.steps.pop_front().unwrap_or(Ok(usize::MAX))?;
            let taken = most.min(bytes.len());
            self.taken.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_takes_its_time_is_written_whole() {
        let later = |kind: io::ErrorKind| Err(kind.into());
        let mut out = Script::new([
            Ok(1),
            later(io::ErrorKind::WouldBlock),
            later(io::ErrorKind::Interrupted),
            Ok(3),
        ]);
        Whole::default().write(&mut out, b"one\ntwo\n").unwrap();
        assert_eq!(out.taken, b"one\ntwo\n");
    }

    #[test]
    fn a_line_that_broke_off_does_not_run_into_the_next() {
        let full = || Err(io::ErrorKind::StorageFull.into());
        let mut whole = Whole::default();
        let mut out = Script::new([Ok(6), full(), full()]);
        assert!(whole.write(&mut out, b"one\ntwo\n").is_err());
        assert!(whole.write(&mut out, b"lost\n").is_err());
        whole.write(&mut out, b"four\n").unwrap();
        assert_eq!(out.taken, b"one\ntw\nfour\n");
        // One that broke off between two lines needs nothing.
        let mut out = Script::new([Ok(4), full()]);
        assert!(whole.write(&mut out, b"one\ntwo\n").is_err());
        whole.write(&mut out, b"three\n").unwrap();
        assert_eq!(out.taken, b"one\nthree\n");
    }

    #[test]
    fn a_file_that_was_moved_away_is_left_alone_after_opening_anew() {
        let folder = std::env::temp_dir();
        let name =
            |end: &str| folder.join(format!("vllm-pingora-log-{}-{end}", std::process::id()));
        let (path, moved) = (name("now"), name("moved"));
        fs::write(&path, "before\n").unwrap();
        let mut file = File::open(&path).unwrap();
        file.write(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        file.write(b"two\n").unwrap();
        file.reopen().unwrap();
        file.write(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "before\none\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        for path in [path, moved] {
            fs::remove_file(path).unwrap();
        }
        assert!(File::open(&folder).is_err());
    }
}
