//! One engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use xxhash_rust::xxh3::xxh3_64;

use super::gauges::Gauges;
use super::health::{Condition, Fitness, Health, HealthLimits};
use crate::config::{EngineSpec, EngineUrl};
use crate::retry::Failure;
use crate::routing::Load;

/// Names one engine for the life of the process; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineId(u32);

impl EngineId {
    /// No engine has this id.
    pub const NOBODY: Self = Self(u32::MAX);

    /// The engine with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number, for keys of other kinds.
    pub const fn number(self) -> u64 {
        self.0 as u64
    }
}

/// One vLLM server.
#[derive(Debug)]
pub struct Engine {
    id: EngineId,
    url: EngineUrl,
    label: Arc<str>,
    name: Box<str>,
    weight: u32,
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Place of the address that was connected to last.
    preferred: AtomicUsize,
    attempts: Arc<Counts>,
    reported: Reported,
    incarnation: AtomicU32,
    limits: HealthLimits,
    health: Mutex<Health>,
    /// Nothing at all speaks against it, as of nearly all engines nearly all the time: then nobody
    /// need look at its health.
    is_plain: AtomicBool,
    /// It has answered a request since it was last probed.
    is_busy: AtomicBool,
}

/// The load an engine has told of beyond our own, in bits of `f32`: both, since a logic reads
/// them together.
#[derive(Debug, Default)]
struct Reported(AtomicU64);

impl Reported {
    #[allow(clippy::cast_possible_truncation)] // gauges of a few digits
    fn set(&self, foreign_and_waiting: f64, kv_cache: f64) {
        let bits = |value: f64| u64::from((value as f32).to_bits());
        self.0.store(
            bits(foreign_and_waiting) << 32 | bits(kv_cache),
            Ordering::Relaxed,
        );
    }

    fn get(&self) -> (f64, f64) {
        #[allow(clippy::cast_possible_truncation)] // the halves
        let value = |bits: u64| f64::from(f32::from_bits(bits as u32));
        let both = self.0.load(Ordering::Relaxed);
        (value(both >> 32), value(both & 0xFFFF_FFFF))
    }
}

impl Engine {
    /// An engine. One whose host is a name has no address until [`resolve`](Self::resolve).
    pub fn new(id: EngineId, spec: &EngineSpec, limits: &HealthLimits) -> Self {
        let url = spec.url.clone();
        let literal = url.host().parse::<IpAddr>().ok();
        let addresses = literal
            .map(|ip| SocketAddr::new(ip, url.port()))
            .into_iter()
            .collect();
        Self {
            id,
            label: url.to_string().into(),
            name: spec
                .id
                .as_deref()
                .map_or_else(|| short_name(&url), Into::into),
            weight: spec.weight,
            url,
            addresses: ArcSwap::from_pointee(addresses),
            preferred: AtomicUsize::new(0),
            attempts: Arc::default(),
            reported: Reported::default(),
            incarnation: AtomicU32::new(0),
            limits: *limits,
            health: Mutex::default(),
            is_plain: AtomicBool::new(true),
            is_busy: AtomicBool::new(false),
        }
    }

    /// Its name in the process.
    pub fn id(&self) -> EngineId {
        self.id
    }

    /// Where it is, as configured.
    pub fn url(&self) -> &EngineUrl {
        &self.url
    }

    /// The name clients and operators choose it by. It is the same in every process, and does not
    /// tell where the engine is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its share of the requests, relative to the others; at least 1.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Its name in logs and metrics: the URL.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Whether its host is a name, whose addresses may change.
    pub fn has_name(&self) -> bool {
        self.url.host().parse::<IpAddr>().is_err()
    }

    /// Looks its name up, and keeps the addresses known so far where that fails.
    ///
    /// # Errors
    /// The lookup failed, or found nothing.
    pub async fn resolve(&self) -> std::io::Result<()> {
        if !self.has_name() {
            return Ok(());
        }
        let found = tokio::net::lookup_host((self.url.host(), self.url.port())).await?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(std::io::Error::other("the name has no address"));
        }
        if **self.addresses.load() != found {
            log::info!("engine={} resolved to {found:?}", self.label);
            self.preferred.store(0, Ordering::Relaxed);
            self.addresses.store(Arc::new(found));
        }
        Ok(())
    }

    /// The address that worked last, or the first one known.
    pub fn address(&self) -> Option<SocketAddr> {
        let addresses = self.addresses.load();
        let preferred = addresses.get(self.preferred.load(Ordering::Relaxed));
        preferred.or(addresses.first()).copied()
    }

    /// The addresses in the order to try them: the one that worked last comes first.
    pub fn addresses_to_try(&self) -> Vec<SocketAddr> {
        let mut addresses = self.addresses();
        let preferred = self.preferred.load(Ordering::Relaxed);
        if let Some(before) = addresses.get_mut(..=preferred) {
            before.rotate_right(1);
        }
        addresses
    }

    /// The addresses known now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.load().to_vec()
    }

    /// Remembers that `address` accepted a connection.
    pub fn connected(&self, address: SocketAddr) {
        let addresses = self.addresses.load();
        if let Some(place) = addresses.iter().position(|known| *known == address) {
            self.preferred.store(place, Ordering::Relaxed);
        }
    }

    /// Attempts that run on it now.
    pub fn in_flight(&self) -> usize {
        self.attempts.in_flight.load(Ordering::Relaxed)
    }

    /// Those of them whose answer has begun to come.
    pub fn answering(&self) -> usize {
        self.attempts.answering.load(Ordering::Relaxed)
    }

    /// Attempts that have begun on it since it is known.
    pub fn begun(&self) -> u64 {
        self.attempts.begun.load(Ordering::Relaxed)
    }

    /// How busy it is, per unit of its weight; 0 is idle.
    pub fn load(&self) -> f64 {
        let (others, kv_cache) = self.reported.get();
        let load = Load {
            in_flight: self.in_flight(),
            // Foreign and waiting requests weigh the same, so one number stands for both.
            foreign: others,
            waiting: 0.0,
            kv_cache,
        };
        load.score() / f64::from(self.weight)
    }

    /// Takes note of what the engine says of its load; `None` where that is not known, or too old
    /// to go by.
    pub fn report(&self, gauges: Option<&Gauges>) {
        let Some(gauges) = gauges else {
            return self.reported.set(0.0, 0.0);
        };
        #[allow(clippy::cast_precision_loss)] // no engine has 2^52 requests
        let own = self.in_flight() as f64;
        let foreign = (gauges.running + gauges.waiting - own).max(0.0);
        self.reported.set(foreign + gauges.waiting, gauges.kv_cache);
    }

    /// What it is fit for at `now`, the time since the process started.
    pub fn fitness(&self, now: Duration) -> Fitness {
        if self.is_plain.load(Ordering::Relaxed) {
            return Fitness::Fit;
        }
        let health = self.lock_health();
        let fitness = health.fitness(&self.limits, now);
        if fitness == Fitness::Fit && health.is_settled() {
            self.is_plain.store(true, Ordering::Relaxed);
        }
        fitness
    }

    /// Its condition, and since when in the time of the process.
    pub fn condition(&self) -> (Condition, Duration) {
        self.lock_health().condition()
    }

    /// A request is sent to it to see whether it is back.
    pub(super) fn trial_begins(&self, now: Duration) {
        self.lock_health().trial_begins(&self.limits, now);
    }

    /// A request failed on it. Its new condition, if that changed.
    pub(super) fn failed(&self, failure: Failure, now: Duration, draw: f64) -> Option<Condition> {
        self.change(|health, limits| health.failed(limits, failure, now, draw))
    }

    /// It answered a request with this status. Its new condition, if that changed.
    pub(super) fn answered(&self, status: u16, now: Duration, draw: f64) -> Option<Condition> {
        if !self.is_busy.load(Ordering::Relaxed) {
            self.is_busy.store(true, Ordering::Relaxed);
        }
        if status != 500 && self.is_plain.load(Ordering::Relaxed) {
            return None;
        }
        self.change(|health, limits| health.answered(limits, status, now, draw))
    }

    /// It was probed. Its new condition, if that changed.
    pub(super) fn probed(&self, passed: bool, now: Duration) -> Option<Condition> {
        let busy = self.is_busy.swap(false, Ordering::Relaxed);
        self.change(|health, limits| health.probed(limits, passed, busy, now))
    }

    fn change(&self, event: impl FnOnce(&mut Health, &HealthLimits) -> bool) -> Option<Condition> {
        let mut health = self.lock_health();
        self.is_plain.store(false, Ordering::Relaxed);
        event(&mut health, &self.limits).then(|| health.condition().0)
    }

    fn lock_health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes when the engine was started anew, and so lost what it had cached.
    pub fn incarnation(&self) -> u32 {
        self.incarnation.load(Ordering::Relaxed)
    }

    /// Takes note that it is another process now, or none.
    pub fn restarted(&self) {
        self.incarnation.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an attempt until the guard is dropped.
    pub fn enter(&self) -> InFlight {
        self.attempts.in_flight.fetch_add(1, Ordering::Relaxed);
        self.attempts.begun.fetch_add(1, Ordering::Relaxed);
        InFlight {
            attempts: Arc::clone(&self.attempts),
            answering: false,
        }
    }
}

/// The name of an engine that was given none: the start of a hash of its URL.
fn short_name(url: &EngineUrl) -> Box<str> {
    let hash = xxh3_64(url.to_string().as_bytes());
    format!("{:012x}", hash >> 16).into()
}

/// The attempts of one engine.
#[derive(Debug, Default)]
struct Counts {
    in_flight: AtomicUsize,
    answering: AtomicUsize,
    begun: AtomicU64,
}

/// An attempt that runs on an engine.
#[derive(Debug)]
pub struct InFlight {
    attempts: Arc<Counts>,
    answering: bool,
}

impl InFlight {
    /// Its answer has begun to come; said again, it changes nothing.
    pub fn answers(&mut self) {
        if !self.answering {
            self.answering = true;
            self.attempts.answering.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.attempts.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.answering {
            self.attempts.answering.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(url: &str) -> Engine {
        Engine::new(
            EngineId::new(0),
            &EngineSpec::new(url.parse().unwrap(), Vec::new()),
            &HealthLimits::default(),
        )
    }

    #[test]
    fn literal_addresses_need_no_lookup() {
        let v4 = engine("http://127.0.0.1:9001");
        assert_eq!(v4.addresses_to_try(), ["127.0.0.1:9001".parse().unwrap()]);
        let v6 = engine("http://[::1]:9001/base");
        assert_eq!(v6.address(), Some("[::1]:9001".parse().unwrap()));
        assert!(!v6.has_name());
    }

    #[test]
    fn the_address_that_worked_last_is_tried_first_and_the_others_once_each() {
        let engine = engine("http://somewhere:1");
        assert_eq!(engine.address(), None);
        let all: Vec<SocketAddr> = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
            .map(|a| a.parse().unwrap())
            .to_vec();
        engine.addresses.store(Arc::new(all.clone()));
        for first in &all {
            engine.connected(*first);
            let mut sorted = engine.addresses_to_try();
            assert_eq!((sorted[0], engine.address()), (*first, Some(*first)));
            sorted.sort_unstable();
            assert_eq!(sorted, all);
        }
    }

    #[test]
    fn an_engine_without_a_name_has_one_that_never_changes_and_tells_nothing() {
        let (one, other) = (
            engine("http://127.0.0.1:9001"),
            engine("http://127.0.0.1:9002"),
        );
        assert_eq!(one.name(), engine("http://127.0.0.1:9001").name());
        assert_ne!(one.name(), other.name());
        assert_eq!(one.name().len(), 12);
    }

    #[test]
    fn our_own_requests_are_not_counted_twice() {
        let engine = engine("http://127.0.0.1:1");
        let _running: Vec<_> = (0..3).map(|_| engine.enter()).collect();
        let gauges = |running, waiting| Gauges {
            running,
            waiting,
            ..Gauges::default()
        };
        engine.report(Some(&gauges(3.0, 0.0)));
        assert_eq!(engine.load().to_bits(), 3f64.to_bits());
        engine.report(Some(&gauges(4.0, 2.0)));
        // Three of ours, three of others, and two of them wait.
        assert_eq!(engine.load().to_bits(), 8f64.to_bits());
        engine.report(None);
        assert_eq!(engine.load().to_bits(), 3f64.to_bits());
    }

    #[test]
    fn running_attempts_are_counted_until_they_end() {
        let engine = engine("http://127.0.0.1:1");
        let (one, mut two) = (engine.enter(), engine.enter());
        assert_eq!((engine.in_flight(), engine.answering()), (2, 0));
        two.answers();
        two.answers();
        assert_eq!((engine.in_flight(), engine.answering()), (2, 1));
        drop(one);
        drop(two);
        assert_eq!((engine.in_flight(), engine.answering()), (0, 0));
        assert_eq!(engine.begun(), 2);
    }
}
