use super::super::mock::{Mocks, with_members};
use super::*;

fn logic(weights: &[u32]) -> Session {
    with_members(weights, Session::new)
}

fn home(logic: &Session, engines: &Mocks, session: &str) -> usize {
    let ask = Ask {
        session: Some(session),
        ..Ask::default()
    };
    logic.pick(&ask, engines).unwrap()
}

fn homes(engines: usize, sessions: usize) -> Vec<usize> {
    let (logic, idle) = (logic(&vec![1; engines]), Mocks::idle(engines));
    (0..sessions)
        .map(|n| home(&logic, &idle, &format!("session-{n}")))
        .collect()
}

#[test]
fn a_session_keeps_its_engine() {
    assert_eq!(homes(10, 500), homes(10, 500));
}

#[test]
fn sessions_spread_over_all_engines() {
    let homes = homes(10, 10_000);
    for engine in 0..10 {
        let share = homes.iter().filter(|home| **home == engine).count();
        assert!((700..1300).contains(&share), "{engine}: {share}");
    }
}

#[test]
fn a_tenth_engine_takes_a_tenth_of_the_sessions_and_moves_no_other() {
    let (before, after) = (homes(9, 10_000), homes(10, 10_000));
    let moved: Vec<_> = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .collect();
    assert!((700..1300).contains(&moved.len()), "{}", moved.len());
    assert!(moved.iter().all(|(_, after)| **after == 9));
}

#[test]
fn losing_an_engine_moves_its_sessions_only() {
    let (logic, all) = (logic(&[1; 10]), Mocks::idle(10));
    let mut without = all.clone();
    without.0[3].standing = Standing::Excluded;
    for n in 0..5000 {
        let session = format!("session-{n}");
        let (before, after) = (
            home(&logic, &all, &session),
            home(&logic, &without, &session),
        );
        assert!(after != 3);
        assert!(before == 3 || before == after);
    }
}

#[test]
fn no_engine_gets_more_than_a_quarter_above_the_mean() {
    let (logic, mut engines) = (logic(&[1; 8]), Mocks::idle(8));
    // One session asks for far more than its share.
    for n in 1..=800usize {
        let session = if n % 2 == 0 {
            "loud".to_owned()
        } else {
            format!("quiet-{n}")
        };
        let place = home(&logic, &engines, &session);
        engines.0[place].placed += 1;
        let bound = (5 * n).div_ceil(4 * 8);
        for engine in &engines.0 {
            assert!(engine.placed <= bound, "{} of {n}", engine.placed);
        }
    }
}

#[test]
fn heavier_engines_have_more_sessions_and_more_room() {
    let (logic, engines) = (logic(&[10, 30]), Mocks::idle(2));
    let heavy = (0..4000)
        .filter(|n| home(&logic, &engines, &format!("s{n}")) == 1)
        .count();
    assert!((2700..3300).contains(&heavy), "{heavy}");
    assert_eq!((logic.most(0, 99), logic.most(1, 99)), (32, 94));
}

#[test]
fn without_a_session_the_less_busy_engine_is_picked() {
    let logic = logic(&[1, 1]);
    let engines = Mocks::loaded(&[5.0, 1.0]);
    for draw in 0..100 {
        let ask = Ask {
            draw: draw * 0x1234_5678_9ABC,
            ..Ask::default()
        };
        assert_eq!(logic.pick(&ask, &engines), Some(1));
    }
}

#[test]
fn where_nobody_is_eligible_the_one_that_answered_last_is_asked_and_the_excluded_never() {
    let logic = logic(&[1, 1]);
    let engines = Mocks::standing(&[Standing::Excluded, Standing::Last]);
    assert_eq!(home(&logic, &engines, "s"), 1);
    let engines = Mocks::standing(&[Standing::Excluded, Standing::Excluded]);
    assert_eq!(
        logic.pick(
            &Ask {
                session: Some("s"),
                ..Ask::default()
            },
            &engines
        ),
        None
    );
}
