//! Decides what happens to each inference request: its fault, its length, its wait.
//!
//! Given: the behaviour, and how many requests were planned before. No clock, no socket, no dice:
//! every draw is a hash of the seed and the request's number, so the same seed and the same order
//! of requests give the same faults and lengths.
//!
//! A script decides alone; the shares are only drawn while there is none. Requests that the engine
//! refuses (wrong key, wrong model, broken JSON) are not planned and use up no step.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::behaviour::{Behaviour, BehaviourError};
use super::fault::{Break, Fault};

/// What happens to one request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// A number for ids, drawn from the seed.
    pub(super) id: u64,
    /// What goes wrong, if anything.
    pub(super) fault: Option<Fault>,
    /// The length of the answer if the request does not say.
    pub(super) tokens: u32,
    /// When tokens are due, counted from the moment the request runs.
    pub(super) pace: Pace,
}

/// When each token is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Wait before the first token.
    pub(super) ttft: Duration,
    /// Wait between two tokens.
    pub(super) gap: Duration,
}

/// Gives out plans in the order of requests.
#[derive(Debug)]
pub(super) struct Planner {
    behaviour: Arc<Behaviour>,
    planned: u64,
    script_at: usize,
}

/// How many tokens an answer has, and vLLM's word for why it ends there.
///
/// `wanted` is the length of the plan, `most` what the request allows. With `ignore_eos` an answer
/// always has as many tokens as the request allows.
pub(super) fn length(wanted: u32, most: Option<u32>, ignore_eos: bool) -> (u32, &'static str) {
    match most {
        Some(most) if ignore_eos || most <= wanted => (most, "length"),
        _ => (wanted, "stop"),
    }
}

// === impl Pace ===

impl Pace {
    /// When token number `n` is due, counted from 0.
    pub(super) fn due(&self, n: u32) -> Duration {
        self.ttft + self.gap * n
    }

    /// Whether nothing is ever waited for.
    pub(super) fn is_instant(&self) -> bool {
        self.ttft.is_zero() && self.gap.is_zero()
    }
}

// === impl Planner ===

impl Planner {
    pub(super) fn new(behaviour: Behaviour) -> Self {
        Self {
            behaviour: Arc::new(behaviour),
            planned: 0,
            script_at: 0,
        }
    }

    pub(super) fn behaviour(&self) -> Arc<Behaviour> {
        Arc::clone(&self.behaviour)
    }

    /// Changes the behaviour: a new script starts at its first step, a new seed at its first draw.
    ///
    /// # Errors
    /// As [`Behaviour::changed`]; nothing is changed then.
    pub(super) fn change(&mut self, change: &Value) -> Result<Arc<Behaviour>, BehaviourError> {
        self.behaviour = Arc::new(self.behaviour.changed(change)?);
        if change.get("script").is_some() {
            self.script_at = 0;
        }
        if change.get("seed").is_some() {
            self.planned = 0;
        }
        Ok(self.behaviour())
    }

    /// The plan of the next request, and the behaviour it was drawn from.
    pub(super) fn next(&mut self) -> (Plan, Arc<Behaviour>) {
        let behaviour = self.behaviour();
        let number = self.planned;
        self.planned = number.wrapping_add(1);
        let draw = |purpose| share(mix(behaviour.seed, number, purpose));

        let fault = match behaviour.script.get(self.script_at) {
            Some(step) => {
                self.script_at = (self.script_at + 1) % behaviour.script.len();
                *step
            }
            None => drawn_fault(&behaviour, draw(1)),
        };
        let (least, most) = behaviour.tokens;
        let span = u64::from(most - least) + 1;
        let more = u32::try_from(mix(behaviour.seed, number, 2) % span).unwrap_or(0);
        let jitter = 1.0 + behaviour.ttft_jitter * (2.0 * draw(3) - 1.0);
        let gap = if behaviour.tokens_per_second > 0.0 {
            Duration::from_secs_f64(1.0 / behaviour.tokens_per_second)
        } else {
            Duration::ZERO
        };
        let plan = Plan {
            id: mix(behaviour.seed, number, 4),
            fault,
            tokens: least + more,
            pace: Pace {
                ttft: Duration::from_secs_f64(behaviour.ttft_ms * jitter / 1000.0),
                gap,
            },
        };
        (plan, behaviour)
    }
}

fn drawn_fault(behaviour: &Behaviour, draw: f64) -> Option<Fault> {
    let fail = behaviour.fail_share;
    let reset = fail + behaviour.reset_share;
    let hang = reset + behaviour.hang_share;
    if draw < fail {
        Some(Fault::Status(behaviour.fail_status))
    } else if draw < reset {
        Some(Fault::Break(Break::Reset, behaviour.reset_at))
    } else if draw < hang {
        Some(Fault::Hang)
    } else {
        None
    }
}

/// Hashes seed, number and purpose into 64 even bits (the finisher of `SplitMix64`).
fn mix(seed: u64, number: u64, purpose: u64) -> u64 {
    let mut bits = seed
        .wrapping_mul(0xD6E8_FEB8_6659_FD93)
        .wrapping_add(number.wrapping_mul(8).wrapping_add(purpose))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// The upper bits as a number in `[0, 1)`.
fn share(bits: u64) -> f64 {
    f64::from(u32::try_from(bits >> 32).unwrap_or(0)) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn planner(json: &str) -> Planner {
        Planner::new(Behaviour::from_json(json).unwrap())
    }

    fn words(planner: &mut Planner, n: usize) -> Vec<String> {
        let word = |fault: Option<Fault>| fault.map_or("200".to_owned(), |it| it.to_string());
        (0..n).map(|_| word(planner.next().0.fault)).collect()
    }

    #[test]
    fn a_script_repeats_and_a_new_one_starts_at_its_first_step() {
        let mut planner = planner(r#"{"script":"503,hang,200","fail_share":1}"#);
        assert_eq!(
            words(&mut planner, 5),
            ["503", "hang", "200", "503", "hang"]
        );
        planner.change(&json!({"script": "500,200"})).unwrap();
        assert_eq!(words(&mut planner, 2), ["500", "200"]);
        planner.change(&json!({"ttft_ms": 1})).unwrap();
        assert_eq!(words(&mut planner, 1), ["500"]);
        planner.change(&json!({"script": ""})).unwrap();
        assert_eq!(words(&mut planner, 1), ["503"], "the share comes back");
    }

    #[test]
    fn the_same_seed_gives_the_same_plans_and_another_seed_others() {
        let shape = r#"{"seed":7,"fail_share":0.3,"reset_share":0.1,"hang_share":0.1,
                        "tokens":"1-1000","ttft_ms":100,"ttft_jitter":0.5}"#;
        let (mut one, mut two) = (planner(shape), planner(shape));
        let plans: Vec<Plan> = (0..100).map(|_| one.next().0).collect();
        assert_eq!(plans, (0..100).map(|_| two.next().0).collect::<Vec<_>>());
        one.change(&json!({"seed": 7})).unwrap();
        assert_eq!(plans, (0..100).map(|_| one.next().0).collect::<Vec<_>>());
        one.change(&json!({"seed": 8})).unwrap();
        assert_ne!(plans, (0..100).map(|_| one.next().0).collect::<Vec<_>>());
    }

    #[test]
    fn shares_lengths_and_waits_are_drawn_evenly() {
        let mut planner = planner(
            r#"{"fail_share":0.3,"reset_share":0.1,"tokens":"8-32","ttft_ms":100,"ttft_jitter":0.2}"#,
        );
        let plans: Vec<Plan> = (0..10_000).map(|_| planner.next().0).collect();
        let count = |fault| plans.iter().filter(|plan| plan.fault == fault).count();
        assert!((2_800..3_200).contains(&count(Some(Fault::Status(503)))));
        assert!((5_800..6_200).contains(&count(None)));
        assert!(plans.iter().all(|plan| (8..=32).contains(&plan.tokens)));
        assert!(
            [8, 32]
                .iter()
                .all(|n| plans.iter().any(|plan| plan.tokens == *n))
        );
        let wait = Duration::from_millis(80)..Duration::from_millis(120);
        assert!(plans.iter().all(|plan| wait.contains(&plan.pace.ttft)));
    }

    #[test]
    fn tokens_are_due_at_even_steps_after_the_first() {
        let pace = planner(r#"{"ttft_ms":200,"tokens_per_second":50}"#)
            .next()
            .0
            .pace;
        assert_eq!(pace.due(0), Duration::from_millis(200));
        assert_eq!(pace.due(3), Duration::from_millis(260));
        assert!(!pace.is_instant());
        assert!(planner("{}").next().0.pace.is_instant());
    }

    #[test]
    fn a_request_can_shorten_an_answer_and_fix_its_length() {
        assert_eq!(length(16, None, false), (16, "stop"));
        assert_eq!(length(16, Some(4), false), (4, "length"));
        assert_eq!(length(16, Some(100), false), (16, "stop"));
        assert_eq!(length(16, Some(100), true), (100, "length"));
        assert_eq!(length(16, None, true), (16, "stop"));
    }
}
