//! What signals ask for: the end, at once or with care, or to hand over to another process.

use std::future::pending;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ShutdownSignal, ShutdownSignalWatch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use super::handover::Handover;
use super::{Drain, Reloader};
use crate::logging;
use crate::watched_file::WatchedFile;

/// How long both processes accept after a handover: the new one may not be ready at once, and
/// clients with open connections learn from their next answer that they should open another.
const OVERLAP: Duration = Duration::from_secs(5);

/// How long each step to the end may take.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// From the announcement until nothing new is accepted: load balancers have to hear of it.
    pub settle: Duration,
    /// From then on, for running requests to finish.
    pub grace: Duration,
}

/// Does what signals ask for.
///
/// HUP reads the configuration again, as does a change of its file where that is watched, and
/// opens the access log's file anew. TERM drains, and a second one ends at once, as INT does. QUIT
/// hands the listeners over to a new process that waits for them, and drains; where there is
/// nowhere to hand them over, it is a TERM.
#[derive(Debug)]
pub struct Signals {
    public: Drain,
    admin: Drain,
    pace: Pace,
    handover: Option<Arc<Handover>>,
    reloader: Reloader,
    /// The file that is watched.
    watched: Option<PathBuf>,
    /// What to log once signals are heard.
    welcome: String,
}

impl Signals {
    /// Leads these listeners to their end at this pace. `watched` is the file to reload for when it
    /// changes; `welcome` is logged once signals are heard.
    pub fn new(
        public: Drain,
        admin: Drain,
        pace: Pace,
        handover: Option<Handover>,
        reloader: Reloader,
        watched: Option<PathBuf>,
        welcome: String,
    ) -> Self {
        Self {
            public,
            admin,
            pace,
            handover: handover.map(Arc::new),
            reloader,
            watched,
            welcome,
        }
    }

    async fn await_end(&self) -> io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut quit = signal(SignalKind::quit())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut file = self.watched.as_deref().map(WatchedFile::new);
        if let Some(file) = &mut file {
            // What is there now has just been read.
            let _ = file.changed().await;
        }
        log::info!("{}", self.welcome);
        let settle = loop {
            tokio::select! {
                _ = terminate.recv() => break self.pace.settle,
                _ = interrupt.recv() => return Ok(()),
                _ = hangup.recv() => {
                    // Whoever rotates logs says so by this signal, too.
                    logging::reopen();
                    self.reloader.reload();
                }
                () = changed(file.as_mut()) => {
                    self.reloader.reload();
                }
                _ = quit.recv() => match &self.handover {
                    None => break self.pace.settle,
                    Some(handover) => if self.hand_over(handover).await {
                        break OVERLAP.max(self.pace.settle);
                    }
                },
            }
        };
        tokio::select! {
            () = self.wind_down(settle) => {}
            () = any(&mut terminate, &mut interrupt) => {
                log::warn!("a second signal: {} connections are cut", self.public.open());
            }
        }
        Ok(())
    }

    /// Whether another process has the listeners now.
    async fn hand_over(&self, handover: &Arc<Handover>) -> bool {
        let handover = Arc::clone(handover);
        let sent = tokio::task::spawn_blocking(move || handover.send());
        match sent
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
        {
            Ok(()) => {
                log::info!("the listeners are handed over");
                // Whoever asks there now means the new process.
                self.admin.begin();
                true
            }
            Err(error) => {
                log::error!("the listeners are not handed over, and stay here: {error}");
                false
            }
        }
    }

    async fn wind_down(&self, settle: Duration) {
        let grace = self.pace.grace;
        log::info!(
            "draining: {} connections open, accepting for {settle:?}, then grace period {grace:?}",
            self.public.open()
        );
        self.public.announce();
        sleep(settle).await;
        self.public.begin();
        tokio::select! {
            () = self.public.finished() => {}
            () = sleep(grace) => {
                log::warn!("the grace period is over: {} connections are cut", self.public.open());
            }
        }
    }
}

/// Waits until the file has another content than before; for ever where none is watched.
async fn changed(file: Option<&mut WatchedFile>) {
    match file {
        Some(file) => drop(file.changed().await),
        None => pending().await,
    }
}

async fn any(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
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
