use super::super::mock::{Mocks, with_members};
use super::*;
use Standing::{Eligible, Excluded, Last};

const FIRST: Ask<'static> = Ask {
    again: false,
    session: None,
    prompt: None,
    draw: 0,
    now: std::time::Duration::ZERO,
};
const AGAIN: Ask<'static> = Ask {
    again: true,
    ..FIRST
};

fn logic(weights: &[u32]) -> RoundRobin {
    with_members(weights, |members| RoundRobin::new(members, None))
}

#[test]
fn any_n_consecutive_requests_hit_each_of_n_engines_once() {
    let (logic, engines) = (logic(&[1; 7]), Mocks::idle(7));
    let picks: Vec<_> = (0..50)
        .filter_map(|_| logic.pick(&FIRST, &engines))
        .collect();
    for window in picks.windows(7) {
        let mut seen = window.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 6]);
    }
}

#[test]
fn engines_that_are_left_out_do_not_disturb_the_turn_of_the_others() {
    let logic = logic(&[1; 5]);
    let engines = Mocks::standing(&[Eligible, Excluded, Excluded, Eligible, Eligible]);
    let picks: Vec<_> = (0..30)
        .filter_map(|_| logic.pick(&FIRST, &engines))
        .collect();
    for window in picks.windows(3) {
        let mut seen = window.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, [0, 3, 4]);
    }
}

#[test]
fn the_turn_is_exact_for_threads_that_pick_at_once() {
    let (logic, engines) = (logic(&[1; 10]), Mocks::idle(10));
    let picks = std::thread::scope(|scope| {
        let pick = || {
            (0..1000)
                .filter_map(|_| logic.pick(&FIRST, &engines))
                .collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(pick)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut hits = [0; 10];
    for place in picks {
        hits[place] += 1;
    }
    assert_eq!(hits, [400; 10]);
}

#[test]
fn an_empty_pool_has_nobody_to_pick() {
    let (logic, nobody) = (logic(&[]), Mocks::idle(0));
    assert_eq!(logic.pick(&FIRST, &nobody), None);
    assert_eq!(logic.pick(&AGAIN, &nobody), None);
}

#[test]
fn further_attempts_spread_over_the_engines_that_are_left() {
    let logic = logic(&[1; 4]);
    let engines = Mocks::standing(&[Eligible, Excluded, Eligible, Last]);
    let mut hits = [0; 4];
    for _ in 0..100 {
        hits[logic.pick(&AGAIN, &engines).unwrap()] += 1;
    }
    assert_eq!(hits, [50, 0, 50, 0]);
}

#[test]
fn the_engine_that_just_answered_is_picked_only_where_no_other_is_left() {
    let logic = logic(&[1; 2]);
    assert_eq!(
        logic.pick(&AGAIN, &Mocks::standing(&[Excluded, Last])),
        Some(1)
    );
    assert_eq!(
        logic.pick(&AGAIN, &Mocks::standing(&[Excluded, Excluded])),
        None
    );
}

#[test]
fn further_attempts_do_not_move_the_turn_of_first_ones() {
    let (logic, engines) = (logic(&[1; 3]), Mocks::idle(3));
    assert_eq!(logic.pick(&FIRST, &engines), Some(0));
    logic.pick(&AGAIN, &engines);
    assert_eq!(logic.pick(&FIRST, &engines), Some(1));
}

#[test]
fn weights_are_shares_of_a_round_and_lie_apart() {
    let (logic, engines) = (logic(&[4, 2, 2]), Mocks::idle(3));
    let picks: Vec<_> = (0..400)
        .filter_map(|_| logic.pick(&FIRST, &engines))
        .collect();
    for window in picks.windows(4) {
        let heavy = window.iter().filter(|place| **place == 0).count();
        assert_eq!(heavy, 2, "{window:?}");
    }
    let second = picks.iter().filter(|place| **place == 1).count();
    assert_eq!(second, 100);
}

#[test]
fn weights_that_ask_for_a_long_round_are_scaled_down() {
    let logic = logic(&[999_983, 1, 500_000]);
    assert!(logic.round.len() as u64 <= LONGEST_ROUND + 3);
    assert!(logic.round.contains(&1), "nobody loses its turn");
}

#[test]
fn the_turn_survives_a_change_of_the_pool() {
    let before = logic(&[1; 3]);
    before.pick(&FIRST, &Mocks::idle(3));
    let after = with_members(&[1; 4], |members| RoundRobin::new(members, Some(&before)));
    assert_eq!(after.pick(&FIRST, &Mocks::idle(4)), Some(1));
    assert_eq!(
        before.pick(&FIRST, &Mocks::idle(3)),
        Some(2),
        "one turn for both"
    );
}
