//! What the status page tells: what became of the requests of the last quarter of an hour.
//!
//! - [`Ring`] is time in cells, [`Histogram`] durations by size: memory that does not grow;
//! - [`Totals`] is what came of the requests of a cell, and what retrying cost and saved;
//! - [`Fault`] says whose fault a failure is: the fleet's, the router's or the client's;
//! - [`Work`] is what one engine did in a cell, [`Recent`] the last requests one may ask about;
//! - [`History`] holds all of it, [`Snapshot`] is what it knows at one moment.
//!
//! All of them are plain Rust, and are told the time. [`Status`] puts a lock around the history,
//! and looks at the clock and the fleet.

mod fault;
mod histogram;
mod history;
mod recent;
mod ring;
mod snapshot;
#[cfg(test)]
mod testing;
mod totals;
mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serializer;
use tokio::sync::watch;

use crate::engines::{Condition, Engine, Fleet};
use crate::metrics::Metrics;
use crate::record::{Observer, Record};

pub use fault::Fault;
pub use histogram::Histogram;
pub use history::{CHANGES, Change, History};
pub use recent::{Kind, REMEMBERED, Recent, Remembered};
pub use ring::Ring;
pub use snapshot::{CellOfAll, EngineRow, Now, Snapshot, Standing, Update, Window};
pub use totals::{Retries, Totals};
pub use work::{Engines, Work};

/// How far back is told of, in seconds.
pub const WINDOW: u64 = 900;
/// The times up to now that are told of as a whole, in seconds.
pub const WINDOWS: [u64; 3] = [60, 300, WINDOW];
/// The length of a cell, in seconds.
pub const SPAN: u64 = 5;
/// How many cells there are.
pub const CELLS: u64 = WINDOW / SPAN;
/// The length of an engine's cell, in seconds.
pub const SPAN_OF_AN_ENGINE: u64 = 15;
/// How many cells of an engine there are.
pub const CELLS_OF_AN_ENGINE: u64 = WINDOW / SPAN_OF_AN_ENGINE;
/// How many engines are remembered, those that have left the fleet included. At about 20 kB each
/// that is 20 MB.
pub const MOST_ENGINES: usize = 1024;

/// Remembers how requests ended, and tells what is known now.
#[derive(Clone, Debug)]
pub struct Status(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    history: Mutex<History>,
    fleet: Arc<Fleet>,
    metrics: Metrics,
    draining: watch::Receiver<bool>,
    retries_enabled: AtomicBool,
    /// The last snapshot that was shared, and in which period.
    shared: Mutex<Option<(u32, Arc<Snapshot>)>>,
}

impl Status {
    /// The status of a router over `fleet`.
    pub fn new(
        fleet: Arc<Fleet>,
        metrics: Metrics,
        draining: watch::Receiver<bool>,
        retries_enabled: bool,
    ) -> Self {
        Self(Arc::new(Inner {
            history: Mutex::default(),
            fleet,
            metrics,
            draining,
            retries_enabled: AtomicBool::new(retries_enabled),
            shared: Mutex::default(),
        }))
    }

    /// Failures are hidden by asking again from now on, or not.
    pub fn set_retries_enabled(&self, enabled: bool) {
        self.0.retries_enabled.store(enabled, Ordering::Relaxed);
    }

    /// What takes note of the changes of engines' conditions. The fleet may keep it: it does not
    /// keep the fleet.
    pub fn on_change(&self) -> impl Fn(&Engine, Condition) + Send + Sync + 'static {
        let inner = Arc::downgrade(&self.0);
        move |engine, condition| {
            if let Some(inner) = inner.upgrade() {
                let now = inner.fleet.now();
                lock(&inner.history).changed(engine.label(), condition, now);
            }
        }
    }

    /// What is known now.
    pub fn snapshot(&self) -> Snapshot {
        let fleet = self.standings();
        let now = Now {
            version: env!("CARGO_PKG_VERSION"),
            unix_ms: unix_ms(),
            uptime: self.0.fleet.now(),
            draining: *self.0.draining.borrow(),
            retries_enabled: self.0.retries_enabled.load(Ordering::Relaxed),
            requests_in_flight: self.0.metrics.in_flight(),
        };
        // Every request that ends waits for the lock, and the sums of a large fleet take a while.
        let history = {
            let mut history = lock(&self.0.history);
            history.tidy(now.uptime);
            history.clone()
        };
        Snapshot::new(&history, fleet, now)
    }

    /// How long this period will last, of those that are this long.
    pub fn next_period(&self, period: Duration) -> Duration {
        let now = self.0.fleet.now();
        (period * (periods(now, period) + 1)).saturating_sub(now)
    }

    /// What is known in this period: the same for all who ask in it.
    pub fn shared(&self, period: Duration) -> Arc<Snapshot> {
        let number = periods(self.0.fleet.now(), period);
        let mut shared = lock(&self.0.shared);
        if let Some((of, snapshot)) = &*shared
            && *of == number
        {
            return Arc::clone(snapshot);
        }
        let snapshot = Arc::new(self.snapshot());
        *shared = Some((number, Arc::clone(&snapshot)));
        snapshot
    }

    /// The engines of the fleet, then those that have left it and still run requests.
    fn standings(&self) -> Vec<(Arc<str>, Standing)> {
        let (present, leaving) = (self.0.fleet.engines(), self.0.fleet.leaving());
        let has_come_again =
            |engine: &Engine| present.iter().any(|it| it.label() == engine.label());
        let leaving = leaving.iter().filter(|engine| !has_come_again(engine));
        let present = (0..).map(Some).zip(present.iter());
        present
            .chain(leaving.map(|engine| (None, engine)))
            .map(|(place, engine)| (Arc::clone(engine.label()), self.standing(place, engine)))
            .collect()
    }

    fn standing(&self, place: Option<usize>, engine: &Engine) -> Standing {
        let known = Standing {
            id: Some(engine.name().into()),
            models: self.0.fleet.models_of(engine.id()),
            weight: Some(engine.weight()),
            in_flight: engine.in_flight(),
            load: (engine.load() * 100.0).round() / 100.0,
            ..Standing::GONE
        };
        if place.is_none() {
            return Standing {
                condition: "leaving",
                ..known
            };
        }
        let (condition, since) = engine.condition();
        Standing {
            place,
            condition: condition.label(),
            reason: condition.reason(),
            since: Some(since),
            ..known
        }
    }
}

impl Observer for Status {
    fn ended(&self, record: &Record<'_>) {
        let fleet = &self.0.fleet;
        let now = record.at.map_or_else(|| fleet.now(), |at| fleet.at(at));
        lock(&self.0.history).ended(record, now);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many whole periods have passed.
fn periods(now: Duration, period: Duration) -> u32 {
    let passed = now.as_nanos() / period.as_nanos().max(1);
    u32::try_from(passed).unwrap_or(u32::MAX - 1)
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

/// Writes a duration in milliseconds, to a tenth of one.
fn millis<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64((duration.as_secs_f64() * 1e4).round() / 10.0)
}

/// The same, where there is one.
#[allow(clippy::ref_option)] // as serde calls it
fn millis_if_any<S: Serializer>(duration: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => millis(duration, to),
        None => to.serialize_none(),
    }
}
