//! Finds the series of two labels without a lock, so that nobody waits on the way of a request:
//! neither for another request nor for a scrape.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::words::Words;

/// Copied to grow, so every part of it is shared.
type Known<V> = Words<Arc<Words<Arc<V>>>>;

/// What belongs to the values of two labels. It is looked up at every request and grows a few times
/// for each engine and model in the life of a process, so that it is copied to grow.
#[derive(Debug)]
pub(super) struct Handles<V> {
    known: ArcSwap<Known<V>>,
    growing: Mutex<()>,
}

impl<V> Default for Handles<V> {
    fn default() -> Self {
        Self {
            known: ArcSwap::default(),
            growing: Mutex::default(),
        }
    }
}

impl<V> Handles<V> {
    /// Uses what belongs to `one` and `other`; `None` where there is nothing.
    pub(super) fn with<R>(&self, one: &str, other: &str, f: impl FnOnce(&V) -> R) -> Option<R> {
        let known = self.known.load();
        known.get(one)?.get(other).map(|found| f(found))
    }

    /// Keeps what `make` gives, unless somebody was faster.
    pub(super) fn add(&self, one: &str, other: &str, make: impl FnOnce() -> V) {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.with(one, other, |_| ()).is_none() {
            let mut known = Known::clone(&self.known.load());
            let others = known.entry(one.into()).or_default();
            Arc::make_mut(others).insert(other.into(), make().into());
            self.known.store(known.into());
        }
    }

    /// What `f` makes of all that belongs to `one`, by the second label, in no order.
    pub(super) fn of<R>(&self, one: &str, f: impl Fn(&V) -> R) -> Vec<(Arc<str>, R)> {
        let known = self.known.load();
        let others = known.get(one).into_iter().flat_map(|others| others.iter());
        others
            .map(|(other, found)| (Arc::clone(other), f(found)))
            .collect()
    }

    /// The values of the first label.
    pub(super) fn firsts(&self) -> Vec<Arc<str>> {
        self.known.load().keys().cloned().collect()
    }

    /// Drops all that belongs to `one`, and gives the values of the second label it had.
    pub(super) fn forget(&self, one: &str) -> Vec<Arc<str>> {
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = Known::clone(&self.known.load());
        let others = known.remove(one).unwrap_or_default();
        self.known.store(known.into());
        others.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_first_stays_until_it_is_forgotten() {
        let handles = Handles::default();
        assert_eq!(handles.with("a", "b", |v: &u32| *v), None);
        handles.add("a", "b", || 1);
        handles.add("a", "b", || 2);
        handles.add("a", "c", || 3);
        handles.add("ab", "", || 4);
        assert_eq!(handles.with("a", "b", |v| *v), Some(1));
        assert_eq!(handles.with("a", "c", |v| *v), Some(3));
        let mut found = handles.of("a", |v| *v);
        found.sort_unstable();
        assert_eq!(found, [("b".into(), 1), ("c".into(), 3)]);
        assert_eq!(handles.of("b", |v| *v), []);
        let mut firsts = handles.firsts();
        firsts.sort_unstable();
        assert_eq!(firsts, ["a".into(), "ab".into()]);
        let mut forgotten = handles.forget("a");
        forgotten.sort_unstable();
        assert_eq!(forgotten, ["b".into(), "c".into()]);
        assert_eq!(handles.with("a", "b", |v| *v), None);
        assert_eq!(handles.with("ab", "", |v| *v), Some(4));
    }
}
