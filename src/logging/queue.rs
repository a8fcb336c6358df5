//! Between those who log and the thread that writes.
//!
//! Lines are appended to one buffer; the thread takes all of it away at once. So a line costs who
//! logs it a copy, and now and then the word that wakes the thread up, whatever the other end does.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::destination::Destination;

/// The most that waits to be written, in bytes: what comes on top of it is lost.
const MOST: usize = 4 * 1024 * 1024;

/// How long the thread waits for more lines before it writes what there is: waking it costs more than
/// a line.
const GATHER: Duration = Duration::from_millis(5);

/// The least time between two words on lines that were lost.
const SILENCE: Duration = Duration::from_secs(10);

/// Memory that is kept for the next lines.
const KEPT: usize = 64 * 1024;

/// Takes lines, and has them written.
#[derive(Debug)]
pub(super) struct Queue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do for the thread.
    work: Condvar,
    /// The thread has done something.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines taken so far, and how many of them the thread is done with.
    taken: u64,
    done: u64,
    lost: u64,
    /// The thread must not wait for more lines.
    hurry: bool,
    reopen: bool,
}

impl Queue {
    /// Starts the thread that writes to `destination`. It tells `say` of lines that were lost and of
    /// failures, which may log.
    pub(super) fn start(
        name: &str,
        destination: impl Destination,
        say: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            shared: Arc::clone(&shared),
            destination,
            say,
            told: (0, None),
        };
        thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || writer.run())?;
        Ok(Self(shared))
    }

    /// Takes a line, or several, or loses it.
    pub(super) fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        let length = state.waiting.len() + line.len();
        if length > MOST {
            state.lost += 1;
            return;
        }
        // Asleep without work, it is woken; at work, it looks for more before it sleeps again.
        let wake = state.waiting.is_empty() || (length > MOST / 2 && !state.hurry);
        state.hurry |= length > MOST / 2;
        state.waiting.extend_from_slice(line);
        state.taken += 1;
        drop(state);
        if wake {
            self.0.work.notify_one();
        }
    }

    /// Waits until all that has been taken is written or lost, and the log has told of what was lost,
    /// for `longest` at most.
    pub(super) fn flush(&self, longest: Duration) {
        let end = Instant::now() + longest;
        // What is told of lost lines is a line itself, which comes after them.
        for _ in 0..2 {
            let mut state = self.0.lock();
            let all = state.taken;
            state.hurry = true;
            self.0.work.notify_one();
            let waits = |state: &mut State| state.done < all;
            let left = end.saturating_duration_since(Instant::now());
            let waited = self.0.done.wait_timeout_while(state, left, waits);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Has the destination opened anew, before anything is written that is not taken yet.
    pub(super) fn reopen(&self) {
        let mut state = self.0.lock();
        state.reopen = true;
        state.hurry = true;
        drop(state);
        self.0.work.notify_one();
    }

    /// Lines that were lost so far.
    pub(super) fn lost(&self) -> u64 {
        self.0.lock().lost
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's side.
struct Writer<D, S> {
    shared: Arc<Shared>,
    destination: D,
    say: S,
    /// How many lost lines have been spoken of, and when.
    told: (u64, Option<Instant>),
}

impl<D: Destination, S: Fn(&str)> Writer<D, S> {
    fn run(mut self) {
        let mut lines = Vec::new();
        loop {
            lines.clear();
            lines.shrink_to(KEPT);
            let (reopen, taken) = self.take(&mut lines);
            let reopened = if reopen {
                self.destination.reopen()
            } else {
                Ok(())
            };
            if let Err(error) = reopened {
                (self.say)(&format!(
                    "it cannot be opened anew, and goes on as it was: {error}"
                ));
            }
            let written = self.destination.write(&lines);
            let mut state = self.shared.lock();
            if written.is_err() {
                state.lost += memchr::memchr_iter(b'\n', &lines).count() as u64;
            }
            // What is told is a line as well, which needs room.
            let lost = (state.waiting.len() < MOST / 2).then_some(state.lost);
            drop(state);
            if let Some(lost) = lost {
                self.tell(lost, written.err());
            }
            self.shared.lock().done = taken;
            self.shared.done.notify_all();
        }
    }

    /// Waits for lines and takes them all; gives whether to open anew, and how many were taken so
    /// far.
    fn take(&self, lines: &mut Vec<u8>) -> (bool, u64) {
        let state = self.shared.lock();
        let idle = |state: &mut State| state.waiting.is_empty() && !state.reopen;
        let state = self.shared.work.wait_while(state, idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let calm = |state: &mut State| !state.hurry;
        let waited = self.shared.work.wait_timeout_while(state, GATHER, calm);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut state.waiting, lines);
        state.hurry = false;
        (std::mem::take(&mut state.reopen), state.taken)
    }

    /// Speaks of lines that were lost, once in a while.
    fn tell(&mut self, lost: u64, error: Option<io::Error>) {
        let (told, at) = self.told;
        if lost == told || at.is_some_and(|at| at.elapsed() < SILENCE) {
            return;
        }
        self.told = (lost, Some(Instant::now()));
        let why = match error {
            Some(error) => error.to_string(),
            None => "they came faster than they could be written".to_owned(),
        };
        (self.say)(&format!("{} lines were lost: {why}", lost - told));
    }
}

#[cfg(test)]
mod tests;
