use super::*;

const LIMITS: HealthLimits = HealthLimits {
    failures: 3,
    first_pause: secs(1),
    longest_pause: secs(60),
    is_probed: true,
    rise: 2,
    fall: 3,
    inference_fall: Some(2),
    slow_start: secs(10),
    most_out: 0.5,
};
/// A draw that leaves pauses as they are.
const EVEN: f64 = 0.5;

const WELL: Finding = Finding::Well { asleep: None };

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn fail(health: &mut Health, times: u32, now: Duration) -> bool {
    (0..times).any(|_| health.failed(&LIMITS, Failure::Connect, now, EVEN))
}

/// One that has worked.
fn known() -> Health {
    let mut health = Health::default();
    health.worked();
    health
}

fn ejected(failure: Failure, now: Duration) -> Health {
    let mut health = known();
    for _ in 0..3 {
        health.failed(&LIMITS, failure, now, EVEN);
    }
    health
}

fn found(passed: bool) -> Finding {
    if passed { WELL } else { Finding::Unwell }
}

#[test]
fn failures_in_a_row_take_an_engine_out() {
    let mut health = known();
    assert!(!fail(&mut health, 2, secs(1)));
    assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Fit);
    assert!(!health.answered(&LIMITS, 200, secs(1), EVEN));
    assert!(
        !fail(&mut health, 2, secs(2)),
        "an answer between starts the row anew"
    );
    assert!(fail(&mut health, 1, secs(2)));
    assert_eq!(health.fitness(&LIMITS, secs(2)), Fitness::Out);
    assert_eq!(
        health.condition(),
        (Condition::Ejected(Failure::Connect), secs(2))
    );
}

#[test]
fn no_status_takes_an_engine_out() {
    let mut health = known();
    for status in [400, 401, 404, 408, 429, 502, 503, 504, 501] {
        for _ in 0..50 {
            assert!(!health.answered(&LIMITS, status, secs(1), EVEN));
            assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Fit, "{status}");
        }
    }
}

#[test]
fn an_engine_that_is_out_gets_one_trial_after_each_pause() {
    let mut health = ejected(Failure::FirstByteTimeout, secs(0));
    assert_eq!(
        health.fitness(&LIMITS, Duration::from_millis(999)),
        Fitness::Out
    );
    let mut now = secs(1);
    for pause in [2, 4, 8, 16, 32, 60, 60, 60] {
        assert_eq!(health.fitness(&LIMITS, now), Fitness::Trial);
        health.trial_begins(&LIMITS, now);
        assert_eq!(health.fitness(&LIMITS, now), Fitness::Out, "one at a time");
        assert!(!health.failed(&LIMITS, Failure::FirstByteTimeout, now, EVEN));
        assert_eq!(health.fitness(&LIMITS, now + secs(pause - 1)), Fitness::Out);
        now += secs(pause);
    }
    health.trial_begins(&LIMITS, now);
    assert!(
        health.answered(&LIMITS, 503, now, EVEN),
        "any answer will do"
    );
    assert_eq!(health.condition().0, Condition::Up);
    // The pauses start anew.
    fail(&mut health, 3, now);
    assert_eq!(health.fitness(&LIMITS, now + secs(1)), Fitness::Trial);
}

#[test]
fn a_trial_nobody_saw_the_end_of_is_followed_by_another() {
    let mut health = ejected(Failure::Closed, secs(0));
    health.trial_begins(&LIMITS, secs(1));
    assert_eq!(health.fitness(&LIMITS, secs(2)), Fitness::Trial);
}

#[test]
fn requests_that_were_on_their_way_do_not_lengthen_the_pause() {
    let mut health = ejected(Failure::Closed, secs(0));
    fail(&mut health, 100, secs(0));
    assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Trial);
}

#[test]
fn without_a_limit_failures_take_nobody_out() {
    let limits = HealthLimits {
        failures: 0,
        ..LIMITS
    };
    let mut health = known();
    for _ in 0..1000 {
        assert!(!health.failed(&limits, Failure::Connect, secs(0), EVEN));
    }
    assert_eq!(health.fitness(&limits, secs(0)), Fitness::Fit);
}

#[test]
fn probes_in_a_row_take_an_engine_out_and_let_it_back_in() {
    let mut health = known();
    let mut probe = |passed, at| health.probed(&LIMITS, found(passed), false, secs(at));
    assert_eq!([1, 2].map(|at| probe(false, at)), [false; 2]);
    assert!(!probe(true, 3));
    assert_eq!(
        [4, 5, 6, 7].map(|at| probe(false, at)),
        [false, false, true, false]
    );
    assert_eq!([8, 9].map(|at| probe(true, at)), [false, true]);
    assert_eq!(health.condition(), (Condition::Up, secs(9)));
}

#[test]
fn a_busy_engine_may_be_slow_to_answer_probes() {
    let mut health = known();
    for at in 0..20 {
        assert!(!health.probed(&LIMITS, Finding::Unwell, true, secs(at)));
    }
    assert_eq!(health.fitness(&LIMITS, secs(20)), Fitness::Fit);
}

#[test]
fn a_probe_lets_in_who_refused_but_not_who_was_silent() {
    for (failure, back) in [
        (Failure::Connect, true),
        (Failure::ConnectTimeout, true),
        (Failure::FirstByteTimeout, false),
        (Failure::ClosedAfterHead, false),
    ] {
        let mut health = ejected(failure, secs(0));
        health.probed(&LIMITS, WELL, false, secs(0));
        assert_eq!(
            health.probed(&LIMITS, WELL, false, secs(0)),
            back,
            "{failure:?}"
        );
    }
}

#[test]
fn an_engine_that_comes_back_warms_up() {
    let mut health = ejected(Failure::Connect, secs(0));
    health.answered(&LIMITS, 200, secs(100), EVEN);
    for (at, fitness) in [
        (100, Fitness::Warming(0.1)),
        (105, Fitness::Warming(0.5)),
        (109, Fitness::Warming(0.9)),
        (110, Fitness::Fit),
    ] {
        assert_eq!(health.fitness(&LIMITS, secs(at)), fitness);
    }
    let at_once = HealthLimits {
        slow_start: Duration::ZERO,
        ..LIMITS
    };
    assert_eq!(health.fitness(&at_once, secs(100)), Fitness::Fit);
    assert_eq!(
        known().fitness(&LIMITS, secs(0)),
        Fitness::Fit,
        "not at the start"
    );
}

#[test]
fn an_engine_that_says_nothing_but_500_is_picked_last_for_a_while() {
    let mut health = known();
    let mut says = |status, at| health.answered(&LIMITS, status, secs(at), EVEN);
    assert_eq!(
        [500, 500, 500, 500, 200].map(|status| says(status, 0)),
        [false; 5]
    );
    assert_eq!(
        [500, 500, 500, 500, 500].map(|status| says(status, 1)),
        [false, false, false, false, true]
    );
    assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Last);
    assert_eq!(health.fitness(&LIMITS, secs(2)), Fitness::Fit);
    // Again, and for longer.
    health.answered(&LIMITS, 500, secs(2), EVEN);
    assert_eq!(health.fitness(&LIMITS, secs(3)), Fitness::Last);
    assert_eq!(health.fitness(&LIMITS, secs(4)), Fitness::Fit);
    assert!(health.answered(&LIMITS, 200, secs(4), EVEN));
    assert_eq!(
        health.fitness(&LIMITS, secs(4)),
        Fitness::Fit,
        "no need to warm up"
    );
}

#[test]
fn probes_that_passed_before_do_not_let_an_engine_back_in() {
    let mut health = known();
    for _ in 0..10 {
        health.probed(&LIMITS, WELL, false, secs(0));
    }
    fail(&mut health, 3, secs(1));
    assert!(!health.probed(&LIMITS, WELL, false, secs(2)), "one of two");
    assert!(health.probed(&LIMITS, WELL, false, secs(3)));
}

#[test]
fn an_engine_that_never_worked_and_takes_no_connection_is_starting() {
    for failure in [Failure::Connect, Failure::ConnectTimeout] {
        let starting = Condition::Starting(Unready::Unreachable(failure));
        let by_request = |health: &mut Health| health.failed(&LIMITS, failure, secs(1), EVEN);
        let by_probe = |health: &mut Health| {
            health.probed(&LIMITS, Finding::Unreachable(failure), false, secs(1))
        };
        let by_question = |health: &mut Health| health.unreachable(failure, secs(1));
        let ways: [&dyn Fn(&mut Health) -> bool; 3] = [&by_request, &by_probe, &by_question];
        for way in ways {
            let mut health = Health::default();
            assert!(way(&mut health), "the first time says it");
            assert!(!ways.iter().any(|way| way(&mut health)));
            assert_eq!(health.condition(), (starting, secs(1)));
            assert_eq!(health.fitness(&LIMITS, secs(9999)), Fitness::NotYet);
            // Once it is back, it has worked.
            assert!(!health.probed(&LIMITS, WELL, false, secs(2)));
            health.worked();
            assert!(health.probed(&LIMITS, WELL, false, secs(3)));
            assert_eq!(health.fitness(&LIMITS, secs(3)), Fitness::Warming(0.1));
            assert!(!way(&mut health));
            assert_eq!(health.condition().0, Condition::Up);
        }
    }
}

#[test]
fn an_engine_that_never_worked_and_takes_connections_fails_as_any_other() {
    let mut health = Health::default();
    let fails = |health: &mut Health| health.failed(&LIMITS, Failure::Closed, secs(1), EVEN);
    assert_eq!([0; 3].map(|_| fails(&mut health)), [false, false, true]);
    assert_eq!(health.condition().0, Condition::Ejected(Failure::Closed));
    let mut health = Health::default();
    let unwell = |health: &mut Health| health.probed(&LIMITS, Finding::Unwell, false, secs(1));
    assert_eq!([0; 3].map(|_| unwell(&mut health)), [false, false, true]);
    assert_eq!(health.condition().0, Condition::Down(Check::Health));
}

#[test]
fn without_probes_requests_find_out_that_an_engine_has_started() {
    let limits = HealthLimits {
        is_probed: false,
        ..LIMITS
    };
    let mut health = Health::default();
    assert!(health.failed(&limits, Failure::Connect, secs(0), EVEN));
    for (at, again) in [(1000, 3000), (3000, 7000)] {
        assert_eq!(health.fitness(&limits, ms(at - 1)), Fitness::NotYet);
        assert_eq!(health.fitness(&limits, ms(at)), Fitness::Trial);
        health.trial_begins(&limits, ms(at));
        assert!(!health.failed(&limits, Failure::Connect, ms(at), EVEN));
        assert_eq!(health.fitness(&limits, ms(again - 1)), Fitness::NotYet);
    }
    health.trial_begins(&limits, secs(7));
    assert!(health.answered(&limits, 200, secs(7), EVEN));
}

#[test]
fn an_engine_that_lists_no_model_is_starting_until_it_does() {
    let mut health = Health::default();
    assert!(health.listed(false, secs(1)));
    let starting = Condition::Starting(Unready::NoModels);
    for at in 2..10 {
        assert!(!health.listed(false, secs(at)));
        assert!(!health.probed(&LIMITS, WELL, false, secs(at)));
        assert_eq!(health.condition(), (starting, secs(1)));
    }
    assert!(health.listed(true, secs(10)));
    assert_eq!(health.condition(), (Condition::Up, secs(10)));
    // An engine may drop its last model.
    assert!(!health.listed(false, secs(11)));
}

#[test]
fn with_requests_that_take_nobody_out_an_engine_that_starts_is_found_by_its_probes() {
    let limits = HealthLimits {
        failures: 0,
        ..LIMITS
    };
    let mut health = Health::default();
    assert!(!health.failed(&limits, Failure::Connect, secs(0), EVEN));
    let absent = Finding::Unreachable(Failure::Connect);
    assert!(health.probed(&limits, absent, false, secs(1)));
}

#[test]
fn an_engine_that_sleeps_is_asked_for_nothing_until_it_is_awake() {
    let conditions = [
        known(),
        Health::default(),
        ejected(Failure::FirstByteTimeout, secs(0)),
        ejected(Failure::Connect, secs(0)),
    ];
    for mut health in conditions {
        let asleep = Finding::Well { asleep: Some(true) };
        assert!(health.probed(&LIMITS, asleep, false, secs(1)));
        assert_eq!(health.condition(), (Condition::Sleeping, secs(1)));
        // What was on its way when it fell asleep ends somehow.
        for _ in 0..10 {
            assert!(!health.answered(&LIMITS, 200, secs(2), EVEN));
            assert!(!health.failed(&LIMITS, Failure::FirstByteTimeout, secs(2), EVEN));
            assert!(
                !health.probed(&LIMITS, WELL, false, secs(2)),
                "it did not say"
            );
        }
        assert_eq!(health.fitness(&LIMITS, secs(9999)), Fitness::Asleep);
        let awake = Finding::Well {
            asleep: Some(false),
        };
        assert!(health.probed(&LIMITS, awake, false, secs(3)));
        assert_eq!(health.fitness(&LIMITS, secs(3)), Fitness::Warming(0.1));
        assert!(!health.probed(&LIMITS, awake, false, secs(4)));
        assert!(!health.sleeps(false, secs(4)));
    }
}

#[test]
fn an_engine_that_ends_in_its_sleep_is_down() {
    let mut health = known();
    assert!(health.sleeps(true, secs(0)));
    let mut probe = |found, at| health.probed(&LIMITS, found, false, secs(at));
    let absent = Finding::Unreachable(Failure::Connect);
    assert_eq!([1, 2, 3].map(|at| probe(absent, at)), [false, false, true]);
    assert_eq!([4, 5].map(|at| probe(WELL, at)), [false, true]);
    assert_eq!(health.condition(), (Condition::Up, secs(5)));
}

#[test]
fn probes_by_inference_find_an_engine_that_only_says_that_it_is_well() {
    let mut health = known();
    let infer = |health: &mut Health, works, at| health.inferred(&LIMITS, works, false, secs(at));
    assert!(!infer(&mut health, false, 1));
    assert!(!infer(&mut health, true, 2));
    assert_eq!(
        [3, 4, 5].map(|at| infer(&mut health, false, at)),
        [false, true, false]
    );
    let down = Condition::Down(Check::Inference);
    assert_eq!(health.condition(), (down, secs(4)));
    // What a frozen engine's server can do by itself lets it in as little as it kept it from
    // being found out.
    for at in 5..50 {
        assert!(!health.probed(&LIMITS, WELL, false, secs(at)));
        assert!(!health.answered(&LIMITS, 400, secs(at), EVEN));
        assert!(!health.failed(&LIMITS, Failure::FirstByteTimeout, secs(at), EVEN));
        assert_eq!(health.fitness(&LIMITS, secs(at)), Fitness::Out);
    }
    assert!(infer(&mut health, true, 50));
    assert_eq!(health.condition(), (Condition::Up, secs(50)));
    assert_eq!(
        [51, 52].map(|at| infer(&mut health, false, at)),
        [false, true]
    );
    assert!(
        health.answered(&LIMITS, 200, secs(53), EVEN),
        "a real answer is as good"
    );
}

#[test]
fn a_busy_engine_may_be_slow_to_answer_probes_by_inference() {
    let mut health = known();
    for at in 0..20 {
        assert!(!health.inferred(&LIMITS, false, true, secs(at)));
    }
    assert!(!health.inferred(&LIMITS, false, false, secs(20)));
    health.answered(&LIMITS, 200, secs(21), EVEN);
    assert!(
        !health.inferred(&LIMITS, false, false, secs(22)),
        "a new row"
    );
}

#[test]
fn probes_by_inference_spare_requests_the_trials_of_a_silent_engine() {
    let mut health = ejected(Failure::FirstByteTimeout, secs(0));
    assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Trial);
    health.inferred(&LIMITS, false, false, secs(1));
    assert!(health.inferred(&LIMITS, false, false, secs(2)));
    assert_eq!(health.fitness(&LIMITS, secs(9999)), Fitness::Out);
    let mut health = ejected(Failure::FirstByteTimeout, secs(0));
    assert!(health.inferred(&LIMITS, true, false, secs(1)));
}

#[test]
fn an_engine_found_frozen_that_is_started_anew_is_back_with_its_probes() {
    let mut health = known();
    for at in [1, 2] {
        health.inferred(&LIMITS, false, false, secs(at));
    }
    for at in [3, 4, 5] {
        health.probed(
            &LIMITS,
            Finding::Unreachable(Failure::Connect),
            false,
            secs(at),
        );
    }
    assert_eq!(
        health.condition(),
        (Condition::Down(Check::Health), secs(2))
    );
    let well = [6, 7].map(|at| health.probed(&LIMITS, WELL, false, secs(at)));
    assert_eq!(well, [false, true]);
}

#[test]
fn where_probes_have_been_turned_off_requests_try_who_is_down() {
    let off = HealthLimits {
        is_probed: false,
        inference_fall: None,
        ..LIMITS
    };
    for check in [Check::Health, Check::Inference] {
        let mut health = known();
        for at in [0, 0, 0] {
            match check {
                Check::Health => health.probed(&LIMITS, Finding::Unwell, false, secs(at)),
                Check::Inference => health.inferred(&LIMITS, false, false, secs(at)),
            };
        }
        assert_eq!(health.condition().0, Condition::Down(check));
        assert_eq!(health.fitness(&LIMITS, secs(1)), Fitness::Out);
        assert_eq!(health.fitness(&off, secs(1)), Fitness::Trial);
        health.trial_begins(&off, secs(1));
        assert!(health.answered(&off, 200, secs(1), EVEN));
    }
}
