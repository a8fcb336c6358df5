use std::time::Duration;

use proptest::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::super::mock::{Mocks, with_members};
use super::super::{Kind, Logic, Logics, PrefixLimits};
use super::*;
use Standing::{Eligible, Excluded, Last};

const TTL: Duration = Duration::from_secs(1800);

fn routing() -> Routing {
    Routing {
        kind: Kind::PrefixAware,
        balance: Balance {
            difference: 64.0,
            ratio: 1.5,
        },
        prefix: PrefixLimits {
            least_match: 0,
            memory: 16 << 20,
            ttl: TTL,
        },
    }
}

/// A pool, its logic, dice and a clock.
struct Pool {
    logic: Logic,
    engines: Mocks,
    dice: StdRng,
    now: Duration,
}

impl Pool {
    fn of(routing: Routing, engines: Mocks) -> Self {
        let logics = Logics::new(routing);
        let weights = vec![1; engines.0.len()];
        Self {
            logic: with_members(&weights, |members| Logic::new(&logics, members, None)),
            engines,
            dice: StdRng::seed_from_u64(11),
            now: Duration::ZERO,
        }
    }

    fn idle(count: usize) -> Self {
        Self::of(routing(), Mocks::idle(count))
    }

    fn try_pick(&mut self, prompt: &[u8]) -> Option<usize> {
        let prompt = Blocks::of("m", prompt);
        let ask = Ask {
            prompt: Some(&prompt),
            draw: self.dice.random(),
            now: self.now,
            ..Ask::default()
        };
        self.logic.pick(&ask, &self.engines)
    }

    fn pick(&mut self, prompt: &[u8]) -> usize {
        self.try_pick(prompt).unwrap()
    }

    /// Picks, and keeps the engine busy.
    fn place(&mut self, prompt: &[u8]) -> usize {
        let place = self.pick(prompt);
        self.engines.0[place].load += 1.0;
        place
    }
}

/// A prompt that has nothing in common with those of other numbers.
fn text(number: usize, length: usize) -> Vec<u8> {
    format!("{number:0128}")
        .repeat(length / 128 + 1)
        .into_bytes()[..length]
        .to_vec()
}

fn hits(picks: &[usize], engines: usize) -> Vec<usize> {
    let count = |engine| picks.iter().filter(|pick| **pick == engine).count();
    (0..engines).map(count).collect()
}

#[test]
fn a_conversation_stays_where_it_began() {
    let mut pool = Pool::idle(50);
    let mut talks: Vec<_> = (0..40).map(|n| (text(n, 3000), None)).collect();
    for _turn in 0..5 {
        for (prompt, home) in &mut talks {
            let place = pool.pick(prompt);
            assert_eq!(*home.get_or_insert(place), place);
            prompt.extend_from_slice(&text(place, 900));
        }
    }
}

#[test]
fn new_prompts_spread_over_all_engines() {
    let mut pool = Pool::idle(10);
    let picks: Vec<_> = (0..1000).map(|n| pool.place(&text(n, 2000))).collect();
    assert!(hits(&picks, 10).iter().all(|hits| (90..110).contains(hits)));
}

#[test]
fn a_system_prompt_does_not_draw_everybody_to_one_engine() {
    let mut pool = Pool::idle(8);
    let system = text(7, 4096);
    let picks: Vec<_> = (0..800)
        .map(|n| pool.place(&[system.clone(), text(1000 + n, 1000)].concat()))
        .collect();
    let hits = hits(&picks, 8);
    assert!(hits.iter().all(|hits| (90..110).contains(hits)), "{hits:?}");
}

#[test]
fn while_all_are_idle_a_system_prompt_is_computed_once() {
    let mut pool = Pool::idle(8);
    let system = text(7, 4096);
    let first = pool.pick(&system);
    for n in 0..100 {
        let prompt = [system.clone(), text(1000 + n, 1000)].concat();
        assert_eq!(pool.pick(&prompt), first);
    }
}

#[test]
fn a_match_is_worth_a_longer_queue_in_proportion_to_its_length() {
    for (length, load, stays) in [(4096, 4.0, true), (4096, 4.5, false), (512, 0.6, false)] {
        let mut pool = Pool::idle(2);
        let home = pool.pick(&text(1, length));
        pool.engines.0[home].load = load;
        assert_eq!(
            pool.pick(&text(1, length)) == home,
            stays,
            "{length} {load}"
        );
    }
}

#[test]
fn a_shorter_match_on_an_idle_engine_may_be_cheaper_than_the_longest() {
    let mut pool = Pool::idle(20);
    let short = pool.pick(&text(1, 6144));
    pool.engines.0[short].standing = Excluded;
    let long = pool.pick(&text(1, 8192));
    pool.engines.0[short].standing = Eligible;
    assert_ne!(short, long);
    for (load, expected) in [(1.9, long), (2.1, short)] {
        let mut pool = Pool {
            logic: with_members(&[1; 20], |members| {
                let Logic::PrefixAware(logic) = &pool.logic else {
                    panic!();
                };
                // Another pool with the same index, so that the picks below do not learn twice.
                Logic::PrefixAware(PrefixAware::new(&routing(), &logic.index, members))
            }),
            engines: pool.engines.clone(),
            dice: StdRng::seed_from_u64(1),
            now: Duration::ZERO,
        };
        pool.engines.0[long].load = load;
        assert_eq!(pool.pick(&text(1, 8192)), expected, "{load}");
    }
}

#[test]
fn of_engines_with_the_same_match_the_less_busy_one_is_picked() {
    let mut pool = Pool::idle(3);
    let prompt = text(1, 8192);
    for place in 0..3 {
        for other in 0..3 {
            let only = if other == place { Eligible } else { Excluded };
            pool.engines.0[other].standing = only;
        }
        assert_eq!(pool.pick(&prompt), place);
    }
    for (loads, expected) in [
        ([2.0, 1.0, 3.0], 1),
        ([2.0, 3.0, 1.0], 2),
        ([0.5, 1.0, 1.0], 0),
    ] {
        pool.engines = Mocks::loaded(&loads);
        assert_eq!(pool.pick(&prompt), expected);
    }
}

#[test]
fn a_match_shorter_than_asked_for_does_not_count() {
    let mut routing = routing();
    routing.prefix.least_match = 1000;
    let mut pool = Pool::of(routing, Mocks::idle(2));
    let home = pool.pick(&text(1, 896));
    // Whoever has it is the less busy one, but for this.
    pool.engines.0[home].load = 0.1;
    assert_ne!(pool.pick(&text(1, 896)), home);
    let home = pool.pick(&text(2, 1024));
    pool.engines.0[home].load += 0.1;
    assert_eq!(pool.pick(&text(2, 1024)), home);
}

#[test]
fn the_load_decides_where_the_balance_is_lost() {
    // Long enough that the match alone would be worth it.
    let prompt = text(1, 200_000);
    for (home_load, others, stays) in [
        (64.0, 0.0, true),
        (65.0, 0.0, false),
        (150.0, 85.0, false),
        (150.0, 86.0, true),
        (200.0, 135.0, true),
    ] {
        let mut pool = Pool::idle(30);
        let home = pool.pick(&prompt);
        for (place, engine) in pool.engines.0.iter_mut().enumerate() {
            engine.load = if place == home { home_load } else { others };
        }
        assert_eq!(pool.pick(&prompt) == home, stays, "{home_load} {others}");
    }
}

#[test]
fn one_idle_engine_among_many_is_enough_to_lose_the_balance() {
    let prompt = text(1, 200_000);
    let mut pool = Pool::idle(1000);
    let home = pool.pick(&prompt);
    for engine in &mut pool.engines.0 {
        engine.load = 100.0;
    }
    for _ in 0..20 {
        assert_eq!(pool.pick(&prompt), home);
    }
    pool.engines.0[(home + 500) % 1000].load = 0.0;
    assert_ne!(pool.pick(&prompt), home);
}

#[test]
fn who_gets_a_prompt_for_its_load_has_it_from_then_on() {
    let prompt = text(1, 4096);
    let mut pool = Pool::idle(2);
    let home = pool.pick(&prompt);
    pool.engines.0[home].load = 10.0;
    let next = pool.pick(&prompt);
    assert_ne!(home, next);
    pool.engines.0[home].load = 1.0;
    pool.engines.0[next].load = 0.9;
    assert_eq!(pool.pick(&prompt), next);
}

#[test]
fn an_engine_that_was_started_anew_has_forgotten() {
    let prompt = text(1, 4096);
    let mut pool = Pool::idle(2);
    let home = pool.pick(&prompt);
    pool.engines.0[home].load = 0.1;
    assert_eq!(pool.pick(&prompt), home);
    pool.engines.0[home].incarnation += 1;
    let next = pool.pick(&prompt);
    assert_ne!(next, home);
    // The conversation has moved, and stays.
    pool.engines.0[home].load = 0.0;
    pool.engines.0[next].load = 0.1;
    assert_eq!(pool.pick(&prompt), next);
}

#[test]
fn a_prompt_that_moved_away_from_a_dead_engine_leaves_a_way_back_to_the_one_that_has_its_beginning()
{
    // Both have the beginning; the one with more of it dies.
    let (system, mut pool) = (text(1, 4096), Pool::idle(3));
    let longer = [system.clone(), text(2, 4096)].concat();
    let first = pool.pick(&longer);
    pool.engines.0[first].incarnation += 1;
    pool.engines.0[first].standing = Excluded;
    let second = pool.pick(&system);
    pool.engines.0[first].standing = Eligible;
    pool.engines.0[second].load = 0.1;
    assert_eq!(pool.pick(&longer), second);
}

#[test]
fn what_was_not_used_for_long_is_forgotten() {
    let prompt = text(1, 4096);
    let mut pool = Pool::idle(2);
    let home = pool.pick(&prompt);
    pool.engines.0[home].load = 0.1;
    for _ in 0..3 {
        pool.now += TTL.saturating_sub(Duration::from_millis(1));
        assert_eq!(pool.pick(&prompt), home, "every use counts");
    }
    pool.now += TTL;
    assert_ne!(pool.pick(&prompt), home);
}

#[test]
fn standing_comes_before_a_match() {
    let prompt = text(1, 8192);
    for standing in [Excluded, Last] {
        let mut pool = Pool::idle(3);
        let home = pool.pick(&prompt);
        pool.engines.0[home].standing = standing;
        for engine in &mut pool.engines.0 {
            engine.load = if engine.standing == Eligible {
                5.0
            } else {
                0.0
            };
        }
        assert_ne!(pool.pick(&prompt), home);
    }
    let mut pool = Pool::of(routing(), Mocks::standing(&[Excluded, Last]));
    assert_eq!(pool.pick(&prompt), 1);
    pool.engines.0[1].standing = Excluded;
    assert_eq!(pool.try_pick(&prompt), None);
    assert_eq!(Pool::idle(0).try_pick(&prompt), None);
}

#[test]
fn a_further_attempt_moves_the_prompt() {
    let prompt = text(1, 4096);
    let mut pool = Pool::idle(10);
    let home = pool.pick(&prompt);
    pool.engines.0[home].standing = Excluded;
    pool.engines.0[home].incarnation += 1;
    let next = pool.pick(&prompt);
    pool.engines.0[home].standing = Eligible;
    assert!((0..20).all(|_| pool.pick(&prompt) == next));
}

#[test]
fn without_a_prompt_or_with_a_short_one_the_less_busy_engine_is_picked() {
    let mut pool = Pool::of(routing(), Mocks::loaded(&[1.0, 0.0]));
    for length in [0, 127] {
        assert!((0..50).all(|_| pool.pick(&text(1, length)) == 1));
        pool.engines = Mocks::loaded(&[1.0, 0.0]);
    }
    let ask = Ask::default();
    assert_eq!(pool.logic.pick(&ask, &pool.engines), Some(1));
}

#[test]
fn when_engines_come_and_go_the_others_keep_their_prompts() {
    let logics = Logics::new(routing());
    let made = |count: usize, before: Option<&Logic>| {
        with_members(&vec![1; count], |members| {
            Logic::new(&logics, members, before)
        })
    };
    let mut pool = Pool::idle(10);
    pool.logic = made(10, None);
    let homes: Vec<_> = (0..500).map(|n| pool.place(&text(n, 2048))).collect();
    for count in [9, 12] {
        pool.logic = made(count, Some(&pool.logic));
        pool.engines = Mocks::idle(count);
        for (n, home) in homes.iter().enumerate() {
            if *home < 9 {
                assert_eq!(pool.pick(&text(n, 2048)), *home);
            }
        }
    }
}

#[test]
fn the_same_asks_lead_to_the_same_engines() {
    let run = || {
        let mut pool = Pool::idle(20);
        (0..500)
            .map(|n| pool.place(&text(n % 70, 1000 + n)))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

proptest! {
    #[test]
    fn nobody_excluded_is_picked_and_somebody_is_where_there_is_one(
        engines in prop::collection::vec((0u8..3, 0u32..200), 0..8),
        prompts in prop::collection::vec((0usize..4, 0usize..3000), 1..20),
    ) {
        let mut mocks = Mocks::idle(engines.len());
        for (mock, (standing, load)) in mocks.0.iter_mut().zip(&engines) {
            mock.standing = [Eligible, Last, Excluded][usize::from(*standing)];
            mock.load = f64::from(*load);
        }
        let best = mocks.0.iter().map(|mock| mock.standing).filter(|s| *s != Excluded);
        let best = best.min_by_key(|standing| *standing == Last);
        let mut pool = Pool::of(routing(), mocks);
        for (number, length) in prompts {
            let picked = pool.try_pick(&text(number, length));
            prop_assert_eq!(picked.map(|place| pool.engines.0[place].standing), best);
        }
    }
}
