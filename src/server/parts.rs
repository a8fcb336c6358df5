//! Everything of a router but its sockets.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::assembly::{self, Proxy};
use super::live::edge_options;
use super::{ASK_LIMIT, Drain, Duties, Live, Search, ServeError, Upkeep, pingora_conf};
use crate::access_log::AccessLog;
use crate::admin::{Admin, Control, Streams};
use crate::config::{Secret, Settings};
use crate::edge::Edge;
use crate::engines::{Catalog, EngineKey, Fleet, Policy};
use crate::logging;
use crate::metrics::production_stack::ProductionStack;
use crate::metrics::{Metrics, names};
use crate::proxy::{Books, Plan, Router, on_refusal};
use crate::record::{Observer, Observers};
use crate::status::Status;
use crate::traces::{self, Outlet, Tracer};

/// Everything of a router but its sockets.
#[derive(Debug)]
pub struct Parts {
    /// The public port's application.
    pub edge: Arc<Edge<Proxy>>,
    /// The admin port's application.
    pub admin: Admin,
    /// What goes on behind requests.
    pub upkeep: Upkeep,
    /// What follows the settings.
    pub live: Live,
    /// Where spans leave; `None` where nothing is traced.
    pub traces: Option<Outlet>,
}

impl Parts {
    /// Builds a router; `drain` tells it to stop.
    ///
    /// # Errors
    /// The engine key cannot be sent, metrics cannot be registered, or there is no loopback
    /// interface, which Pingora needs to begin with.
    pub fn new(settings: &Settings, drain: &Drain) -> Result<Self, ServeError> {
        Self::built(settings, drain, true)
    }

    /// The same, but nothing is written down of requests: no series counts them, the status page
    /// and the access log do not know of them, nothing is traced and no tokens are looked for. What
    /// all that costs is measured against this (`cargo bench --bench overhead`).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn without_books(settings: &Settings, drain: &Drain) -> Result<Self, ServeError> {
        Self::built(settings, drain, false)
    }

    fn built(settings: &Settings, drain: &Drain, books: bool) -> Result<Self, ServeError> {
        let policy = Policy {
            routing: settings.routing,
            health: settings.health,
        };
        let fleet = Arc::new(Fleet::new(&[], &settings.aliases, policy));
        let search = Arc::new(Search::new(settings, &fleet));
        let key = Arc::new(EngineKey::default());
        key.set(settings.engine_api_key.as_ref().map(Secret::expose));
        let catalog = Catalog::new(Arc::clone(&fleet), Arc::clone(&key), ASK_LIMIT);
        let catalog = Arc::new(catalog);
        let metrics = Metrics::new()?;
        metrics.pull(names::CLIENT_CONNECTIONS, {
            let drain = drain.clone();
            move || drain.open() as u64
        })?;
        metrics.pull(names::LOG_DROPPED, logging::dropped)?;
        let plan = Arc::new(ArcSwap::from_pointee(Plan::new(settings)?));
        let status = Status::new(
            Arc::clone(&fleet),
            metrics.clone(),
            drain.closing(),
            settings.retry.is_some(),
        );
        fleet.on_change({
            let (metrics, noted) = (metrics.clone(), status.on_change());
            move |engine, condition| {
                metrics.condition_changed(engine.label(), condition.label());
                noted(engine, condition);
            }
        });
        let opened = books.then(|| traces::open(&settings.traces, &metrics));
        let (tracer, outlet) = opened.flatten().unzip();
        let observers = if books {
            observers(settings, &fleet, &metrics, &status, tracer.as_ref())?
        } else {
            Observers::new(Vec::new())
        };
        let books = books.then(|| Books {
            metrics: metrics.clone(),
            observers: observers.clone(),
        });
        let router = Router::new(
            Arc::clone(&plan),
            Arc::clone(&fleet),
            Arc::clone(&catalog),
            books,
            tracer,
        );
        let proxy =
            assembly::proxy(pingora_conf(settings), router).map_err(ServeError::Assembly)?;
        let edge = Edge::new(
            proxy,
            edge_options(settings),
            drain.closing(),
            on_refusal(observers),
        );
        let edge = Arc::new(edge);
        tell_of_bodies(&metrics, &edge)?;
        let duties = Duties::new(settings, &fleet, &catalog, &key);
        let duties = watch::Sender::new(Arc::new(duties));
        let upkeep = Upkeep::new(
            Arc::clone(&fleet),
            Arc::clone(&search),
            Arc::clone(&catalog),
            duties.subscribe(),
        );
        let config = Arc::new(ArcSwap::from_pointee(settings.to_yaml()));
        Ok(Self {
            live: Live {
                fleet: Arc::clone(&fleet),
                search,
                catalog: Arc::clone(&catalog),
                key: Arc::clone(&key),
                plan,
                edge: Arc::clone(&edge),
                duties,
                config: Arc::clone(&config),
                metrics: metrics.clone(),
                status: status.clone(),
            },
            admin: Admin {
                control: Control::new(&fleet, &catalog, &key),
                fleet,
                catalog,
                metrics,
                status,
                streams: Streams::default(),
                config,
                draining: drain.closing(),
            },
            edge,
            upkeep,
            traces: outlet,
        })
    }
}

/// Has the request bodies that are kept told of, and their bound.
fn tell_of_bodies(metrics: &Metrics, edge: &Arc<Edge<Proxy>>) -> Result<(), ServeError> {
    metrics.pull(names::BUFFERED_BODIES, {
        let buffered = edge.buffered();
        move || buffered.bytes() as u64
    })?;
    metrics.pull(names::MAX_BUFFERED_BODIES, {
        // The edge keeps the metrics, so they must not keep it.
        let edge = Arc::downgrade(edge);
        move || {
            let limit = edge.upgrade().and_then(|edge| edge.max_buffered());
            limit.map_or(0, |limit| limit.get() as u64)
        }
    })?;
    Ok(())
}

/// Those who are told how requests end.
fn observers(
    settings: &Settings,
    fleet: &Arc<Fleet>,
    metrics: &Metrics,
    status: &Status,
    tracer: Option<&Tracer>,
) -> Result<Observers, ServeError> {
    let mut observers: Vec<Box<dyn Observer>> =
        vec![Box::new(metrics.clone()), Box::new(status.clone())];
    if settings.production_stack_metrics {
        let names = ProductionStack::new(metrics, Arc::clone(fleet))?;
        observers.push(Box::new(names));
    }
    if settings.access_log.on {
        observers.push(Box::new(AccessLog {
            format: settings.log_format.into(),
            sample: settings.access_log.sample,
        }));
    }
    observers.extend(tracer.map(|tracer| Box::new(tracer.clone()) as _));
    Ok(Observers::new(observers))
}
