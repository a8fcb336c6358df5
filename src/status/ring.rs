//! Time in cells of one length, of which the newest are kept.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// A bounded history: what happened in each of the last cells of time.
///
/// Cells are numbered from the start of the process, so that cell `n` begins at `n` times their
/// length.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    /// The length of a cell, in seconds.
    span: u64,
    /// How many cells are kept, the newest included.
    most: u64,
    /// The number of the newest cell.
    newest: u64,
    current: T,
    /// The cells before it, the newest first. They never change again, so copies share them.
    before: VecDeque<Arc<T>>,
}

impl<T: Default> Ring<T> {
    /// A history of `most` cells of `span` seconds; of neither there is less than one.
    pub fn new(span: u64, most: u64) -> Self {
        Self {
            span: span.max(1),
            most: most.max(1),
            newest: 0,
            current: T::default(),
            before: VecDeque::new(),
        }
    }

    /// The cell of `now`, the time since the process started. What comes late counts in the newest
    /// cell.
    pub fn at(&mut self, now: Duration) -> &mut T {
        let number = self.number(now);
        if number > self.newest {
            self.turn_to(number);
        }
        &mut self.current
    }

    fn turn_to(&mut self, number: u64) {
        let skipped = number - self.newest - 1;
        self.newest = number;
        self.before.push_front(mem::take(&mut self.current).into());
        for _ in 0..skipped.min(self.most) {
            self.before.push_front(Arc::default());
        }
        let kept = usize::try_from(self.most - 1).unwrap_or(usize::MAX);
        self.before.truncate(kept);
    }

    /// The cells of the last `seconds`, that of `now` included, with their numbers, the newest
    /// first.
    pub fn last(&self, seconds: u64, now: Duration) -> impl Iterator<Item = (u64, &T)> {
        let oldest = self.first_of(seconds, now);
        let before = self.before.iter().map(|cell| &**cell);
        let cells = std::iter::once(&self.current).chain(before);
        (0..=self.newest)
            .rev()
            .zip(cells)
            .take_while(move |(number, _)| *number >= oldest)
    }

    /// The number of the first cell of the last `seconds`.
    pub fn first_of(&self, seconds: u64, now: Duration) -> u64 {
        let cells = seconds.div_ceil(self.span).clamp(1, self.most);
        (self.number(now) + 1).saturating_sub(cells)
    }

    /// The number of the newest cell in which anything was noted.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    fn number(&self, now: Duration) -> u64 {
        now.as_secs() / self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn seen(ring: &Ring<u32>, seconds: u64, now: u64) -> Vec<(u64, u32)> {
        let cells = ring.last(seconds, secs(now));
        cells.map(|(number, count)| (number, *count)).collect()
    }

    #[test]
    fn what_happens_counts_in_the_cell_of_its_time() {
        let mut ring = Ring::new(5, 4);
        for now in [0, 4, 5, 14] {
            *ring.at(secs(now)) += 1;
        }
        assert_eq!(seen(&ring, 20, 14), [(2, 1), (1, 1), (0, 2)]);
        assert_eq!(seen(&ring, 10, 14), [(2, 1), (1, 1)]);
        assert_eq!(seen(&ring, 1, 14), [(2, 1)]);
    }

    #[test]
    fn no_more_cells_are_kept_than_there_is_room_for() {
        let mut ring = Ring::new(5, 4);
        for now in 0..1000 {
            *ring.at(secs(now)) += 1;
        }
        let expected = [(199, 5), (198, 5), (197, 5), (196, 5)];
        assert_eq!(seen(&ring, 20, 999), expected);
        assert_eq!(seen(&ring, u64::MAX, 999), expected);
        assert_eq!(ring.before.len(), 3);
    }

    #[test]
    fn a_pause_leaves_empty_cells_however_long_it_was() {
        let mut ring = Ring::new(5, 4);
        *ring.at(secs(0)) += 1;
        *ring.at(secs(10)) += 1;
        assert_eq!(seen(&ring, 20, 10), [(2, 1), (1, 0), (0, 1)]);
        *ring.at(secs(5_000_000_000)) += 1;
        assert_eq!(ring.before.len(), 3);
        let counts: Vec<_> = seen(&ring, 20, 5_000_000_000).into_iter().collect();
        assert_eq!(counts.iter().map(|(_, n)| n).sum::<u32>(), 1);
        assert_eq!(counts.len(), 4);
    }

    #[test]
    fn cells_grow_old_without_anything_happening() {
        let mut ring = Ring::new(5, 4);
        *ring.at(secs(3)) += 1;
        assert_eq!(seen(&ring, 20, 19), [(0, 1)]);
        assert_eq!(seen(&ring, 20, 20), []);
        assert_eq!(seen(&ring, 5, 5), []);
    }

    #[test]
    fn a_copy_shares_the_past_and_stays_as_it_was() {
        let mut ring = Ring::new(5, 4);
        for now in [0, 5, 10] {
            *ring.at(secs(now)) += 1;
        }
        let copy = ring.clone();
        assert!(
            ring.before
                .iter()
                .zip(&copy.before)
                .all(|(a, b)| Arc::ptr_eq(a, b))
        );
        for now in [10, 15] {
            *ring.at(secs(now)) += 1;
        }
        assert_eq!(seen(&copy, 20, 15), [(2, 1), (1, 1), (0, 1)]);
        assert_eq!(seen(&ring, 20, 15), [(3, 1), (2, 2), (1, 1), (0, 1)]);
    }

    #[test]
    fn what_comes_late_counts_in_the_newest_cell() {
        let mut ring = Ring::new(5, 4);
        *ring.at(secs(10)) += 1;
        *ring.at(secs(9)) += 1;
        assert_eq!(seen(&ring, 20, 10)[0], (2, 2));
        assert_eq!(ring.newest(), 2);
    }
}
