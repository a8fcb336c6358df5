//! Probes the engines' health, and whether they sleep, off the path of requests.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use rand::RngExt as _;

use super::attend::attend;
use super::{
    AskError, Asker, Catalog, Condition, Engine, EngineKey, Finding, Fleet, IS_SLEEPING, Sleep,
};

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
    catalog: Arc<Catalog>,
    asker: Asker,
    probe: Probe,
    key: Arc<EngineKey>,
}

impl Prober {
    /// A prober of `fleet`; `catalog` asks engines that come up what they serve, and `key` is
    /// presented to them.
    pub fn new(
        fleet: &Arc<Fleet>,
        catalog: &Arc<Catalog>,
        probe: Probe,
        key: Arc<EngineKey>,
    ) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            catalog: Arc::clone(catalog),
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
            // Of one that is new nothing is known, and requests may go to it.
            if engine.has_worked() {
                let first: f64 = rand::rng().random();
                tokio::time::sleep(self.probe.interval.mul_f64(first)).await;
            }
            loop {
                self.look(&engine).await;
                let spread: f64 = rand::rng().random_range(1.0 - SPREAD..1.0 + SPREAD);
                tokio::time::sleep(self.probe.interval.mul_f64(spread)).await;
            }
        })
        .await;
    }

    async fn look(&self, engine: &Arc<Engine>) {
        let found = self.ask(engine).await;
        let changed = self.fleet.probed(engine, found);
        let has_come = changed == Some(Condition::Up) || !engine.has_worked();
        let is_well = matches!(found, Finding::Well { .. });
        if is_well && has_come && !engine.declares_models() {
            self.catalog.learn(std::slice::from_ref(engine)).await;
        }
    }

    async fn ask(&self, engine: &Engine) -> Finding {
        let authorization = self.key.authorization();
        let authorization = authorization.as_deref().map(String::as_bytes);
        let get = |path| self.asker.get(engine, path, authorization);
        let answer = get(&self.probe.path).await;
        match &answer {
            // An engine that says that it is not well is not; what it thinks of the path is no
            // matter.
            Ok((..500, _)) => {
                let asleep = if engine.may_sleep() {
                    let sleep = Sleep::read(&get(IS_SLEEPING).await);
                    engine.set_may_sleep(sleep != Sleep::NotOffered);
                    sleep.is_asleep()
                } else {
                    None
                };
                return Finding::Well { asleep };
            }
            Ok((status, _)) => {
                log::debug!("engine={} probe failed: {status}", engine.label());
            }
            Err(error) => log::debug!("engine={} probe failed: {error}", engine.label()),
        }
        // Another process may follow, which knows more.
        engine.set_may_sleep(true);
        let failure = answer.err().as_ref().and_then(AskError::connect_failure);
        failure.map_or(Finding::Unwell, Finding::Unreachable)
    }
}
