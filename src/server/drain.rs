//! The way down: stop accepting, finish what runs, exit.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch, ShutdownWatch};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Tells listeners to stop, and counts the connections that are still open.
#[derive(Clone, Debug)]
pub struct Drain {
    stop: Arc<watch::Sender<bool>>,
    open: Arc<watch::Sender<usize>>,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            stop: Arc::new(watch::Sender::new(false)),
            open: Arc::new(watch::Sender::new(0)),
        }
    }
}

impl Drain {
    /// Turns true once draining has begun.
    pub fn watch(&self) -> ShutdownWatch {
        self.stop.subscribe()
    }

    /// Begins to drain: listeners stop, idle connections close, running requests go on.
    pub fn begin(&self) {
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

/// Turns signals into the end of the server: TERM drains and a second one ends at once, as INT
/// does.
#[derive(Debug)]
pub struct Signals {
    drain: Drain,
    grace_period: Duration,
}

impl Signals {
    /// Running requests get `grace_period` to finish.
    pub fn new(drain: Drain, grace_period: Duration) -> Self {
        Self {
            drain,
            grace_period,
        }
    }

    async fn await_end(&self) -> std::io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => return Ok(()),
        }
        let grace = self.grace_period;
        log::info!(
            "draining: {} connections open, grace period {grace:?}",
            self.drain.open()
        );
        self.drain.begin();
        tokio::select! {
            () = self.drain.finished() => {}
            () = tokio::time::sleep(grace) => {
                log::warn!("the grace period is over: {} connections are cut", self.drain.open());
            }
            _ = terminate.recv() => log::warn!("a second signal: {} connections are cut", self.drain.open()),
            _ = interrupt.recv() => log::warn!("a second signal: {} connections are cut", self.drain.open()),
        }
        Ok(())
    }
}

#[async_trait]
impl ShutdownSignalWatch for Signals {
    async fn recv(&self) -> ShutdownSignal {
        if let Err(error) = self.await_end().await {
            log::error!("signals cannot be received: {error}");
        }
        // All waiting is done, so Pingora need not wait any more.
        ShutdownSignal::FastShutdown
    }
}
