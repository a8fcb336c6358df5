//! Everything of a router but its sockets.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::live::edge_options;
use super::{ASK_LIMIT, Drain, Duties, Live, ServeError, Upkeep, pingora_conf};
use crate::access_log::AccessLog;
use crate::admin::{Admin, Control};
use crate::config::{Secret, Settings};
use crate::edge::Edge;
use crate::engines::{Catalog, EngineKey, Fleet, Policy};
use crate::metrics::Metrics;
use crate::proxy::{Plan, Router, on_refusal};
use crate::record::Observers;

/// Everything of a router but its sockets.
#[derive(Debug)]
pub struct Parts {
    /// The public port's application.
    pub edge: Arc<Edge<Router>>,
    /// The admin port's application.
    pub admin: Admin,
    /// What goes on behind requests.
    pub upkeep: Upkeep,
    /// What follows the settings.
    pub live: Live,
}

impl Parts {
    /// Builds a router; `drain` tells it to stop.
    ///
    /// # Errors
    /// The engine key cannot be sent, or metrics cannot be registered.
    pub fn new(settings: &Settings, drain: &Drain) -> Result<Self, ServeError> {
        let fleet = Arc::new(Fleet::new(
            &settings.engines,
            &settings.aliases,
            Policy {
                routing: settings.routing,
                health: settings.health,
            },
        ));
        let key = Arc::new(EngineKey::default());
        key.set(settings.engine_api_key.as_ref().map(Secret::expose));
        let catalog = Catalog::new(Arc::clone(&fleet), Arc::clone(&key), ASK_LIMIT);
        let catalog = Arc::new(catalog);
        let metrics = Metrics::new()?;
        fleet.on_change({
            let metrics = metrics.clone();
            move |engine, condition| metrics.condition_changed(engine.label(), condition.label())
        });
        let plan = Arc::new(ArcSwap::from_pointee(Plan::new(settings)?));
        let observers = Observers::new(vec![
            Box::new(metrics.clone()),
            Box::new(AccessLog(settings.log_format.into())),
        ]);
        let router = Router::new(
            Arc::clone(&plan),
            Arc::clone(&fleet),
            Arc::clone(&catalog),
            metrics.clone(),
            observers.clone(),
        );
        let proxy = pingora_proxy::http_proxy(&Arc::new(pingora_conf(settings)), router);
        let edge = Edge::new(proxy, edge_options(settings), on_refusal(observers));
        let edge = Arc::new(edge);
        let duties = Duties::new(settings, &fleet, &catalog, &key);
        let duties = watch::Sender::new(Arc::new(duties));
        let upkeep = Upkeep::new(Arc::clone(&fleet), Arc::clone(&catalog), duties.subscribe());
        let config = Arc::new(ArcSwap::from_pointee(settings.to_yaml()));
        Ok(Self {
            live: Live {
                fleet: Arc::clone(&fleet),
                catalog: Arc::clone(&catalog),
                key: Arc::clone(&key),
                plan,
                edge: Arc::clone(&edge),
                duties,
                config: Arc::clone(&config),
                metrics: metrics.clone(),
            },
            admin: Admin {
                control: Control::new(&fleet, &catalog, &key),
                fleet,
                catalog,
                metrics,
                config,
                draining: drain.watch(),
            },
            edge,
            upkeep,
        })
    }
}
