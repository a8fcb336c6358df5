use proptest::prelude::*;

use super::*;
use crate::retry::RetryValues;

const A: EngineId = EngineId::new(1);
const B: EngineId = EngineId::new(2);
const C: EngineId = EngineId::new(3);

fn config(max_retries: u64) -> RetryConfig {
    RetryConfig::try_new(RetryValues {
        max_retries,
        initial_backoff_ms: 100,
        max_backoff_ms: 1000,
        backoff_multiplier: 2.0,
        jitter_factor: 0.0,
    })
    .unwrap()
}

fn request(max_retries: u64) -> Attempts {
    Attempts::new(Some(&config(max_retries)), Resend::Always)
}

fn refused() -> Outcome {
    Outcome::Failed(Failure::Connect)
}

fn wait(next: Next) -> u64 {
    match next {
        Next::Retry { backoff, .. } => u64::try_from(backoff.as_millis()).unwrap(),
        Next::Stop(reason) => panic!("stopped: {reason:?}"),
    }
}

#[test]
fn retries_off_is_one_attempt_whatever_happens() {
    for outcome in [
        Outcome::Status(503),
        refused(),
        Outcome::Failed(Failure::Closed),
    ] {
        let mut off = Attempts::new(None, Resend::Always);
        off.begin(A);
        assert_eq!(
            off.after(outcome, &[A, B], 0.5),
            Next::Stop(StopReason::RetriesOff)
        );
    }
}

#[test]
fn every_other_status_is_final() {
    for status in [
        200, 201, 204, 301, 400, 401, 404, 409, 413, 425, 501, 505, 529, 599,
    ] {
        let mut attempts = request(5);
        attempts.begin(A);
        assert_eq!(
            attempts.after(Outcome::Status(status), &[A, B], 0.5),
            Next::Stop(StopReason::Answered),
            "{status}"
        );
    }
}

#[test]
fn a_retryable_status_keeps_the_engine_and_waits() {
    let mut attempts = request(5);
    attempts.begin(A);
    let next = attempts.after(Outcome::Status(503), &[A], 0.5);
    assert_eq!(
        next,
        Next::Retry {
            backoff: Duration::from_millis(100),
            reason: RetryReason::Status(503)
        }
    );
    assert_eq!(attempts.standing(A), Standing::Last);
}

#[test]
fn the_engine_that_just_answered_is_last_only_until_another_one_answers() {
    let mut attempts = request(5);
    attempts.begin(A);
    attempts.after(Outcome::Status(503), &[A, B], 0.5);
    assert_eq!(
        (attempts.standing(A), attempts.standing(B)),
        (Standing::Last, Standing::Eligible)
    );
    attempts.begin(B);
    attempts.after(Outcome::Status(429), &[A, B], 0.5);
    assert_eq!(
        (attempts.standing(A), attempts.standing(B)),
        (Standing::Eligible, Standing::Last)
    );
}

#[test]
fn a_transport_failure_excludes_the_engine_and_never_waits_while_another_is_left() {
    for failure in Failure::ALL {
        let mut attempts = request(5);
        attempts.begin(A);
        assert_eq!(
            wait(attempts.after(Outcome::Failed(failure), &[A, B], 0.5)),
            0
        );
        assert_eq!(
            (attempts.standing(A), attempts.standing(B)),
            (Standing::Excluded, Standing::Eligible)
        );
    }
}

#[test]
fn with_every_engine_excluded_one_backoff_gives_the_pool_another_chance() {
    let pool = [A, B];
    let mut attempts = request(10);
    let mut waits = Vec::new();
    for engine in [A, B, B, A, A] {
        attempts.begin(engine);
        waits.push(wait(attempts.after(refused(), &pool, 0.5)));
    }
    assert_eq!(waits, [0, 100, 0, 200, 0]);
    assert_eq!(attempts.standing(B), Standing::Eligible);
}

#[test]
fn a_lone_refusing_engine_is_tried_max_retries_times_with_growing_gaps() {
    let mut attempts = request(5);
    let mut waits = Vec::new();
    for _ in 0..4 {
        attempts.begin(A);
        waits.push(wait(attempts.after(refused(), &[A], 0.5)));
    }
    assert_eq!(waits, [100, 200, 400, 800]);
    attempts.begin(A);
    assert_eq!(
        attempts.after(refused(), &[A], 0.5),
        Next::Stop(StopReason::BudgetSpent)
    );
    assert_eq!(attempts.spent(), 5);
}

#[test]
fn one_budget_counts_both_kinds_of_failure() {
    let mut attempts = request(4);
    attempts.begin(A);
    assert_eq!(wait(attempts.after(refused(), &[A, B], 0.5)), 0);
    attempts.begin(B);
    assert_eq!(
        wait(attempts.after(Outcome::Status(503), &[A, B], 0.5)),
        100
    );
    attempts.begin(B);
    assert_eq!(
        wait(attempts.after(Outcome::Status(503), &[A, B], 0.5)),
        200
    );
    attempts.begin(B);
    assert_eq!(
        attempts.after(Outcome::Status(503), &[A, B], 0.5),
        Next::Stop(StopReason::BudgetSpent)
    );
    assert_eq!(attempts.standing(A), Standing::Excluded);
}

#[test]
fn a_status_backoff_does_not_clear_the_exclusions() {
    let mut attempts = request(5);
    attempts.begin(A);
    attempts.after(refused(), &[A, B], 0.5);
    attempts.begin(B);
    attempts.after(Outcome::Status(500), &[A, B], 0.5);
    assert_eq!(
        (attempts.standing(A), attempts.standing(B)),
        (Standing::Excluded, Standing::Last)
    );
}

#[test]
fn nothing_follows_a_committed_answer_or_a_client_that_left() {
    for (outcome, reason) in [
        (Outcome::Cut, StopReason::Committed),
        (Outcome::ClientGone, StopReason::ClientGone),
    ] {
        let mut attempts = request(5);
        attempts.begin(A);
        assert_eq!(attempts.after(outcome, &[A, B, C], 0.5), Next::Stop(reason));
    }
}

#[test]
fn a_state_changing_call_is_sent_again_only_if_the_connect_failed() {
    let new = || Attempts::new(Some(&config(5)), Resend::ConnectOnly);
    for failure in Failure::ALL {
        let mut attempts = new();
        attempts.begin(A);
        let next = attempts.after(Outcome::Failed(failure), &[A, B], 0.5);
        if matches!(failure, Failure::Connect | Failure::ConnectTimeout) {
            assert_eq!(wait(next), 0, "{failure:?}");
        } else {
            assert_eq!(next, Next::Stop(StopReason::NotRepeatable), "{failure:?}");
        }
    }
    let mut attempts = new();
    attempts.begin(A);
    assert_eq!(
        attempts.after(Outcome::Status(503), &[A, B], 0.5),
        Next::Stop(StopReason::NotRepeatable)
    );
}

#[test]
fn a_denied_model_is_asked_for_at_another_engine_at_once() {
    let at_once = Next::Retry {
        backoff: Duration::ZERO,
        reason: RetryReason::NotServed,
    };
    let mut attempts = request(5);
    attempts.begin(A);
    assert_eq!(attempts.after(Outcome::NotServed, &[A, B, C], 0.5), at_once);
    assert_eq!(attempts.standing(A), Standing::Excluded);
    // The engines may have changed meanwhile.
    attempts.begin(B);
    assert_eq!(attempts.after(Outcome::NotServed, &[C], 0.5), at_once);
    attempts.begin(C);
    assert_eq!(
        attempts.after(Outcome::NotServed, &[A, B, C], 0.5),
        Next::Stop(StopReason::Answered),
        "nobody else is thought to serve it"
    );
}

#[test]
fn a_denied_model_is_final_where_no_other_attempt_may_follow() {
    let last = |mut attempts: Attempts, pool: &[EngineId]| {
        attempts.begin(A);
        attempts.after(Outcome::NotServed, pool, 0.5)
    };
    let config = config(2);
    let answered = Next::Stop(StopReason::Answered);
    assert_eq!(last(request(5), &[A]), answered);
    assert_eq!(last(request(5), &[]), answered);
    assert_eq!(last(Attempts::new(None, Resend::Always), &[A, B]), answered);
    let changing = Attempts::new(Some(&config), Resend::ConnectOnly);
    assert_eq!(last(changing, &[A, B]), answered);
    let mut spent = request(2);
    spent.begin(B);
    assert_eq!(wait(spent.after(refused(), &[A, B, C], 0.5)), 0);
    assert_eq!(last(spent, &[A, B, C]), Next::Stop(StopReason::BudgetSpent));
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        prop::sample::select(vec![408u16, 429, 500, 502, 503, 504]).prop_map(Outcome::Status),
        prop::sample::select(Failure::ALL.to_vec()).prop_map(Outcome::Failed),
    ]
}

proptest! {
    /// Walks a request through random failures, always picking the best standing there is.
    #[test]
    fn a_walk_keeps_every_rule(
        max_retries in 2..60u64,
        engines in 1..6u32,
        outcomes in prop::collection::vec(outcome(), 60),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 60),
    ) {
        let pool: Vec<_> = (0..engines).map(EngineId::new).collect();
        let mut attempts = request(max_retries);
        let (mut made, mut excluded) = (0, Vec::new());
        for (outcome, pick) in outcomes.into_iter().zip(picks) {
            let standing = |s| pool.iter().copied().filter(|e| attempts.standing(*e) == s)
                .collect::<Vec<_>>();
            let (eligible, last) = (standing(Standing::Eligible), standing(Standing::Last));
            let choice = if eligible.is_empty() { last } else { eligible };
            prop_assert!(!choice.is_empty(), "somebody can always be picked");
            let engine = *pick.get(&choice);
            prop_assert!(!excluded.contains(&engine));
            attempts.begin(engine);
            made += 1;
            match attempts.after(outcome, &pool, 0.5) {
                Next::Stop(reason) => {
                    prop_assert_eq!(reason, StopReason::BudgetSpent);
                    prop_assert_eq!(made, max_retries);
                    return Ok(());
                }
                Next::Retry { backoff, .. } => {
                    prop_assert!(made < max_retries);
                    if let Outcome::Failed(_) = outcome {
                        excluded.push(engine);
                        prop_assert_eq!(backoff.is_zero(), excluded.len() < pool.len());
                        if !backoff.is_zero() {
                            excluded.clear();
                        }
                    } else {
                        prop_assert!(!backoff.is_zero());
                    }
                }
            }
        }
        prop_assert!(made < max_retries);
    }
}
