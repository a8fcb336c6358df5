//! What goes on behind requests: engines are found, names looked up again, models asked for again,
//! loads read, engines probed and made to work.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::{ServiceReadyNotifier, ServiceWithDependents};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{ASK_LIMIT, Search};
use crate::config::Settings;
use crate::engines::{Catalog, EngineKey, Fleet, InferenceProber, Prober, Scraper, attend};

/// How long the first round may hold up the first request.
const FIRST_ROUND: Duration = Duration::from_secs(5);

/// What is to be done, and how often.
#[derive(Debug)]
pub struct Duties {
    models_refresh: Duration,
    /// Where the routing logic weighs loads.
    scraper: Option<Scraper>,
    prober: Option<Prober>,
    inference_prober: Option<InferenceProber>,
}

impl Duties {
    /// The duties towards `fleet` under these settings.
    pub fn new(
        settings: &Settings,
        fleet: &Arc<Fleet>,
        catalog: &Arc<Catalog>,
        key: &Arc<EngineKey>,
    ) -> Self {
        let scraper = settings
            .engine_stats_interval
            .filter(|_| settings.routing.kind.weighs_load())
            .map(|interval| Scraper::new(fleet, interval, ASK_LIMIT, Arc::clone(key)));
        let probe = settings.probe.clone();
        Self {
            inference_prober: settings
                .inference_probe
                .map(|probe| InferenceProber::new(fleet, probe, Arc::clone(key))),
            prober: probe.map(|probe| Prober::new(fleet, catalog, probe, Arc::clone(key))),
            scraper,
            models_refresh: settings.models_refresh,
        }
    }
}

/// Keeps what is known of the fleet fresh.
#[derive(Clone, Debug)]
pub struct Upkeep {
    fleet: Arc<Fleet>,
    search: Arc<Search>,
    catalog: Arc<Catalog>,
    duties: watch::Receiver<Arc<Duties>>,
}

impl Upkeep {
    /// The upkeep of `fleet`, which `search` is for, as `duties` say.
    pub fn new(
        fleet: Arc<Fleet>,
        search: Arc<Search>,
        catalog: Arc<Catalog>,
        duties: watch::Receiver<Arc<Duties>>,
    ) -> Self {
        Self {
            fleet,
            search,
            catalog,
            duties,
        }
    }

    fn duties(&self) -> Arc<Duties> {
        Arc::clone(&self.duties.borrow())
    }

    /// Looks names up, asks for models and reads loads once.
    pub async fn round(&self) {
        self.search.resolve().await;
        let silent = self.fleet.silent();
        let duties = self.duties();
        tokio::join!(self.catalog.learn(&silent), async {
            if let Some(scraper) = &duties.scraper {
                scraper.round(Duration::ZERO).await;
            }
        });
    }

    /// Probes every engine once.
    pub async fn probe(&self) {
        if let Some(prober) = &self.duties().prober {
            prober.round().await;
        }
    }

    /// Makes every engine work once; `turn` says which of its models is asked for, from 0 on.
    pub async fn probe_inference(&self, turn: usize) {
        if let Some(prober) = &self.duties().inference_prober {
            prober.round(turn).await;
        }
    }

    /// Goes on for ever. `ready` is called once engines are found, names looked up and models asked
    /// for; or once that has taken too long.
    pub async fn run(&mut self, ready: impl FnOnce()) {
        let search = Arc::clone(&self.search);
        tokio::select! {
            () = search.run() => {}
            () = async {
                if timeout(FIRST_ROUND, self.first_round()).await.is_err() {
                    log::warn!("engines are slow to be found; serving without them for now");
                }
                ready();
                loop {
                    self.keep_up().await;
                }
            } => {}
        }
    }

    async fn first_round(&self) {
        self.fleet.complete().await;
        self.round().await;
        self.probe().await;
    }

    /// Goes on until duties change.
    async fn keep_up(&mut self) {
        let duties = Arc::clone(&self.duties.borrow_and_update());
        let Duties {
            models_refresh,
            scraper,
            prober,
            inference_prober,
        } = &*duties;
        let mut changes = self.duties.clone();
        tokio::select! {
            // Where nobody can change them any more, they stay.
            Ok(()) = changes.changed() => {}
            () = self.keep_learning(*models_refresh) => {}
            () = run(scraper.as_ref().map(Scraper::run)) => {}
            () = run(prober.as_ref().map(Prober::run)) => {}
            () = run(inference_prober.as_ref().map(InferenceProber::run)) => {}
        }
    }

    /// Asks engines for their models: at once where these are not known, as of one that has just
    /// been found, and then every `interval`.
    async fn keep_learning(&self, interval: Duration) {
        attend(&self.fleet, |engine| async move {
            if self.fleet.is_heard(engine.id()) {
                tokio::time::sleep(interval).await;
            }
            loop {
                if self.fleet.is_silent(engine.id()) {
                    self.catalog.learn(&[Arc::clone(&engine)]).await;
                }
                tokio::time::sleep(interval).await;
            }
        })
        .await;
    }
}

/// Does a duty for ever, or nothing where it is none.
async fn run(duty: Option<impl Future<Output = ()>>) {
    match duty {
        Some(duty) => duty.await,
        None => std::future::pending().await,
    }
}

#[async_trait]
impl ServiceWithDependents for Upkeep {
    async fn start_service(
        &mut self,
        _fds: Option<ListenFds>,
        mut shutdown: ShutdownWatch,
        _listeners: usize,
        ready: ServiceReadyNotifier,
    ) {
        tokio::select! {
            () = self.run(|| ready.notify_ready()) => {}
            _ = shutdown.wait_for(|down| *down) => {}
        }
    }

    fn name(&self) -> &'static str {
        "upkeep"
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}
