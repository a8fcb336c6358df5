//! What goes on behind requests: names are looked up again, models asked for again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::{ServiceReadyNotifier, ServiceWithDependents};
use tokio::time::timeout;

use crate::config::Settings;
use crate::engines::{Catalog, Engine, Fleet};

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
}

impl Upkeep {
    /// The upkeep of `fleet` under these settings.
    pub fn new(settings: &Settings, fleet: &Fleet, catalog: Arc<Catalog>) -> Self {
        let engines = || fleet.engines().iter().zip(&settings.engines);
        let named = engines().filter(|(engine, _)| engine.has_name());
        let silent = engines().filter(|(_, spec)| spec.models.is_empty());
        Self {
            named: named.map(|(engine, _)| Arc::clone(engine)).collect(),
            silent: silent.map(|(engine, _)| Arc::clone(engine)).collect(),
            catalog,
            models_refresh: settings.models_refresh,
        }
    }

    /// Looks names up and asks for models once.
    pub async fn round(&self) {
        self.resolve().await;
        self.catalog.learn(&self.silent).await;
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
            _ = async { tokio::join!(self.keep_resolving(), self.keep_learning()) } => {}
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
