//! From settings to a running router: listeners, services, and the way down.

mod drain;
mod limits;
mod listener;
mod upkeep;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::http_app::HttpServer;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};

use crate::access_log::AccessLog;
use crate::admin::{Admin, Control};
use crate::config::{Secret, Settings};
use crate::edge::{Edge, EdgeOptions, Patience};
use crate::engines::{Catalog, Fleet, Policy};
use crate::logging;
use crate::metrics::production_stack::ProductionStack;
use crate::metrics::{Metrics, names};
use crate::proxy::{Router, on_refusal};
use crate::record::{Observer, Observers};

pub use drain::{Drain, Signals};
pub use listener::Listener;
pub use upkeep::Upkeep;

/// How long a question to an engine on the router's own behalf may take.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Unused connections to engines that are kept, over all engines and per worker.
const POOL_SIZE: usize = 4096;

/// Why the router could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A listener's address is taken, not ours, or cannot be resolved.
    #[error("{key}: cannot listen on {address}: {cause}")]
    Listen {
        /// The keys that chose it.
        key: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        cause: io::Error,
    },
    /// A series is registered twice or malformed.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The engine key holds a byte that a header cannot carry.
    #[error("engine_api_key: it cannot be sent in a header")]
    EngineKey(#[from] http::header::InvalidHeaderValue),
}

/// Everything of a router but its sockets.
#[derive(Debug)]
pub struct Parts {
    /// The public port's application.
    pub edge: Arc<Edge<Router>>,
    /// The admin port's application.
    pub admin: Admin,
    /// What goes on behind requests.
    pub upkeep: Upkeep,
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
        let engine_key = settings.engine_api_key.as_ref().map(Secret::expose);
        let catalog = Arc::new(Catalog::new(Arc::clone(&fleet), engine_key, ASK_LIMIT));
        let metrics = Metrics::new()?;
        metrics.pull(names::CLIENT_CONNECTIONS, {
            let drain = drain.clone();
            move || drain.open() as u64
        })?;
        metrics.pull(names::LOG_DROPPED, logging::dropped)?;
        fleet.on_change({
            let metrics = metrics.clone();
            move |engine, condition| metrics.condition_changed(engine.label(), condition.label())
        });
        let observers = observers(settings, &metrics, &fleet)?;
        let router = Router::new(
            settings,
            Arc::clone(&fleet),
            Arc::clone(&catalog),
            metrics.clone(),
            observers.clone(),
        )?;
        let proxy = pingora_proxy::http_proxy(&Arc::new(pingora_conf(settings)), router);
        let edge = Arc::new(Edge::new(
            proxy,
            edge_options(settings),
            on_refusal(observers),
        ));
        let upkeep = Upkeep::new(settings, &fleet, Arc::clone(&catalog));
        let admin = Admin {
            control: Control::new(settings, &fleet, &catalog),
            fleet,
            catalog,
            metrics,
            config: settings.to_yaml(),
            draining: drain.watch(),
        };
        Ok(Self {
            edge,
            admin,
            upkeep,
        })
    }
}

/// Serves until a signal says to stop; returns once the work is done.
///
/// # Errors
/// The router could not start; nothing is listening then.
pub fn run(settings: &Settings) -> Result<(), ServeError> {
    let public = bind("host, port", &settings.public_address())?;
    let admin = bind("admin_host, admin_port", &settings.admin_address())?;
    limits::raise_open_files();
    let drain = Drain::default();
    let parts = Parts::new(settings, &drain)?;
    let shown = |listener: &TcpListener| {
        listener
            .local_addr()
            .map_or_else(|e| e.to_string(), |a| a.to_string())
    };
    log::info!(
        "vllm-pingora {} listening on {}, admin on {}, engines={} retries={}",
        env!("CARGO_PKG_VERSION"),
        shown(&public),
        shown(&admin),
        settings.engines.len(),
        if settings.retry.is_some() {
            "on"
        } else {
            "off"
        },
    );
    let mut server = Server::new_with_opt_and_conf(None, pingora_conf(settings));
    server.bootstrap();
    let upkeep = server.add_service(parts.upkeep);
    let public = server.add_service(Listener::new(
        "public",
        public,
        parts.edge,
        drain.clone(),
        None,
    ));
    // The first request finds names resolved and models asked for.
    public.add_dependency(&upkeep);
    let admin_app = Arc::new(HttpServer::new_app(parts.admin));
    server.add_service(Listener::new(
        "admin",
        admin,
        admin_app,
        Drain::default(),
        Some(1),
    ));
    server.run(RunArgs {
        shutdown_signal: Box::new(Signals::new(drain, settings.grace_period)),
    });
    log::info!("stopped");
    Ok(())
}

fn bind(key: &'static str, address: &str) -> Result<TcpListener, ServeError> {
    let listen = || {
        let found: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        let listener = TcpListener::bind(&*found)?;
        listener.set_nonblocking(true)?;
        limits::widen_backlog(&listener);
        Ok(listener)
    };
    listen().map_err(|cause| ServeError::Listen {
        key,
        address: address.to_owned(),
        cause,
    })
}

/// Who is told how requests end.
fn observers(
    settings: &Settings,
    metrics: &Metrics,
    fleet: &Arc<Fleet>,
) -> Result<Observers, ServeError> {
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(metrics.clone())];
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
    Ok(Observers::new(observers))
}

/// How clients' connections are treated under these settings.
fn edge_options(settings: &Settings) -> EdgeOptions {
    EdgeOptions {
        header_timeout: settings.header_timeout,
        body_timeout: settings.body_timeout,
        client_keepalive: settings.client_keepalive,
        max_per_client: settings.max_connections_per_client,
        h2c: settings.h2c,
        hold_head: settings.retry.is_some(),
        patience: Patience {
            first_byte: settings.first_byte_timeout,
            stream_idle: settings.stream_idle_timeout,
        },
    }
}

/// What Pingora is told: mostly to leave decisions to us.
fn pingora_conf(settings: &Settings) -> ServerConf {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    ServerConf {
        threads: if settings.threads == 0 {
            cores()
        } else {
            settings.threads
        },
        // A ceiling of its own must never cut a request's budget short.
        max_retries: usize::MAX,
        upstream_keepalive_pool_size: POOL_SIZE,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    }
}
