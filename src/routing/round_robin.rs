//! Each engine in turn.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::best_of;
use crate::retry::Standing;

/// Picks engines in turn: over n engines, any n consecutive requests hit each once.
///
/// Only first attempts move the turn. Further attempts have a turn of their own among the engines
/// that are left, so that the load of a dead one spreads over all others.
#[derive(Debug, Default)]
pub struct RoundRobin {
    first: AtomicUsize,
    again: AtomicUsize,
}

impl RoundRobin {
    /// The place of the engine for a request's first attempt; `None` where there is none.
    pub fn pick_first(&self, count: usize) -> Option<usize> {
        (count > 0).then(|| self.first.fetch_add(1, Ordering::Relaxed) % count)
    }

    /// The place of the engine for a further attempt, among those of the best standing; `None`
    /// where all are excluded.
    pub fn pick_again(&self, count: usize, standing: &dyn Fn(usize) -> Standing) -> Option<usize> {
        let best = best_of(count, standing)?;
        let equals = || (0..count).filter(|place| standing(*place) == best);
        let turn = self.again.fetch_add(1, Ordering::Relaxed);
        equals().nth(turn % equals().count().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Standing::{Eligible, Excluded, Last};

    #[test]
    fn any_n_consecutive_requests_hit_each_of_n_engines_once() {
        let logic = RoundRobin::default();
        let picks: Vec<_> = (0..50).filter_map(|_| logic.pick_first(7)).collect();
        for window in picks.windows(7) {
            let mut seen = window.to_vec();
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
        }
    }

    #[test]
    fn an_empty_pool_has_nobody_to_pick() {
        let logic = RoundRobin::default();
        assert_eq!(logic.pick_first(0), None);
        assert_eq!(logic.pick_again(0, &|_| Eligible), None);
    }

    #[test]
    fn further_attempts_spread_over_the_engines_that_are_left() {
        let logic = RoundRobin::default();
        let standings = [Eligible, Excluded, Eligible, Last];
        let mut hits = [0; 4];
        for _ in 0..100 {
            hits[logic.pick_again(4, &|place| standings[place]).unwrap()] += 1;
        }
        assert_eq!(hits, [50, 0, 50, 0]);
    }

    #[test]
    fn the_engine_that_just_answered_is_picked_only_where_no_other_is_left() {
        let logic = RoundRobin::default();
        let alone = [Excluded, Last];
        assert_eq!(logic.pick_again(2, &|place| alone[place]), Some(1));
        assert_eq!(logic.pick_again(2, &|_| Excluded), None);
    }

    #[test]
    fn further_attempts_do_not_move_the_turn_of_first_ones() {
        let logic = RoundRobin::default();
        assert_eq!(logic.pick_first(3), Some(0));
        logic.pick_again(3, &|_| Eligible);
        assert_eq!(logic.pick_first(3), Some(1));
    }
}
