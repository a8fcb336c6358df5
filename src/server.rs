//! From settings to a running router: listeners, services, and the way down.

mod drain;
mod limits;
mod listener;
mod live;
mod parts;
mod reload;
mod search;
mod upkeep;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use pingora_core::apps::http_app::HttpServer;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};
use pingora_core::services::background::background_service;

use crate::config::{Load, Settings};

pub use drain::{Drain, Signals};
pub use listener::Listener;
pub use live::Live;
pub use parts::Parts;
pub use reload::Reloader;
pub use search::Search;
pub use upkeep::{Duties, Upkeep};

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

/// Serves until a signal says to stop; returns once the work is done. `load` reads the
/// configuration anew, when a signal says so.
///
/// # Errors
/// The router could not start; nothing is listening then.
pub fn run(settings: &Settings, load: Load) -> Result<(), ServeError> {
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
        "vllm-pingora {} listening on {}, admin on {}, discovery={} engines={} retries={}",
        env!("CARGO_PKG_VERSION"),
        shown(&public),
        shown(&admin),
        settings.discovery.word(),
        settings.engines.len(),
        if settings.retry.is_some() {
            "on"
        } else {
            "off"
        },
    );
    let reloader = Reloader::new(load, settings.clone(), parts.live);
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
    server.add_service(background_service("reload", reloader));
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
