//! Waiting for what an engine gets: woken by it, and never for ever.

use tokio::time::Instant;

use super::ScriptedEngine;
use super::log::{Connection, Delivery, Log};
use crate::support::patience::within;
use crate::support::wire::Close;

impl ScriptedEngine {
    /// Waits for at least `n` deliveries, and returns them all.
    #[track_caller]
    pub fn wait_for_deliveries(&self, n: usize) -> impl Future<Output = Vec<Delivery>> {
        let wanted = move |log: &Log| {
            let seen = log.deliveries.iter().filter(|d| !d.routed);
            (seen.clone().count() >= n).then(|| seen.cloned().collect())
        };
        self.wait_until(format!("{n} deliveries"), wanted)
    }

    /// Waits for at least `n` requests that were answered in full, and returns them all.
    #[track_caller]
    pub fn wait_for_answered(&self, n: usize) -> impl Future<Output = Vec<Delivery>> {
        self.wait_until(format!("{n} answered requests"), move |log| {
            let answered = log.deliveries.iter().filter(|d| d.answered && !d.routed);
            (answered.clone().count() >= n).then(|| answered.cloned().collect())
        })
    }

    /// Waits for at least `n` requests for this path, of a route or not.
    #[track_caller]
    pub fn wait_for_deliveries_to(
        &self,
        path: &str,
        n: usize,
    ) -> impl Future<Output = Vec<Delivery>> {
        let what = format!("{n} deliveries to {path}");
        let path = path.to_owned();
        let wanted = move |log: &Log| {
            let seen = log.deliveries.iter().filter(|d| d.path() == path);
            (seen.clone().count() >= n).then(|| seen.cloned().collect())
        };
        self.wait_until(what, wanted)
    }

    /// Waits for at least `n` connections.
    #[track_caller]
    pub fn wait_for_connections(&self, n: usize) -> impl Future<Output = Vec<Connection>> {
        self.wait_until(format!("{n} connections"), move |log| {
            (log.connections.len() >= n).then(|| log.connections.clone())
        })
    }

    /// Waits until `n` requests got their headers through; those of routes not counted.
    #[track_caller]
    pub fn wait_for_begun(&self, n: usize) -> impl Future<Output = ()> {
        let enough = move |log: &Log| (log.requests_begun >= n).then_some(());
        self.wait_until(format!("{n} requests begun"), enough)
    }

    /// Waits for the end of connection `i` (counted from 0), whichever side makes it.
    #[track_caller]
    pub fn wait_for_connection_end(&self, i: usize) -> impl Future<Output = Connection> {
        self.wait_until(format!("the end of connection {i}"), move |log| {
            let over = |c: &&Connection| c.peer_close.is_some() || c.engine_close.is_some();
            log.connections.get(i).filter(over).cloned()
        })
    }

    /// Waits until the peer is seen to end connection `i`, and says how and when.
    #[track_caller]
    pub fn wait_for_peer_close(&self, i: usize) -> impl Future<Output = (Close, Instant)> {
        self.wait_until(format!("the peer to end connection {i}"), move |log| {
            log.connections
                .get(i)
                .and_then(|connection| connection.peer_close)
        })
    }

    #[track_caller]
    fn wait_until<T>(
        &self,
        what: String,
        done: impl Fn(&Log) -> Option<T>,
    ) -> impl Future<Output = T> {
        let mut changes = self.shared.changes.subscribe();
        let found = async move {
            loop {
                if let Some(found) = self.shared.read(&done) {
                    return found;
                }
                changes
                    .changed()
                    .await
                    .expect("the engine holds the sender");
            }
        };
        let complaint = move || {
            self.shared.read(|log| {
                let connections = log.connections.len();
                let seen: Vec<_> = log.deliveries.iter().map(|d| d.target.as_str()).collect();
                format!(
                    "the engine on {} waited for {what}, but has {connections} connections, \
                     {} requests begun, deliveries {seen:?}, errors {:?}",
                    self.addr, log.requests_begun, log.errors,
                )
            })
        };
        let patience = *self.shared.patience.lock().unwrap();
        within(patience, complaint, found)
    }
}
