//! The way down: announce it, stop accepting, finish what runs.

use std::sync::Arc;

use pingora_core::server::ShutdownWatch;
use tokio::sync::watch;

/// Leads a listener and its connections to their end, and counts the connections still open.
#[derive(Clone, Debug)]
pub struct Drain {
    closing: Arc<watch::Sender<bool>>,
    stop: Arc<watch::Sender<bool>>,
    open: Arc<watch::Sender<usize>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            closing: Arc::new(watch::Sender::new(false)),
            stop: Arc::new(watch::Sender::new(false)),
            open: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Drain {
    /// Turns true once the end is near: clients are told to go elsewhere for their next request.
    pub fn closing(&self) -> ShutdownWatch {
        self.closing.subscribe()
    }

    /// Turns true once nothing new is accepted.
    pub fn watch(&self) -> ShutdownWatch {
        self.stop.subscribe()
    }

    /// Announces the end, while listeners still accept.
    pub fn announce(&self) {
        self.closing.send_replace(true);
    }

    /// Begins to drain: listeners stop, idle connections close, running requests go on.
    pub fn begin(&self) {
        self.announce();
        self.stop.send_replace(true);
    }

    /// Counts a connection until the guard is dropped.
    pub fn enter(&self) -> OpenConnection {
        self.open.send_modify(|open| *open += 1);
        OpenConnection(Arc::clone(&self.open))
    }

    /// The connections that are open now.
    pub fn open(&self) -> usize {
        *self.open.borrow()
    }

    /// Waits until every connection is closed.
    pub async fn finished(&self) {
        // It fails only without a sender, and we are one.
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

/// A connection that is open.
#[derive(Debug)]
pub struct OpenConnection(Arc<watch::Sender<usize>>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open = open.saturating_sub(1));
    }
}
