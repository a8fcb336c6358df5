//! Asks the engines how busy they are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::{Asker, Engine, EngineId, EngineKey, Fleet, Gauges};

/// How many intervals what an engine said is gone by.
const GOOD_FOR: u32 = 3;

/// Reads the gauges of engines, and tells the engines' entries of them.
#[derive(Debug)]
pub struct Scraper {
    fleet: Arc<Fleet>,
    asker: Asker,
    key: Arc<EngineKey>,
    interval: Duration,
    last: Mutex<HashMap<EngineId, Last>>,
}

/// What was heard last.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    heard: Option<Instant>,
    started: Option<f64>,
}

impl Scraper {
    /// A scraper of `fleet`, each engine of which is to be looked at every `interval` and shown
    /// `key`.
    pub fn new(
        fleet: &Arc<Fleet>,
        interval: Duration,
        limit: Duration,
        key: Arc<EngineKey>,
    ) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            asker: Asker::new(limit),
            key,
            interval,
            last: Mutex::default(),
        }
    }

    /// Looks at all engines once, spread over `window` by where they stand in the list, so that
    /// they are not asked in step.
    pub async fn round(&self, window: Duration) {
        let engines = self.fleet.engines();
        let stays = |id: &EngineId| engines.iter().any(|engine| engine.id() == *id);
        self.lock().retain(|id, _| stays(id));
        let count = u32::try_from(engines.len()).unwrap_or(u32::MAX).max(1);
        let gap = window / count;
        join_all((0u32..).zip(&*engines).map(async |(place, engine)| {
            tokio::time::sleep(gap * place).await;
            self.look(engine).await;
        }))
        .await;
    }

    /// Goes on looking, for ever.
    pub async fn run(&self) {
        loop {
            let begun = Instant::now();
            self.round(self.interval).await;
            tokio::time::sleep_until(begun + self.interval).await;
        }
    }

    async fn look(&self, engine: &Engine) {
        let authorization = self.key.authorization();
        let authorization = authorization.as_deref().map(String::as_bytes);
        let answer = self.asker.get(engine, "/metrics", authorization).await;
        let gauges = match answer {
            Ok((200, body)) => Gauges::read(&String::from_utf8_lossy(&body)),
            Ok(_) | Err(_) => None,
        };
        let mut all = self.lock();
        let last = all.entry(engine.id()).or_default();
        let Some(gauges) = gauges else {
            // One silence says little; what was said before stands for a while.
            let old = last
                .heard
                .is_none_or(|at| at.elapsed() >= self.interval * GOOD_FOR);
            if old {
                engine.report(None);
            }
            return;
        };
        if let (Some(before), Some(now)) = (last.started, gauges.started)
            && before.to_bits() != now.to_bits()
        {
            log::info!("engine={} was started anew", engine.label());
            engine.restarted();
        }
        *last = Last {
            heard: Some(Instant::now()),
            started: gauges.started.or(last.started),
        };
        engine.report(Some(&gauges));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EngineId, Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
