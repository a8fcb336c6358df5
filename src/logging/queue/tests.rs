use super::*;
use std::sync::mpsc::{Receiver, Sender, channel};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

/// What the destination was told to do.
#[derive(Debug, PartialEq, Eq)]
enum Done {
    Wrote(String),
    Reopened,
}

/// Does nothing without leave, and tells what it did.
struct Held {
    leave: Receiver<io::Result<()>>,
    done: Sender<Done>,
}

impl Destination for Held {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        // Without a test there is nobody to wait for.
        self.leave.recv().unwrap_or(Ok(()))?;
        let lines = String::from_utf8(lines.to_vec()).unwrap();
        let _ = self.done.send(Done::Wrote(lines));
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        let _ = self.done.send(Done::Reopened);
        Ok(())
    }
}

struct Setup {
    queue: Queue,
    leave: Sender<io::Result<()>>,
    done: Receiver<Done>,
    said: Receiver<String>,
}

fn setup() -> Setup {
    let (leave, leaves) = channel();
    let (done, dones) = channel();
    let (say, said) = channel();
    let held = Held {
        leave: leaves,
        done,
    };
    let say = move |text: &str| {
        let _ = say.send(text.to_owned());
    };
    Setup {
        queue: Queue::start("test-log", held, say).unwrap(),
        leave,
        done: dones,
        said,
    }
}

impl Setup {
    fn next(&self) -> Done {
        self.done.recv_timeout(LONG).unwrap()
    }

    /// Waits until the thread holds all lines, and so waits for leave.
    fn wait_until_taken(&self) {
        while !self.queue.0.lock().waiting.is_empty() {
            thread::yield_now();
        }
    }
}

#[test]
fn lines_are_written_in_order_and_none_twice() {
    let setup = setup();
    let lines: Vec<_> = (0..1000).map(|n| format!("line {n}\n")).collect();
    for (n, line) in lines.iter().enumerate() {
        setup.queue.push(line.as_bytes());
        if n % 100 == 0 {
            setup.leave.send(Ok(())).unwrap();
        }
    }
    drop(setup.leave);
    setup.queue.flush(LONG);
    let done = setup.done.try_iter();
    let written: String = done
        .map(|done| match done {
            Done::Wrote(lines) => lines,
            Done::Reopened => panic!("nobody asked for that"),
        })
        .collect();
    assert_eq!(written, lines.concat());
    assert_eq!(setup.queue.lost(), 0);
}

#[test]
fn nobody_waits_for_a_destination_that_takes_nothing() {
    let setup = setup();
    setup.queue.push(b"held\n");
    setup.wait_until_taken();
    let line = [b'x'; 1023]
        .iter()
        .chain(b"\n")
        .copied()
        .collect::<Vec<_>>();
    let room = (MOST / line.len()) as u64;
    for _ in 0..room + 10 {
        setup.queue.push(&line);
    }
    assert_eq!(setup.queue.lost(), 10);
    let begun = Instant::now();
    setup.queue.flush(Duration::from_millis(20));
    assert!(begun.elapsed() >= Duration::from_millis(20));
    // Once it takes lines again, they come, and the log tells what is missing.
    setup.leave.send(Ok(())).unwrap();
    assert_eq!(setup.next(), Done::Wrote("held\n".to_owned()));
    setup.wait_until_taken();
    // There is room for it only now.
    assert!(setup.said.try_recv().is_err());
    setup.leave.send(Ok(())).unwrap();
    assert!(matches!(setup.next(), Done::Wrote(lines) if lines.len() == MOST));
    let said = setup.said.recv_timeout(LONG).unwrap();
    assert_eq!(
        said,
        "10 lines were lost: they came faster than they could be written"
    );
    setup.queue.flush(LONG);
    assert_eq!(setup.queue.lost(), 10);
    let state = setup.queue.0.lock();
    assert!(
        state.waiting.capacity() <= KEPT,
        "{}",
        state.waiting.capacity()
    );
}

#[test]
fn what_cannot_be_written_is_lost_and_told_once_in_a_while() {
    let setup = setup();
    for _ in 0..3 {
        // At once, or the thread may come between them.
        setup.queue.push(b"one\ntwo\n");
        setup
            .leave
            .send(Err(io::ErrorKind::StorageFull.into()))
            .unwrap();
        setup.queue.flush(LONG);
    }
    assert_eq!(setup.queue.lost(), 6);
    let said = setup.said.recv_timeout(LONG).unwrap();
    let full = io::Error::from(io::ErrorKind::StorageFull);
    assert_eq!(said, format!("2 lines were lost: {full}"));
    assert!(setup.said.try_recv().is_err());
    // A disk that has room again is written to.
    setup.queue.push(b"three\n");
    setup.leave.send(Ok(())).unwrap();
    assert_eq!(setup.next(), Done::Wrote("three\n".to_owned()));
}

#[test]
fn what_is_logged_after_opening_anew_is_in_the_new_one() {
    let setup = setup();
    setup.queue.push(b"old\n");
    setup.wait_until_taken();
    setup.queue.reopen();
    setup.queue.push(b"new\n");
    (0..2).for_each(|_| setup.leave.send(Ok(())).unwrap());
    assert_eq!(setup.next(), Done::Wrote("old\n".to_owned()));
    assert_eq!(setup.next(), Done::Reopened);
    assert_eq!(setup.next(), Done::Wrote("new\n".to_owned()));
    // Without a line, too.
    setup.queue.reopen();
    assert_eq!(setup.next(), Done::Reopened);
}

#[test]
fn a_flush_with_nothing_to_write_is_over_at_once() {
    let setup = setup();
    setup.queue.flush(LONG);
    setup.queue.push(b"a\n");
    setup.leave.send(Ok(())).unwrap();
    setup.queue.flush(LONG);
    setup.queue.flush(LONG);
    assert_eq!(setup.done.try_recv(), Ok(Done::Wrote("a\n".to_owned())));
}
