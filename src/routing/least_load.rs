//! The less busy one of two.

use super::{Ask, Candidates, best_of};
use crate::retry::Standing;

/// How often two engines are drawn before all are looked at. Most are eligible as a rule, and among
/// many a draw is far quicker.
const DRAWS: usize = 8;

/// Draws two engines and picks the one with less load.
///
/// Two random choices come close to the best engine at the cost of looking at two, and do not send
/// everybody to the one that was idle when the gauges were last read.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoad;

impl LeastLoad {
    /// The place of the less busy one of two engines of the best standing.
    pub fn pick(&self, ask: &Ask<'_>, among: &dyn Candidates) -> Option<usize> {
        let count = among.count();
        let eligible = |place| among.standing(place) == Standing::Eligible;
        let mut draw = ask.draw;
        for _ in 0..DRAWS {
            let (one, other) = two_of(count, draw)?;
            if eligible(one) && eligible(other) {
                return Some(less_busy(one, other, among));
            }
            draw = next(draw);
        }
        let best = best_of(among)?;
        let equals = || (0..count).filter(|place| among.standing(*place) == best);
        let (one, other) = two_of(equals().count(), draw)?;
        let (one, other) = (equals().nth(one)?, equals().nth(other)?);
        Some(less_busy(one, other, among))
    }
}

fn less_busy(one: usize, other: usize, among: &dyn Candidates) -> usize {
    if among.load(other) < among.load(one) {
        other
    } else {
        one
    }
}

/// Another draw from one: a step of `SplitMix64`.
fn next(draw: u64) -> u64 {
    let draw = draw.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let draw = (draw ^ (draw >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let draw = (draw ^ (draw >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    draw ^ (draw >> 31)
}

/// Two different numbers below `count`, or the same where there is only one; `None` below 0.
fn two_of(count: usize, draw: u64) -> Option<(usize, usize)> {
    // Each half of the draw is scaled to its range; with 32 bits the bias is below 2^-20 for
    // thousands of engines.
    let scaled = |bits: u64, count: usize| {
        usize::try_from(((bits & 0xFFFF_FFFF) * count as u64) >> 32).unwrap_or(0)
    };
    match count {
        0 => None,
        1 => Some((0, 0)),
        _ => {
            let one = scaled(draw, count);
            let other = scaled(draw >> 32, count - 1);
            Some((one, if other >= one { other + 1 } else { other }))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::super::mock::Mocks;
    use super::*;
    use Standing::{Eligible, Excluded, Last};

    fn picks(engines: &Mocks, count: usize) -> Vec<usize> {
        let mut dice = StdRng::seed_from_u64(7);
        let pick = |_| {
            LeastLoad.pick(
                &Ask {
                    draw: dice.random(),
                    ..Ask::default()
                },
                engines,
            )
        };
        (0..count).filter_map(pick).collect()
    }

    #[test]
    fn of_two_engines_the_less_busy_one_is_always_picked() {
        assert!(
            picks(&Mocks::loaded(&[3.0, 2.0]), 100)
                .iter()
                .all(|place| *place == 1)
        );
    }

    #[test]
    fn the_busiest_engine_is_never_picked_and_equals_share() {
        let picks = picks(&Mocks::loaded(&[0.0, 9.0, 0.0, 0.0]), 3000);
        for place in [0, 2, 3] {
            let hits = picks.iter().filter(|hit| **hit == place).count();
            assert!((900..1100).contains(&hits), "{place}: {hits}");
        }
        assert!(!picks.contains(&1));
    }

    #[test]
    fn engines_of_the_best_standing_share_evenly_however_few_they_are() {
        for excluded in [1, 5, 8] {
            let mut standings = [Eligible; 10];
            standings[..excluded].fill(Excluded);
            let picks = picks(&Mocks::standing(&standings), 6000);
            let share = 6000 / (10 - excluded);
            for place in excluded..10 {
                let hits = picks.iter().filter(|hit| **hit == place).count();
                assert!(hits.abs_diff(share) < share / 5, "{place}: {hits}");
            }
        }
    }

    #[test]
    fn load_stays_even_as_requests_are_placed() {
        let mut engines = Mocks::idle(50);
        let mut dice = StdRng::seed_from_u64(3);
        for _ in 0..5000 {
            let ask = Ask {
                draw: dice.random(),
                ..Ask::default()
            };
            let place = LeastLoad.pick(&ask, &engines).unwrap();
            engines.0[place].load += 1.0;
        }
        let most = engines
            .0
            .iter()
            .map(|engine| engine.load)
            .fold(0.0, f64::max);
        assert!(most <= 105.0, "the mean is 100, the most is {most}");
    }

    #[test]
    fn standing_comes_before_load() {
        let mut engines = Mocks::standing(&[Excluded, Last, Eligible]);
        engines.0[2].load = 100.0;
        assert!(picks(&engines, 50).iter().all(|place| *place == 2));
        engines.0[2].standing = Excluded;
        assert!(picks(&engines, 50).iter().all(|place| *place == 1));
        engines.0[1].standing = Excluded;
        assert!(picks(&engines, 50).is_empty());
    }

    proptest! {
        #[test]
        fn two_different_places_are_drawn(count in 2usize..2000, draw in any::<u64>()) {
            let (one, other) = two_of(count, draw).unwrap();
            prop_assert!(one < count && other < count && one != other);
        }
    }
}
