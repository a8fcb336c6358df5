//! Counters and gauges of the router, exposed in Prometheus' text format.
//!
//! A request is counted once, by how it ended; an attempt is counted once, by its own outcome.

pub mod names;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::engines::{Condition, Fleet};
use crate::record::{Observer, Record};
use names::Name;

/// The model of requests that were not routed by one.
const UNKNOWN_MODEL: &str = "unknown";

/// All series of one router.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    stale_connections: IntCounter,
    backoff: Histogram,
    in_flight: IntGauge,
    engine_in_flight: IntGaugeVec,
    engine_up: IntGaugeVec,
    engine_changes: IntCounterVec,
    duration: HistogramVec,
    first_token: HistogramVec,
    spans: IntCounterVec,
    held: IntGauge,
    holds: IntCounterVec,
    reloads: IntCounterVec,
    last_reload: IntGauge,
    exposing: Arc<Mutex<()>>,
}

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// A name is registered twice or malformed.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let metrics = Self {
            requests: counters(&registry, &names::REQUESTS)?,
            attempts: counters(&registry, &names::ATTEMPTS)?,
            retries: counters(&registry, &names::RETRIES)?,
            stale_connections: register(
                &registry,
                IntCounter::with_opts(opts(&names::STALE_CONNECTIONS))?,
            )?,
            backoff: register(
                &registry,
                Histogram::with_opts(histogram_opts(&names::BACKOFF))?,
            )?,
            in_flight: register(&registry, IntGauge::with_opts(opts(&names::IN_FLIGHT))?)?,
            engine_in_flight: register(
                &registry,
                IntGaugeVec::new(
                    opts(&names::ENGINE_IN_FLIGHT),
                    names::ENGINE_IN_FLIGHT.labels,
                )?,
            )?,
            engine_up: register(
                &registry,
                IntGaugeVec::new(opts(&names::ENGINE_UP), names::ENGINE_UP.labels)?,
            )?,
            engine_changes: counters(&registry, &names::ENGINE_CHANGES)?,
            duration: histograms(&registry, &names::DURATION)?,
            first_token: histograms(&registry, &names::FIRST_TOKEN)?,
            spans: counters(&registry, &names::SPANS)?,
            held: register(&registry, IntGauge::with_opts(opts(&names::HELD))?)?,
            holds: counters(&registry, &names::HOLDS)?,
            reloads: counters(&registry, &names::RELOADS)?,
            last_reload: register(&registry, IntGauge::with_opts(opts(&names::LAST_RELOAD))?)?,
            exposing: Arc::default(),
            registry,
        };
        metrics.last_reload.set(1);
        let build = IntGaugeVec::new(opts(&names::BUILD_INFO), names::BUILD_INFO.labels)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        register(&metrics.registry, build)?;
        Ok(metrics)
    }

    /// A request has begun; it counts as in flight until the guard is dropped.
    pub fn request_begun(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Requests that are in flight.
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or(0)
    }

    /// An attempt on `engine` has ended.
    pub fn attempt_ended(&self, engine: &str, outcome: &str) {
        self.attempts.with_label_values(&[engine, outcome]).inc();
    }

    /// Another attempt begins, for this reason, after this wait.
    pub fn retried(&self, reason: &str, backoff: Duration) {
        self.retries.with_label_values(&[reason]).inc();
        if !backoff.is_zero() {
            self.backoff.observe(backoff.as_secs_f64());
        }
    }

    /// A pooled connection turned out closed, and the request was sent on a fresh one.
    pub fn stale_connection(&self) {
        self.stale_connections.inc();
    }

    /// So many spans left the router: `sent`, `failed`, or `dropped` before they were.
    pub fn spans_left(&self, outcome: &str, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.spans.with_label_values(&[outcome]).inc_by(count);
    }

    /// An engine is in this condition now.
    pub fn condition_changed(&self, engine: &str, condition: &str) {
        self.engine_changes
            .with_label_values(&[engine, condition])
            .inc();
    }

    /// A request waits for an engine to come up, until the guard is dropped.
    pub fn hold_begun(&self) -> GaugeGuard {
        GaugeGuard::new(&self.held)
    }

    /// Such a wait has ended, or not even begun.
    pub fn hold_ended(&self, result: &str) {
        self.holds.with_label_values(&[result]).inc();
    }

    /// The configuration was read again, and adopted or not.
    pub fn reloaded(&self, adopted: bool) {
        let result = if adopted { "adopted" } else { "refused" };
        self.reloads.with_label_values(&[result]).inc();
        self.last_reload.set(i64::from(adopted));
    }

    /// Everything, in Prometheus' text format. Of engines there are those of `fleet`, and those
    /// that have left it for as long as something runs on them.
    pub fn expose(&self, fleet: &Fleet) -> Vec<u8> {
        // Two at once would take each other's engines away.
        let _one_at_a_time = self.exposing.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine_in_flight.reset();
        self.engine_up.reset();
        let leaving = fleet.leaving();
        for engine in leaving.iter().chain(&*fleet.engines()) {
            let running = i64::try_from(engine.in_flight()).unwrap_or(i64::MAX);
            // Two that follow each other at one place count as one.
            self.engine_in_flight
                .with_label_values(&[engine.label()])
                .add(running);
            let is_up = engine.condition().0 == Condition::Up && !engine.is_gone();
            self.engine_up
                .with_label_values(&[engine.label()])
                .set(i64::from(is_up));
        }
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            log::error!("metrics could not be encoded: {error}");
        }
        text
    }
}

impl Observer for Metrics {
    fn ended(&self, record: &Record<'_>) {
        let status = StatusText::new(record.status);
        let model = if record.model.is_empty() {
            UNKNOWN_MODEL
        } else {
            record.model
        };
        self.requests
            .with_label_values(&[record.route, model, record.outcome, status.as_str()])
            .inc();
        self.duration
            .with_label_values(&[record.route])
            .observe(record.total.as_secs_f64());
        if let Some(first_byte) = record
            .first_byte
            .filter(|_| (200..300).contains(&record.status))
        {
            self.first_token
                .with_label_values(&[record.route])
                .observe(first_byte.as_secs_f64());
        }
    }
}

/// Counts one in a gauge until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(IntGauge);

impl GaugeGuard {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A status as text, without an allocation.
struct StatusText([u8; 3]);

impl StatusText {
    fn new(status: u16) -> Self {
        let digit = |place: u16| b"0123456789".get(usize::from(status / place % 10)).copied();
        Self([100, 10, 1].map(|place| digit(place).unwrap_or(b'0')))
    }

    fn as_str(&self) -> &str {
        match &self.0 {
            b"000" => "0",
            digits => std::str::from_utf8(digits).unwrap_or("0"),
        }
    }
}

fn opts(name: &Name) -> Opts {
    Opts::new(name.name, name.help)
}

fn histogram_opts(name: &Name) -> HistogramOpts {
    HistogramOpts::new(name.name, name.help).buckets(name.buckets.to_vec())
}

fn counters(registry: &Registry, name: &Name) -> prometheus::Result<IntCounterVec> {
    register(registry, IntCounterVec::new(opts(name), name.labels)?)
}

fn histograms(registry: &Registry, name: &Name) -> prometheus::Result<HistogramVec> {
    register(
        registry,
        HistogramVec::new(histogram_opts(name), name.labels)?,
    )
}

fn register<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> prometheus::Result<C> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::EngineSpec;
    use crate::engines::Policy;

    #[test]
    fn every_listed_name_is_exposed_once_it_has_a_value() {
        let metrics = Metrics::new().unwrap();
        let _running = metrics.request_begun();
        metrics.ended(&Record {
            request_id: "r",
            trace: None,
            client: None,
            method: "POST",
            path: "/v1/completions",
            route: "/v1/completions",
            model: "m",
            stream: false,
            status: 200,
            outcome: "answered",
            reason: "answered",
            attempts: &[],
            backoff: Duration::ZERO,
            backoffs: &[],
            first_byte: Some(Duration::from_millis(2)),
            total: Duration::from_millis(3),
            bytes_in: 0,
            bytes_out: 0,
        });
        metrics.attempt_ended("http://e", "answered");
        metrics.retried("503", Duration::from_millis(50));
        metrics.stale_connection();
        metrics.spans_left("sent", 2);
        metrics.condition_changed("http://e", "up");
        metrics.reloaded(true);
        metrics.hold_ended("served");
        let spec = EngineSpec::new("http://e".parse().unwrap(), Vec::new());
        let fleet = Fleet::new(&[spec], &BTreeMap::new(), Policy::default());
        let text = String::from_utf8(metrics.expose(&fleet)).unwrap();
        for name in names::ALL {
            assert!(
                text.contains(&format!("# TYPE {} {}", name.name, name.kind)),
                "{}",
                name.name
            );
        }
        assert!(text.contains(
            r#"vllm_pingora_requests_total{model="m",outcome="answered",route="/v1/completions",status="200"} 1"#
        ));
    }

    #[test]
    fn a_status_is_three_digits_or_zero() {
        assert_eq!(StatusText::new(503).as_str(), "503");
        assert_eq!(StatusText::new(0).as_str(), "0");
    }
}
