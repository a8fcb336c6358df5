//! Each engine in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Ask, Candidates, Member, best_of};
use crate::retry::Standing;

/// The longest round; weights that ask for more are scaled down.
const LONGEST_ROUND: u64 = 100_000;

/// Picks engines in turn: over n engines of one weight, any n consecutive requests hit each once.
/// An engine of weight w has w turns in a round, spread evenly over it.
///
/// Only first attempts move the turn. Further attempts have a turn of their own among the engines
/// that are left, so that the load of a dead one spreads over all others.
#[derive(Debug)]
pub struct RoundRobin {
    /// The place whose turn it is at each step of a round; empty where each has one in order.
    round: Box<[u32]>,
    turns: Arc<Turns>,
}

/// Outlives changes of the pool, so that nobody's turn comes twice because of one.
#[derive(Debug, Default)]
struct Turns {
    first: AtomicUsize,
    again: AtomicUsize,
}

impl RoundRobin {
    /// A turn over `members`, which goes on where `before` stands.
    pub fn new(members: &[Member<'_>], before: Option<&Self>) -> Self {
        Self {
            round: round(members),
            turns: before
                .map(|before| Arc::clone(&before.turns))
                .unwrap_or_default(),
        }
    }

    /// The place of the engine whose turn it is among those of the best standing.
    pub fn pick(&self, ask: &Ask<'_>, among: &dyn Candidates) -> Option<usize> {
        let turn = if ask.again {
            &self.turns.again
        } else {
            &self.turns.first
        };
        let steps = if self.round.is_empty() {
            among.count()
        } else {
            self.round.len()
        };
        let mut at = turn.load(Ordering::Relaxed);
        let mut best = Standing::Eligible;
        loop {
            let Some(ahead) = self.ahead(at, steps, best, among) else {
                // Nobody is eligible, so those that answered last are as good as it gets.
                best = best_of(among).filter(|better| *better != best)?;
                continue;
            };
            let next = at.wrapping_add(ahead + 1);
            match turn.compare_exchange_weak(at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.place(at.wrapping_add(ahead), steps),
                Err(moved) => at = moved,
            }
        }
    }

    /// How many steps after `at` an engine of this standing has its turn.
    fn ahead(
        &self,
        at: usize,
        steps: usize,
        standing: Standing,
        among: &dyn Candidates,
    ) -> Option<usize> {
        (0..steps).find(|ahead| {
            self.place(at.wrapping_add(*ahead), steps)
                .is_some_and(|place| among.standing(place) == standing)
        })
    }

    fn place(&self, turn: usize, steps: usize) -> Option<usize> {
        let step = turn.checked_rem(steps)?;
        if self.round.is_empty() {
            return Some(step);
        }
        self.round.get(step).map(|place| *place as usize)
    }
}

/// The order of a round: an engine's turns lie as far apart as they can.
fn round(members: &[Member<'_>]) -> Box<[u32]> {
    let lightest = members
        .iter()
        .map(|member| member.weight)
        .min()
        .unwrap_or(1);
    if members.iter().all(|member| member.weight == lightest) {
        return Box::default();
    }
    let divisor = members
        .iter()
        .fold(0, |divisor, member| gcd(divisor, member.weight.max(1)));
    let total: u64 = members
        .iter()
        .map(|member| u64::from(member.weight / divisor))
        .sum();
    let scale = total.div_ceil(LONGEST_ROUND).max(1);
    let mut turns: Vec<(u64, u32)> = Vec::new();
    for (place, member) in (0u32..).zip(members) {
        let count = (u64::from(member.weight / divisor) / scale).max(1);
        // The middle of each of the engine's equal parts of the round, in units of 2^-32.
        turns.extend((0..count).map(|turn| (((2 * turn + 1) << 31) / count, place)));
    }
    turns.sort_unstable();
    turns.into_iter().map(|(_, place)| place).collect()
}

fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests;
