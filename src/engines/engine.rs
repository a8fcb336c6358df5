//! One engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::config::EngineUrl;

/// Names one engine for the life of the process; never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineId(u32);

impl EngineId {
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
    addresses: ArcSwap<Vec<SocketAddr>>,
    /// Place of the address that was connected to last.
    preferred: AtomicUsize,
    in_flight: Arc<AtomicUsize>,
}

impl Engine {
    /// An engine at `url`. One whose host is a name has no address until [`resolve`](Self::resolve).
    pub fn new(id: EngineId, url: EngineUrl) -> Self {
        let literal = url.host().parse::<IpAddr>().ok();
        let addresses = literal
            .map(|ip| SocketAddr::new(ip, url.port()))
            .into_iter()
            .collect();
        Self {
            id,
            label: url.to_string().into(),
            url,
            addresses: ArcSwap::from_pointee(addresses),
            preferred: AtomicUsize::new(0),
            in_flight: Arc::default(),
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

    /// Its name for people: the URL.
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
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Counts an attempt until the guard is dropped.
    pub fn enter(&self) -> InFlight {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(Arc::clone(&self.in_flight))
    }
}

/// An attempt that runs on an engine.
#[derive(Debug)]
pub struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(url: &str) -> Engine {
        Engine::new(EngineId::new(0), url.parse().unwrap())
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
    fn running_attempts_are_counted_until_they_end() {
        let engine = engine("http://127.0.0.1:1");
        let (one, two) = (engine.enter(), engine.enter());
        assert_eq!(engine.in_flight(), 2);
        drop(one);
        drop(two);
        assert_eq!(engine.in_flight(), 0);
    }
}
