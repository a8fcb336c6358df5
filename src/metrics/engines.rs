//! Series of engines: how attempts on them end, and how they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry, Result,
};
use tokio::time::Instant;

use super::handles::Handles;
use super::names;
use super::register::{counters, gauges, histograms};
use crate::engines::{Condition, Engine};
use crate::record::Attempt;

/// How long the counts of an engine stay that is in the fleet no more: long enough for every scraper
/// to read the last ones.
const KEPT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
pub(super) struct Engines {
    attempts: IntCounterVec,
    durations: HistogramVec,
    connections: IntCounterVec,
    changes: IntCounterVec,
    in_flight: IntGaugeVec,
    answering: IntGaugeVec,
    up: IntGaugeVec,
    /// By engine and outcome.
    ended: Handles<(IntCounter, Histogram)>,
    /// By engine and whether it was reused.
    connected: Handles<IntCounter>,
    /// By engine and condition.
    changed: Handles<IntCounter>,
    /// Since when engines are in the fleet no more.
    gone: Mutex<HashMap<Arc<str>, Instant>>,
}

impl Engines {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            attempts: counters(registry, &names::ATTEMPTS)?,
            durations: histograms(registry, &names::ATTEMPT_DURATION)?,
            connections: counters(registry, &names::CONNECTIONS)?,
            changes: counters(registry, &names::ENGINE_CHANGES)?,
            in_flight: gauges(registry, &names::ENGINE_IN_FLIGHT)?,
            answering: gauges(registry, &names::ENGINE_ANSWERING)?,
            up: gauges(registry, &names::ENGINE_UP)?,
            ended: Handles::default(),
            connected: Handles::default(),
            changed: Handles::default(),
            gone: Mutex::default(),
        })
    }

    pub(super) fn attempt_ended(&self, attempt: &Attempt) {
        let (engine, outcome) = (&*attempt.engine, attempt.outcome);
        let labels = [engine, outcome];
        let count = |(ended, duration): &(IntCounter, Histogram)| {
            ended.inc();
            duration.observe(attempt.took.as_secs_f64());
        };
        let make = || {
            let ended = self.attempts.with_label_values(&labels);
            (ended, self.durations.with_label_values(&labels))
        };
        if self.ended.with(engine, outcome, count).is_none() {
            count(&make());
            self.ended.add(engine, outcome, make);
        }
    }

    /// How many attempts on `engine` have ended, by how.
    pub(super) fn attempts_on(&self, engine: &str) -> BTreeMap<Arc<str>, u64> {
        let counts = self.ended.of(engine, |(ended, _)| ended.get());
        counts.into_iter().collect()
    }

    pub(super) fn connected(&self, engine: &str, reused: bool) {
        let reused = if reused { "true" } else { "false" };
        count(&self.connected, &self.connections, engine, reused);
    }

    pub(super) fn condition_changed(&self, engine: &str, condition: &str) {
        count(&self.changed, &self.changes, engine, condition);
    }

    /// Shows how the engines of the fleet are now, and forgets those that left it long ago.
    /// Of those that are `leaving` it, what runs on them still counts.
    pub(super) fn look_at(&self, engines: &[Arc<Engine>], leaving: &[Arc<Engine>], now: Instant) {
        for gauge in [&self.in_flight, &self.answering, &self.up] {
            gauge.reset();
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        for engine in leaving.iter().chain(engines) {
            let label = [&**engine.label()];
            // Two that follow each other at one place count as one.
            let add = |gauge: &IntGaugeVec, value| gauge.with_label_values(&label).add(value);
            add(&self.in_flight, number(engine.in_flight()));
            add(&self.answering, number(engine.answering()));
            if !engine.is_gone() {
                add(&self.up, i64::from(engine.condition().0 == Condition::Up));
            }
        }
        let there: HashSet<&str> = engines.iter().map(|engine| &**engine.label()).collect();
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        gone.retain(|label, _| !there.contains(&**label));
        for label in self.ended.firsts().into_iter().chain(self.changed.firsts()) {
            if there.contains(&*label) {
                continue;
            }
            let since = *gone.entry(label.clone()).or_insert(now);
            if now.duration_since(since) >= KEPT {
                self.forget(&label);
                gone.remove(&label);
            }
        }
    }

    fn forget(&self, engine: &str) {
        // What is not there cannot be removed, and need not be.
        for outcome in self.ended.forget(engine) {
            let _ = self.attempts.remove_label_values(&[engine, &outcome]);
            let _ = self.durations.remove_label_values(&[engine, &outcome]);
        }
        for reused in self.connected.forget(engine) {
            let _ = self.connections.remove_label_values(&[engine, &reused]);
        }
        for condition in self.changed.forget(engine) {
            let _ = self.changes.remove_label_values(&[engine, &condition]);
        }
    }
}

/// Counts one in the series of an engine and something else.
fn count(known: &Handles<IntCounter>, family: &IntCounterVec, engine: &str, other: &str) {
    if known.with(engine, other, IntCounter::inc).is_none() {
        let make = || family.with_label_values(&[engine, other]);
        make().inc();
        known.add(engine, other, make);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineSpec;
    use crate::engines::{EngineId, HealthLimits};
    use prometheus::{Encoder as _, TextEncoder};

    fn attempt(engine: &str) -> Attempt {
        Attempt {
            engine: engine.into(),
            outcome: "answered",
            status: Some(200),
            begun: Duration::ZERO,
            took: Duration::from_millis(20),
            retry: None,
            reused: Some(false),
        }
    }

    #[test]
    fn an_engine_is_forgotten_a_while_after_it_left_the_fleet() {
        let registry = Registry::new();
        let engines = Engines::new(&registry).unwrap();
        let spec = EngineSpec::new("http://stays:8000".parse().unwrap(), Vec::new());
        let limits = HealthLimits::default();
        let fleet = [Arc::new(Engine::new(EngineId::new(0), &spec, &limits))];
        let start = Instant::now();
        let lines_of = |engine: &str, after: Duration| {
            engines.look_at(&fleet, &[], start + after);
            let mut text = Vec::new();
            TextEncoder::new()
                .encode(&registry.gather(), &mut text)
                .unwrap();
            let text = String::from_utf8(text).unwrap();
            text.lines().filter(|line| line.contains(engine)).count()
        };
        for engine in ["http://stays:8000", "http://left:8000"] {
            engines.attempt_ended(&attempt(engine));
            engines.connected(engine, false);
            engines.condition_changed(engine, "down");
        }
        engines.condition_changed("http://left-unused", "down");
        let there = lines_of("http://left", Duration::ZERO);
        assert!(there > names::ATTEMPT_DURATION.buckets.len(), "{there}");
        assert_eq!(lines_of("http://stays", Duration::ZERO), there - 1 + 3);
        let just_before = KEPT.saturating_sub(Duration::from_secs(1));
        assert_eq!(lines_of("http://left", just_before), there);
        assert_eq!(lines_of("http://left", KEPT), 0);
        assert_eq!(lines_of("http://stays", KEPT), there - 1 + 3);
        // One that comes back is counted from the beginning.
        engines.attempt_ended(&attempt("http://left:8000"));
        assert_eq!(
            engines
                .attempts
                .with_label_values(&["http://left:8000", "answered"])
                .get(),
            1
        );
    }
}
