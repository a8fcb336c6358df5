//! The part of the router under test: its own fleet, pool and logic, as the proxy calls them.

#![allow(dead_code, reason = "each bench uses what it needs")]

use std::collections::BTreeMap;
use std::sync::Arc;

use vllm_pingora::config::{EngineSpec, Settings};
use vllm_pingora::engines::{Engine, EngineId, Fleet, Lookup, Placed, Policy, Pool};
use vllm_pingora::retry::{Attempts, RetryConfig, RetryValues};
use vllm_pingora::routing::{Ask, Kind, Routing};

/// The model all engines serve.
pub const MODEL: &str = "m";

/// A fleet of engines that serve one model.
#[derive(Debug)]
pub struct Router {
    fleet: Fleet,
    pool: Arc<Pool>,
    retries: RetryConfig,
}

impl Router {
    /// A router with the default settings.
    pub fn new(kind: Kind, engines: usize) -> Self {
        let specs: Vec<_> = (0..engines)
            .map(|engine| {
                let url = format!("http://10.0.{}.{}:8000", engine / 250, engine % 250);
                EngineSpec::new(url.parse().expect("a URL"), vec![MODEL.to_owned()])
            })
            .collect();
        let policy = Policy {
            routing: by_default(kind),
            ..Policy::default()
        };
        let fleet = Fleet::new(&specs, &BTreeMap::new(), policy);
        let Lookup::Pool(pool, _) = fleet.find(MODEL) else {
            unreachable!("every engine serves it");
        };
        Self {
            fleet,
            pool,
            retries: RetryConfig::try_new(RetryValues::default()).expect("the defaults"),
        }
    }

    /// The engines, which know their requests in flight.
    pub fn engines(&self) -> Arc<[Arc<Engine>]> {
        self.fleet.engines()
    }

    /// The engines' ids.
    pub fn ids(&self) -> &[EngineId] {
        self.pool.ids()
    }

    /// The retry policy.
    pub fn retries(&self) -> &RetryConfig {
        &self.retries
    }

    /// Chooses an engine.
    pub fn place(&self, attempts: &Attempts, ask: &Ask<'_>) -> (&Arc<Engine>, Placed) {
        self.pool
            .place(attempts, ask)
            .expect("nobody is excluded for good")
    }
}

/// A logic with the default settings.
pub fn by_default(kind: Kind) -> Routing {
    let text = "engines: [{url: http://127.0.0.1:1}]";
    let settings = Settings::from_yaml(text).expect("a configuration");
    Routing {
        kind,
        ..settings.routing
    }
}
