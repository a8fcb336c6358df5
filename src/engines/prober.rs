//! Probes the engines' health, off the path of requests.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::RngExt as _;

use super::attend::attend;
use super::{Asker, Engine, EngineKey, Fleet};

/// The share by which the time between two probes is spread, so that they do not come in step.
const SPREAD: f64 = 0.1;

/// What is asked, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The path, below the engine's prefix.
    pub path: String,
    /// Between two probes of an engine.
    pub interval: Duration,
    /// For the whole answer; longer is a failure.
    pub timeout: Duration,
}

/// Probes the engines of a fleet.
#[derive(Debug)]
pub struct Prober {
    fleet: Arc<Fleet>,
    asker: Asker,
    probe: Probe,
    key: Arc<EngineKey>,
}

impl Prober {
    /// A prober of `fleet`; `key` is presented to engines.
    pub fn new(fleet: &Arc<Fleet>, probe: Probe, key: Arc<EngineKey>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            asker: Asker::new(probe.timeout),
            probe,
            key,
        }
    }

    /// Probes every engine once, now.
    pub async fn round(&self) {
        join_all(self.fleet.engines().iter().map(|engine| self.look(engine))).await;
    }

    /// Goes on probing whoever belongs to the fleet, for ever.
    pub async fn run(&self) {
        attend(&self.fleet, |engine| async move {
            let first: f64 = rand::rng().random();
            tokio::time::sleep(self.probe.interval.mul_f64(first)).await;
            loop {
                self.look(&engine).await;
                let spread: f64 = rand::rng().random_range(1.0 - SPREAD..1.0 + SPREAD);
                tokio::time::sleep(self.probe.interval.mul_f64(spread)).await;
            }
        })
        .await;
    }

    async fn look(&self, engine: &Arc<Engine>) {
        let authorization = self.key.authorization();
        let authorization = authorization.as_deref().map(String::as_bytes);
        let answer = self
            .asker
            .get(engine, &self.probe.path, authorization)
            .await;
        // An engine that says that it is not well is not; what it thinks of the path is no matter.
        let passed = matches!(answer, Ok((..500, _)));
        if let Err(error) = &answer {
            log::debug!("engine={} probe failed: {error}", engine.label());
        }
        self.fleet.probed(engine, passed);
    }
}
