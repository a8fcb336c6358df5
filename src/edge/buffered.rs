//! How many bytes of request bodies are kept, over all connections, and a bound on them.
//!
//! Bytes that have come count; a length that is only declared costs nothing but addresses.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pingora_core::{Error, ErrorType, Result};

const NO_ROOM: ErrorType = ErrorType::new("NoRoomForBodies");

/// Whether this is the error of a body for which there was no room.
pub fn is_lack_of_room(error: &Error) -> bool {
    error.etype == NO_ROOM
}

/// Counts the bytes of all request bodies that are kept.
#[derive(Debug, Default)]
pub struct Buffered(AtomicUsize);

impl Buffered {
    /// How many they are now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One body's part of them, given back when it is dropped at the latest.
#[derive(Debug)]
pub(super) struct Share {
    all: Arc<Buffered>,
    most: Option<NonZeroUsize>,
    bytes: usize,
}

impl Share {
    /// Nothing yet, of at most `most` bytes of all bodies together.
    pub(super) fn new(all: Arc<Buffered>, most: Option<NonZeroUsize>) -> Self {
        Self {
            all,
            most,
            bytes: 0,
        }
    }

    /// Whether so many bytes would have room now.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn foresee(&self, bytes: usize) -> Result<()> {
        let most = self.most.map_or(usize::MAX, NonZeroUsize::get);
        if self.all.bytes().saturating_add(bytes) > most {
            return no_room();
        }
        Ok(())
    }

    /// Counts bytes that have come.
    ///
    /// # Errors
    /// There is no room for them; then they do not count.
    pub(super) fn add(&mut self, bytes: usize) -> Result<()> {
        let most = self.most.map_or(usize::MAX, NonZeroUsize::get);
        let sum = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= most);
        // Nothing is read on the strength of the number, so it needs no order among other things.
        let added = (self.all.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum);
        if added.is_err() {
            return no_room();
        }
        self.bytes += bytes;
        Ok(())
    }

    /// The body has been let go.
    pub(super) fn give_back(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.all.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn no_room() -> Result<()> {
    Error::e_explain(NO_ROOM, "request bodies take all they may")
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(all: &Arc<Buffered>, most: usize) -> Share {
        Share::new(Arc::clone(all), NonZeroUsize::new(most))
    }

    #[test]
    fn there_is_room_up_to_the_bound_and_what_is_refused_does_not_count() {
        let all = Arc::<Buffered>::default();
        let (mut a, mut b) = (share(&all, 100), share(&all, 100));
        a.add(60).unwrap();
        b.add(40).unwrap();
        assert!(is_lack_of_room(&b.add(1).unwrap_err()));
        assert!(is_lack_of_room(&a.add(usize::MAX).unwrap_err()));
        assert_eq!(all.bytes(), 100);
        a.give_back();
        b.add(60).unwrap();
        assert_eq!(all.bytes(), 100);
    }

    #[test]
    fn what_is_foreseen_takes_no_room() {
        let all = Arc::<Buffered>::default();
        let (mut a, b) = (share(&all, 100), share(&all, 100));
        b.foresee(100).unwrap();
        a.add(60).unwrap();
        b.foresee(40).unwrap();
        assert!(is_lack_of_room(&b.foresee(41).unwrap_err()));
        assert!(b.foresee(usize::MAX).is_err());
        share(&all, 0).foresee(usize::MAX).unwrap();
        assert_eq!(all.bytes(), 60);
    }

    #[test]
    fn each_byte_is_given_back_once() {
        let all = Arc::<Buffered>::default();
        let (mut a, mut b) = (share(&all, 0), share(&all, 0));
        a.add(5).unwrap();
        b.add(7).unwrap();
        a.give_back();
        a.give_back();
        assert_eq!(all.bytes(), 7);
        drop(a);
        assert_eq!(all.bytes(), 7);
        drop(b);
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn a_bound_that_shrank_refuses_what_is_new_and_keeps_what_there_is() {
        let all = Arc::<Buffered>::default();
        let mut before = share(&all, 0);
        before.add(1000).unwrap();
        let mut after = share(&all, 100);
        assert!(after.add(1).is_err());
        before.add(1000).unwrap();
        drop(before);
        after.add(100).unwrap();
    }

    #[test]
    fn threads_that_take_and_give_at_once_leave_nothing_behind() {
        let all = Arc::<Buffered>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..1000 {
                        let mut share = share(&all, 2000);
                        while share.add(n % 7 + 300).is_ok() {
                            assert!(all.bytes() <= 2000);
                        }
                    }
                });
            }
        });
        assert_eq!(all.bytes(), 0);
    }
}
