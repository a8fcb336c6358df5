//! Series under the names of the vLLM production-stack's router, for dashboards and alerts that
//! were made for it.
//!
//! Only where `production_stack_metrics` asks for them. Names and labels are that router's, values
//! are right where they have a right value: a request is counted once it is known to be for a model
//! that is served, a 5xx is an error, gauges come back to 0, and an engine that is out is not healthy.
//! What only the engines know (`gpu_prefix_cache…`, `num_requests_waiting`) is theirs to tell.

mod window;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, Result};
use tokio::time::Instant;

use super::Metrics;
use super::models::Models;
use super::names::{Name, counter, gauge, histogram};
use super::register::{Pulled, Value, counters, histograms};
use crate::engines::{Condition, Engine, Fleet};
use crate::record::{ANSWERED, Attempt, Observer, Record};
use crate::retry::is_retryable_status;
use window::{Totals, Window};

const INCOMING: Name = counter(
    "vllm:num_incoming_requests_total",
    &["model"],
    "Requests for a model that is served, once they have ended",
);
const LATENCY: Name = histogram(
    "vllm:request_latency_seconds",
    &["server", "model", "status"],
    "From the request head read to the last byte of the answer sent; server is the engine of the last attempt, status is success or error, and requests whose client left are neither",
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0],
);
const ERRORS: Name = counter(
    "vllm:request_errors_total",
    &["server", "model", "error_type"],
    "Attempts that failed, by the kind of failure or the status",
);
const INPUT_TOKENS: Name = counter(
    "vllm:input_tokens_total",
    &["server", "model"],
    "Tokens of prompts, where the engine's answer tells them",
);
const OUTPUT_TOKENS: Name = counter(
    "vllm:output_tokens_total",
    &["server", "model"],
    "Generated tokens, where the engine's answer tells them",
);
const HEALTHY: Name = gauge(
    "vllm:healthy_pods_total",
    &["server"],
    "1 where nothing speaks against an engine, 0 where it is out or picked last",
);
const RUNNING: Name = gauge(
    "vllm:num_requests_running",
    &["server"],
    "Attempts that run on an engine now",
);
const PREFILL: Name = gauge(
    "vllm:num_prefill_requests",
    &["server"],
    "Those of them that wait for the first byte of their answer",
);
const DECODING: Name = gauge(
    "vllm:num_decoding_requests",
    &["server"],
    "Those of them whose answer has begun to come",
);
const QPS: Name = gauge(
    "vllm:current_qps",
    &["server"],
    "Attempts per second that began on an engine in the last minute",
);
const AVG_LATENCY: Name = gauge(
    "vllm:avg_latency",
    &["server"],
    "Mean duration of requests that an engine answered in the last minute, in seconds",
);
const AVG_ITL: Name = gauge(
    "vllm:avg_itl",
    &["server"],
    "Mean time between two tokens of streams that ended in the last minute and told their tokens, in seconds",
);

/// All of them.
pub const NAMES: &[Name] = &[
    INCOMING,
    LATENCY,
    ERRORS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    HEALTHY,
    RUNNING,
    PREFILL,
    DECODING,
    QPS,
    AVG_LATENCY,
    AVG_ITL,
];

/// Those that are asked for when they are exposed.
const PULLED: [Name; 7] = [
    HEALTHY,
    RUNNING,
    PREFILL,
    DECODING,
    QPS,
    AVG_LATENCY,
    AVG_ITL,
];

/// Counts requests under these names.
#[derive(Debug)]
pub struct ProductionStack {
    models: Models,
    incoming: IntCounterVec,
    latency: HistogramVec,
    errors: IntCounterVec,
    input_tokens: IntCounterVec,
    output_tokens: IntCounterVec,
    answered: Arc<Answered>,
}

/// What engines have answered so far, by their label.
#[derive(Debug, Default)]
struct Answered(Mutex<HashMap<Arc<str>, Totals>>);

impl Answered {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Totals>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProductionStack {
    /// Registers these names beside those of `metrics`; `fleet` tells how engines are.
    ///
    /// # Errors
    /// They are registered already.
    pub fn new(metrics: &Metrics, fleet: Arc<Fleet>) -> Result<Self> {
        let registry = &metrics.registry;
        let answered = Arc::new(Answered::default());
        let looks = Mutex::new(HashMap::new());
        let pulled = Pulled::new(&PULLED, {
            let answered = Arc::clone(&answered);
            move || look(&fleet.engines(), &answered, &looks, Instant::now())
        });
        registry.register(Box::new(pulled?))?;
        Ok(Self {
            models: Models::default(),
            incoming: counters(registry, &INCOMING)?,
            latency: histograms(registry, &LATENCY)?,
            errors: counters(registry, &ERRORS)?,
            input_tokens: counters(registry, &INPUT_TOKENS)?,
            output_tokens: counters(registry, &OUTPUT_TOKENS)?,
            answered,
        })
    }
}

impl Observer for ProductionStack {
    fn ended(&self, record: &Record<'_>) {
        if record.model.is_empty() {
            return;
        }
        let model = self.models.admit(record.model);
        self.incoming.with_label_values(&[model]).inc();
        for attempt in record.attempts {
            if let Some(kind) = failure(attempt) {
                let labels = [&*attempt.engine, model, &kind];
                self.errors.with_label_values(&labels).inc();
            }
        }
        let Some(last) = record.attempts.last() else {
            return;
        };
        let server = &*last.engine;
        for (tokens, family) in [
            (record.usage.prompt, &self.input_tokens),
            (record.usage.completion, &self.output_tokens),
        ] {
            if let Some(tokens) = tokens {
                let labels = [server, model];
                family.with_label_values(&labels).inc_by(tokens);
            }
        }
        let is_good = record.outcome == ANSWERED && record.status < 400;
        if record.outcome != "client_gone" {
            let status = if is_good { "success" } else { "error" };
            let latency = self.latency.with_label_values(&[server, model, status]);
            latency.observe(record.total.as_secs_f64());
        }
        if record.outcome == ANSWERED {
            let mut answered = self.answered.lock();
            let totals = answered.entry(Arc::clone(&last.engine)).or_default();
            *totals = totals.plus(&answer(record));
        }
    }
}

/// What one answered request adds to the totals of its engine.
fn answer(record: &Record<'_>) -> Totals {
    let decoding = record
        .first_byte
        .map(|first| record.total.saturating_sub(first));
    let gaps = record
        .usage
        .completion
        .map_or(0, |tokens| tokens.saturating_sub(1));
    let (decoding, gaps) = match decoding {
        Some(decoding) if record.stream && gaps > 0 => (decoding, gaps),
        _ => (Duration::ZERO, 0),
    };
    Totals {
        begun: 0,
        answered: 1,
        latency: record.total,
        gaps,
        decoding,
    }
}

/// What kind of failure an attempt was, if it was one.
fn failure(attempt: &Attempt) -> Option<String> {
    match (attempt.outcome, attempt.status) {
        ("client_gone", _) => None,
        (_, Some(status)) if status >= 500 || is_retryable_status(status) => {
            Some(status.to_string())
        }
        (ANSWERED, _) => None,
        (outcome, _) => Some(outcome.to_owned()),
    }
}

/// How the engines are now, and how they were in the last minute.
#[allow(clippy::cast_precision_loss)] // counts of a minute
fn look(
    engines: &[Arc<Engine>],
    answered: &Answered,
    looks: &Mutex<HashMap<Arc<str>, Window>>,
    now: Instant,
) -> Vec<Value> {
    let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
    let is_there = |label: &Arc<str>| engines.iter().any(|engine| engine.label() == label);
    looks.retain(|label, _| is_there(label));
    let answered = {
        let mut answered = answered.lock();
        answered.retain(|label, _| is_there(label));
        answered.clone()
    };
    let mut values = Vec::with_capacity(engines.len() * PULLED.len());
    for engine in engines {
        let totals = Totals {
            begun: engine.begun(),
            ..answered.get(engine.label()).copied().unwrap_or_default()
        };
        let window = looks.entry(Arc::clone(engine.label())).or_default();
        let (grown, time) = window.look(totals, now);
        let mean = |time: Duration, count: u64| match count {
            0 => 0.0,
            count => time.as_secs_f64() / count as f64,
        };
        let (running, answering) = (engine.in_flight(), engine.answering());
        let is_up = engine.condition().0 == Condition::Up;
        let qps = match time.as_secs_f64() {
            0.0 => 0.0,
            seconds => grown.begun as f64 / seconds,
        };
        let all = [
            f64::from(u8::from(is_up)),
            running as f64,
            running.saturating_sub(answering) as f64,
            answering as f64,
            qps,
            mean(grown.latency, grown.answered),
            mean(grown.decoding, grown.gaps),
        ];
        let label = || vec![engine.label().to_string()];
        values.extend(
            PULLED
                .into_iter()
                .zip(all)
                .map(|(name, value)| (name, label(), value)),
        );
    }
    values
}

#[cfg(test)]
mod tests;
