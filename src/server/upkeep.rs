//! What goes on behind requests: names are looked up again, models asked for again, loads read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::{ServiceReadyNotifier, ServiceWithDependents};
use tokio::time::timeout;

use super::ASK_LIMIT;
use crate::config::{Secret, Settings};
use crate::engines::{Catalog, Engine, Fleet, Prober, Scraper};

/// How often the names of engines are looked up again.
const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);
/// How long the first round may hold up the first request.
const FIRST_ROUND: Duration = Duration::from_secs(5);

/// Keeps the fleet's addresses and models fresh.
#[derive(Debug)]
pub struct Upkeep {
    named: Vec<Arc<Engine>>,
    /// Engines whose models are not configured.
    silent: Vec<Arc<Engine>>,
    catalog: Arc<Catalog>,
    models_refresh: Duration,
    /// Where the routing logic weighs loads.
    scraper: Option<Scraper>,
    prober: Option<Prober>,
}

impl Upkeep {
    /// The upkeep of `fleet` under these settings.
    pub fn new(settings: &Settings, fleet: &Arc<Fleet>, catalog: Arc<Catalog>) -> Self {
        let engines = || fleet.engines().iter().zip(&settings.engines);
        let named = engines().filter(|(engine, _)| engine.has_name());
        let silent = engines().filter(|(_, spec)| spec.models.is_empty());
        let scraper = settings
            .engine_stats_interval
            .filter(|_| settings.routing.kind.weighs_load())
            .map(|interval| Scraper::new(fleet.engines(), interval, ASK_LIMIT));
        let key = settings.engine_api_key.as_ref().map(Secret::expose);
        let probe = settings.probe.clone();
        Self {
            prober: probe.map(|probe| Prober::new(fleet, probe, key)),
            scraper,
            named: named.map(|(engine, _)| Arc::clone(engine)).collect(),
            silent: silent.map(|(engine, _)| Arc::clone(engine)).collect(),
            catalog,
            models_refresh: settings.models_refresh,
        }
    }

    /// Looks names up, asks for models and reads loads once.
    pub async fn round(&self) {
        self.resolve().await;
        tokio::join!(self.catalog.learn(&self.silent), self.read_loads());
    }

    async fn read_loads(&self) {
        if let Some(scraper) = &self.scraper {
            scraper.round(Duration::ZERO).await;
        }
    }

    /// Probes every engine once.
    pub async fn probe(&self) {
        if let Some(prober) = &self.prober {
            prober.round().await;
        }
    }

    async fn keep_probing(&self) {
        if let Some(prober) = &self.prober {
            prober.run().await;
        }
    }

    async fn keep_reading_loads(&self) {
        if let Some(scraper) = &self.scraper {
            scraper.run().await;
        }
    }

    async fn resolve(&self) {
        join_all(self.named.iter().map(async |engine| {
            if let Err(error) = engine.resolve().await {
                log::warn!("engine={} could not be resolved: {error}", engine.label());
            }
        }))
        .await;
    }

    async fn keep_resolving(&self) {
        if self.named.is_empty() {
            return;
        }
        loop {
            tokio::time::sleep(RESOLVE_INTERVAL).await;
            self.resolve().await;
        }
    }

    async fn keep_learning(&self) {
        if self.silent.is_empty() {
            return;
        }
        loop {
            tokio::time::sleep(self.models_refresh).await;
            self.catalog.learn(&self.silent).await;
        }
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
        if timeout(FIRST_ROUND, self.round()).await.is_err() {
            log::warn!("engines are slow to be found; serving without them for now");
        }
        ready.notify_ready();
        tokio::select! {
            _ = async { tokio::join!(self.keep_resolving(), self.keep_learning(), self.keep_reading_loads(), self.keep_probing()) } => {}
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
