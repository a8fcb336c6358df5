//! Counters and gauges of the router, exposed in Prometheus' text format.
//!
//! A request is counted once, by how it ended; an attempt is counted once, by its own outcome.
//!
//! - [`names`]: the list of all series;
//! - `requests`, `engines`, `process`: whose they are;
//! - [`production_stack`]: some of it again, under the names of another router;
//! - `pace`: a stream's own count of its pieces;
//! - `models`: the names models are counted under;
//! - `handles`, `register`: how series are found, and made.
//!
//! No label has a value that a client made up, so that nobody can make series grow: models and
//! routes are those that are served.

mod engines;
mod handles;
mod models;
pub mod names;
mod pace;
mod process;
pub mod production_stack;
mod register;
mod requests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::{
    Encoder, Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, TextEncoder,
};
use tokio::time::Instant;

use crate::engines::Fleet;
use crate::record::{Attempt, Observer, Record};
use engines::Engines;
use names::Name;
use register::{Pulled, counters, histogram_opts, opts, register};
use requests::Requests;

pub use pace::Pace;

/// How waits for an engine end.
const HOLD_RESULTS: [&str; 5] = ["served", "timeout", "full", "unknown", "client_gone"];

/// All series of one router.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Arc<Requests>,
    engines: Arc<Engines>,
    retries: IntCounterVec,
    stale_connections: IntCounter,
    backoff: Histogram,
    in_flight: IntGauge,
    held: IntGauge,
    holds: IntCounterVec,
    hold_time: Histogram,
    spans: IntCounterVec,
    reloads: IntCounterVec,
    last_reload: IntGauge,
    /// One exposition at a time is made.
    exposing: Arc<Mutex<()>>,
}

impl Metrics {
    /// Registers every series.
    ///
    /// # Errors
    /// A name is registered twice or malformed.
    pub fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let stale = IntCounter::with_opts(opts(&names::STALE_CONNECTIONS))?;
        let backoff = Histogram::with_opts(histogram_opts(&names::BACKOFF))?;
        let hold_time = Histogram::with_opts(histogram_opts(&names::HOLD))?;
        let in_flight = IntGauge::with_opts(opts(&names::IN_FLIGHT))?;
        let held = IntGauge::with_opts(opts(&names::HELD))?;
        let last_reload = IntGauge::with_opts(opts(&names::LAST_RELOAD))?;
        last_reload.set(1);
        let build = IntGaugeVec::new(opts(&names::BUILD_INFO), names::BUILD_INFO.labels)?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        register(&registry, build)?;
        registry.register(Box::new(process::collector()?))?;
        // They are there from the beginning, so that the first of a kind is seen as an increase.
        let known = |name, values: &[&str]| {
            let family = counters(&registry, name)?;
            for value in values {
                family.with_label_values(&[value]);
            }
            prometheus::Result::Ok(family)
        };
        let holds = known(&names::HOLDS, &HOLD_RESULTS)?;
        let spans = known(&names::SPANS, &["sent", "failed", "dropped"])?;
        let reloads = known(&names::RELOADS, &["adopted", "refused"])?;
        Ok(Self {
            requests: Arc::new(Requests::new(&registry)?),
            engines: Arc::new(Engines::new(&registry)?),
            retries: counters(&registry, &names::RETRIES)?,
            stale_connections: register(&registry, stale)?,
            backoff: register(&registry, backoff)?,
            in_flight: register(&registry, in_flight)?,
            held: register(&registry, held)?,
            holds,
            hold_time: register(&registry, hold_time)?,
            spans,
            reloads,
            last_reload: register(&registry, last_reload)?,
            exposing: Arc::default(),
            registry,
        })
    }

    /// Exposes one more number, a counter or a gauge without labels, that somebody else keeps.
    ///
    /// # Errors
    /// The name is registered already, or malformed.
    pub fn pull(
        &self,
        name: Name,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        #[allow(clippy::cast_precision_loss)] // exposed so by every kind of series
        let read = move || vec![(name, Vec::new(), read() as f64)];
        self.registry
            .register(Box::new(Pulled::new(&[name], read)?))
    }

    /// A request has begun; it counts as in flight until the guard is dropped.
    pub fn request_begun(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight)
    }

    /// Requests that are in flight.
    pub fn in_flight(&self) -> usize {
        usize::try_from(self.in_flight.get()).unwrap_or(0)
    }

    /// A stream of this route and model begins; its pieces are told to what comes back.
    pub fn pace(&self, route: &str, model: &str) -> Pace {
        self.requests.pace(route, model)
    }

    /// A request is sent to `engine` on a connection that was `reused` or is fresh.
    pub fn connected(&self, engine: &str, reused: bool) {
        self.engines.connected(engine, reused);
    }

    /// An attempt has ended.
    pub fn attempt_ended(&self, attempt: &Attempt) {
        self.engines.attempt_ended(attempt);
    }

    /// How many attempts on the engine of this label have ended, by how.
    pub fn attempts_on(&self, engine: &str) -> BTreeMap<Arc<str>, u64> {
        self.engines.attempts_on(engine)
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
        self.engines.condition_changed(engine, condition);
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
    /// that have left it for as long as something runs on them. No request waits for it.
    pub fn expose(&self, fleet: &Fleet) -> Vec<u8> {
        let _exposing = self.exposing.lock().unwrap_or_else(PoisonError::into_inner);
        let (present, leaving) = (fleet.engines(), fleet.leaving());
        self.engines.look_at(&present, &leaving, Instant::now());
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            log::error!("metrics could not be encoded: {error}");
        }
        text
    }
}

impl Observer for Metrics {
    fn ended(&self, record: &Record<'_>) {
        self.requests.ended(record);
        if !record.holds.is_empty() {
            self.hold_time.observe(record.held.as_secs_f64());
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

#[cfg(test)]
mod tests;
