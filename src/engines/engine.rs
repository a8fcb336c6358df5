//! One engine.

mod health;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use super::gauges::Gauges;
use super::health::HealthLimits;
use super::model_type::ModelType;
use super::state::{Counts, State};
use crate::config::{EngineSpec, EngineUrl};
use crate::discovery::{Families, Located, Question};
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

/// One vLLM server: what the configuration says of it, and what has become known of it since.
///
/// The second outlives a change of the first: see `respecified`.
#[derive(Debug)]
pub struct Engine {
    id: EngineId,
    url: EngineUrl,
    label: Arc<str>,
    name: Box<str>,
    /// The configuration gave the name.
    is_named: bool,
    weight: u32,
    /// The configuration says what it serves.
    declares_models: bool,
    model_type: ModelType,
    limits: HealthLimits,
    state: Arc<State>,
}

impl Engine {
    /// An engine. One whose host is a name has no address until it has [`moved`](Self::moved) there.
    pub fn new(id: EngineId, spec: &EngineSpec, limits: &HealthLimits) -> Self {
        let literal = spec.url.host().parse::<IpAddr>().ok();
        let addresses = literal.map(|ip| SocketAddr::new(ip, spec.url.port()));
        let state = State::new(addresses.into_iter().collect());
        Self::with_state(id, spec, limits, Arc::new(state))
    }

    /// The same engine, under a changed configuration.
    pub(super) fn respecified(&self, spec: &EngineSpec, limits: &HealthLimits) -> Self {
        self.state.is_plain.store(false, Ordering::Relaxed);
        Self::with_state(self.id, spec, limits, Arc::clone(&self.state))
    }

    fn with_state(
        id: EngineId,
        spec: &EngineSpec,
        limits: &HealthLimits,
        state: Arc<State>,
    ) -> Self {
        let url = spec.url.clone();
        Self {
            id,
            label: url.to_string().into(),
            name: spec
                .id
                .as_deref()
                .map_or_else(|| short_name(&url), Into::into),
            is_named: spec.id.is_some(),
            weight: spec.weight,
            declares_models: !spec.models.is_empty(),
            model_type: spec.model_type.unwrap_or_default(),
            url,
            limits: *limits,
            state,
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

    /// Whether the configuration says what it serves; else it is asked.
    pub fn declares_models(&self) -> bool {
        self.declares_models
    }

    /// What its models are for.
    pub fn model_type(&self) -> ModelType {
        self.model_type
    }

    /// Whether the configuration means this engine: the one at its place, unless both have names
    /// and they differ, as those of two pods that had one address after each other.
    pub(super) fn is(&self, spec: &EngineSpec) -> bool {
        let name = spec.id.as_deref().filter(|_| self.is_named);
        self.url == spec.url && name.is_none_or(|name| *self.name == *name)
    }

    /// It does not belong to the fleet any more: no attempt begins on it.
    pub fn is_gone(&self) -> bool {
        self.state.gone.load(Ordering::Relaxed)
    }

    /// It leaves the fleet.
    pub(super) fn leave(&self) {
        self.state.gone.store(true, Ordering::Relaxed);
    }

    /// Its name in logs and metrics: the URL.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// Whether its host is a name, whose addresses may change.
    pub fn has_name(&self) -> bool {
        self.url.host().parse::<IpAddr>().is_err()
    }

    /// What to ask the DNS for its addresses; `None` where they are known.
    pub fn question(&self) -> Option<Question> {
        self.has_name().then(|| Question::Addresses {
            host: self.url.host().to_owned(),
            port: self.url.port(),
            families: Families::Both,
        })
    }

    /// Takes note of where its name leads to now.
    pub fn moved(&self, found: &[Located]) {
        let mut found: Vec<_> = found.iter().map(|place| place.address).collect();
        // IPv4 first, and in one order however they come.
        found.sort_unstable();
        if **self.state.addresses.load() != found {
            log::info!("engine={} resolved to {found:?}", self.label);
            self.state.preferred.store(0, Ordering::Relaxed);
            self.state.addresses.store(Arc::new(found));
            self.state.moves.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What its pooled connections are kept under: no other engine has it, nor this one before its
    /// addresses changed, as somebody else may be there by now.
    pub fn pool_key(&self) -> u64 {
        let moves = self.state.moves.load(Ordering::Relaxed);
        u64::from(moves) << 32 | self.id.number()
    }

    /// The address that worked last, or the first one known.
    pub fn address(&self) -> Option<SocketAddr> {
        let addresses = self.state.addresses.load();
        let preferred = addresses.get(self.state.preferred.load(Ordering::Relaxed));
        preferred.or(addresses.first()).copied()
    }

    /// The addresses in the order to try them: the one that worked last comes first.
    pub fn addresses_to_try(&self) -> Vec<SocketAddr> {
        let mut addresses = self.addresses();
        let preferred = self.state.preferred.load(Ordering::Relaxed);
        if let Some(before) = addresses.get_mut(..=preferred) {
            before.rotate_right(1);
        }
        addresses
    }

    /// The addresses known now.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.state.addresses.load().to_vec()
    }

    /// Remembers that `address` accepted a connection.
    pub fn connected(&self, address: SocketAddr) {
        let addresses = self.state.addresses.load();
        if let Some(place) = addresses.iter().position(|known| *known == address) {
            self.state.preferred.store(place, Ordering::Relaxed);
        }
    }

    /// Attempts that run on it now.
    pub fn in_flight(&self) -> usize {
        self.state.attempts.in_flight.load(Ordering::Relaxed)
    }

    /// Those of them whose answer has begun to come.
    pub fn answering(&self) -> usize {
        self.state.attempts.answering.load(Ordering::Relaxed)
    }

    /// Attempts that have begun on it since it is known.
    pub fn begun(&self) -> u64 {
        self.state.attempts.begun.load(Ordering::Relaxed)
    }

    /// How busy it is, per unit of its weight; 0 is idle.
    pub fn load(&self) -> f64 {
        let (others, kv_cache) = self.state.reported.get();
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
            return self.state.reported.set(0.0, 0.0);
        };
        #[allow(clippy::cast_precision_loss)] // no engine has 2^52 requests
        let own = self.in_flight() as f64;
        let foreign = (gauges.running + gauges.waiting - own).max(0.0);
        self.state
            .reported
            .set(foreign + gauges.waiting, gauges.kv_cache);
    }

    /// Changes when the engine was started anew, and so lost what it had cached.
    pub fn incarnation(&self) -> u32 {
        self.state.incarnation.load(Ordering::Relaxed)
    }

    /// Takes note that it is another process now, or none.
    pub fn restarted(&self) {
        self.state.incarnation.fetch_add(1, Ordering::Relaxed);
    }

    /// Its list of models is doubted; whether that has not been for as long as `rest`.
    pub(super) fn doubt(&self, now: Duration, rest: Duration) -> bool {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = millis(now).saturating_add(1);
        let doubted = &self.state.doubted;
        let last = doubted.load(Ordering::Relaxed);
        let is_due = last == 0 || now >= last.saturating_add(millis(rest));
        // Of several at the same time one is the first.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        is_due
            && doubted
                .compare_exchange(last, now, success, failure)
                .is_ok()
    }

    /// Counts an attempt until the guard is dropped.
    pub fn enter(&self) -> InFlight {
        self.state
            .attempts
            .in_flight
            .fetch_add(1, Ordering::Relaxed);
        self.state.attempts.begun.fetch_add(1, Ordering::Relaxed);
        InFlight {
            attempts: Arc::clone(&self.state.attempts),
            answering: false,
        }
    }
}

/// The name of an engine that was given none: the start of a hash of its URL.
fn short_name(url: &EngineUrl) -> Box<str> {
    let hash = xxh3_64(url.to_string().as_bytes());
    format!("{:012x}", hash >> 16).into()
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

    fn places(addresses: &[SocketAddr]) -> Vec<Located> {
        let place = |address: &SocketAddr| Located {
            address: *address,
            weight: 1,
        };
        addresses.iter().map(place).collect()
    }

    #[test]
    fn a_name_is_asked_for_and_an_address_is_not() {
        assert_eq!(engine("http://127.0.0.1:9001").question(), None);
        let question = engine("http://somewhere:9001").question().unwrap();
        assert_eq!(question.name(), "somewhere");
    }

    #[test]
    fn connections_are_kept_under_another_key_once_the_addresses_have_changed() {
        let engine = engine("http://somewhere:1");
        let [one, other] = ["10.0.0.1:1", "10.0.0.2:1"].map(|a| a.parse().unwrap());
        engine.moved(&places(&[one, other]));
        let key = engine.pool_key();
        engine.connected(other);
        engine.moved(&places(&[other, one]));
        assert_eq!((engine.pool_key(), engine.address()), (key, Some(other)));
        engine.moved(&places(&[one]));
        assert_ne!(engine.pool_key(), key);
        assert_eq!(engine.address(), Some(one));
    }

    #[test]
    fn the_address_that_worked_last_is_tried_first_and_the_others_once_each() {
        let engine = engine("http://somewhere:1");
        assert_eq!(engine.address(), None);
        let all: Vec<SocketAddr> = ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"]
            .map(|a| a.parse().unwrap())
            .to_vec();
        engine.moved(&places(&all));
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
