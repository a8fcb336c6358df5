//! What the router is to keep to, relative to others where it can be.

use super::figures::{Figures, What};
use super::plan::Load;
use super::subject::Subject;

/// Something it is to keep to.
#[derive(Clone, Debug)]
pub struct Goal {
    pub load: Load,
    pub told: String,
    pub found: f64,
    pub at_most: f64,
    pub unit: &'static str,
}

/// What a request may cost, compared to what it costs others.
const AGAINST: [(Subject, f64); 5] = [
    (Subject::Pingora, 1.15),
    (Subject::Envoy, 0.70),
    (Subject::VllmRouter, 0.60),
    (Subject::Smg, 0.35),
    (Subject::ProductionStack, 0.05),
];
/// The same for an event, and for a request with a long prompt.
const EVENT: f64 = 1.10;
const LONG: f64 = 1.5;
/// What the access log may add, and what an attempt may cost where some are refused.
const ACCESS_LOG: f64 = 1.05;
const ATTEMPT: f64 = 1.25;
/// KiB a stream may hold, and may grow by while tokens pass: as little as can be told from noise.
const HELD: f64 = 48.0;
const GROWN: f64 = 1.0;
/// Microseconds it may add to a wait.
const ADDED: [(What, &str, f64); 2] = [(What::P50, "p50", 150.0), (What::P99, "p99", 1000.0)];
/// Milliseconds to the first answer.
const START: f64 = 100.0;

/// How much of its part of the limit each ratio has found; those that were not measured are left
/// out.
pub fn goals(figures: &Figures) -> Vec<Goal> {
    let on = Subject::OursOn;
    let ratio = |load, one: Subject, other: (Load, Subject)| {
        let (other_load, other) = other;
        let one = (load, one, What::Cpu);
        figures.paired(one, (other_load, other, What::Cpu), |one, other| {
            one / other
        })
    };
    let mut goals = Vec::new();
    let mut add = |load, told: String, found: Option<f64>, at_most, unit| {
        goals.extend(found.map(|found| Goal {
            load,
            told,
            found,
            at_most,
            unit,
        }));
    };
    for (peer, at_most) in AGAINST {
        let told = format!("processor time per request, against {}", peer.word());
        let found = ratio(Load::Chat, on, (Load::Chat, peer));
        add(Load::Chat, told, found, at_most, "");
    }
    let found = ratio(Load::Chat, Subject::OursLog, (Load::Chat, on));
    let told = "the same with the access log, against without".to_owned();
    add(Load::Chat, told, found, ACCESS_LOG, "");
    let smallest = Subject::Pingora;
    let told = "processor time per event, against pingora".to_owned();
    let found = ratio(Load::Stream, on, (Load::Stream, smallest));
    add(Load::Stream, told, found, EVENT, "");
    let told = "processor time per request, against pingora".to_owned();
    let found = ratio(Load::Long, on, (Load::Long, smallest));
    add(Load::Long, told, found, LONG, "");
    let told = "processor time per attempt, against one of (a)".to_owned();
    let found = ratio(Load::Refusals, on, (Load::Chat, on));
    add(Load::Refusals, told, found, ATTEMPT, "");
    let memory = |what| figures.median(Load::Idle, on, what).map(|it| it / 1024.0);
    let told = "memory per open stream".to_owned();
    add(Load::Idle, told, memory(What::Held), HELD, " KiB");
    let told = "memory that grows with tokens, per stream".to_owned();
    add(Load::Idle, told, memory(What::Grown), GROWN, " KiB");
    for (what, word, at_most) in ADDED {
        let (one, other) = (on, Subject::Direct);
        let one = (Load::Paced, one, what);
        let found = figures.paired(one, (Load::Paced, other, what), |one, other| one - other);
        add(
            Load::Paced,
            format!("added to a wait, {word}"),
            found,
            at_most,
            " µs",
        );
    }
    let found = figures.median(Load::Chat, on, What::Start);
    let found = found.map(|micros| micros / 1e3);
    let told = "from the start of the process to the first answer".to_owned();
    add(Load::Chat, told, found, START, " ms");
    goals
}

impl Goal {
    /// Whether it is kept.
    pub fn is_kept(&self) -> bool {
        self.found <= self.at_most
    }
}
