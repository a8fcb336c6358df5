//! From settings to a running router: listeners, services, and the way down.

mod assembly;
mod drain;
mod exporting;
mod handover;
mod limits;
mod listener;
mod live;
mod parts;
mod reload;
mod search;
mod signals;
mod upkeep;

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{RunArgs, Server};

use crate::config::{Load, Settings};
use crate::traces::CollectorError;

use exporting::Exporting;

pub use assembly::Proxy;
pub use drain::Drain;
pub use handover::{Handover, Inherited};
pub use listener::Listener;
pub use live::Live;
pub use parts::Parts;
pub use reload::Reloader;
pub use search::Search;
pub use signals::{Pace, Signals};
pub use upkeep::{Duties, Upkeep};

/// How long a question to an engine on the router's own behalf may take.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Unused connections to engines that are kept, over all engines and per worker.
const POOL_SIZE: usize = 4096;

/// The names of the listeners, in logs and when they are handed over.
const PUBLIC: &str = "public";
const ADMIN: &str = "admin";

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
    /// No other process has handed its listeners over, or ours cannot be.
    #[error("upgrade_sock: {0}: {1}")]
    Handover(String, io::Error),
    /// A series is registered twice or malformed.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The engine key holds a byte that a header cannot carry.
    #[error("engine_api_key: it cannot be sent in a header")]
    EngineKey(#[from] http::header::InvalidHeaderValue),
    /// There is no way to the collector of spans.
    #[error("otel_endpoint: {0}")]
    Collector(#[from] CollectorError),
    /// Pingora's proxy could not be made.
    #[error("cannot begin over the loopback interface: {0}")]
    Assembly(io::Error),
    /// The thread that sends spans could not be started.
    #[error("traces: {0}")]
    Exporting(io::Error),
}

/// How a router is started.
pub struct Start {
    /// Reads the configuration anew, when a signal says so.
    pub load: Load,
    /// The file whose changes say so as well.
    pub watched: Option<PathBuf>,
    /// Take the listeners over from the process that has them.
    pub upgrade: bool,
}

impl std::fmt::Debug for Start {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Start")
            .field("watched", &self.watched)
            .field("upgrade", &self.upgrade)
            .finish_non_exhaustive()
    }
}

/// Serves until a signal says to stop; returns once the work is done.
///
/// # Errors
/// The router could not start; nothing is listening then.
pub fn run(settings: &Settings, start: Start) -> Result<(), ServeError> {
    let mut inherited = match &settings.upgrade_sock {
        Some(socket) if start.upgrade => {
            log::info!("waiting for listeners at {}", socket.display());
            let received = Inherited::receive(socket);
            Some(received.map_err(|error| handover_error(socket, error))?)
        }
        _ => None,
    };
    let mut listener = |name, key, address: &str| match inherited.as_mut() {
        Some(inherited) => match inherited.take(name) {
            Some(listener) => Ok(listener),
            None => bind(key, address),
        },
        None => bind(key, address),
    };
    let public = listener(PUBLIC, "host, port", &settings.public_address())?;
    let admin = listener(ADMIN, "admin_host, admin_port", &settings.admin_address())?;
    limits::raise_open_files();
    let (drain, admin_drain) = (Drain::default(), Drain::default());
    let handover = match &settings.upgrade_sock {
        Some(socket) => {
            let handover = Handover::new(socket, &[(PUBLIC, &public), (ADMIN, &admin)]);
            Some(handover.map_err(|error| handover_error(socket, error))?)
        }
        None => None,
    };
    let parts = Parts::new(settings, &drain)?;
    let exporting = parts.traces.map(Exporting::start).transpose()?;
    let shown = |listener: &TcpListener| {
        listener
            .local_addr()
            .map_or_else(|e| e.to_string(), |a| a.to_string())
    };
    let welcome = format!(
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
    let reloader = Reloader::new(start.load, settings.clone(), parts.live);
    let mut server = Server::new_with_opt_and_conf(None, pingora_conf(settings));
    server.bootstrap();
    let upkeep = server.add_service(parts.upkeep);
    let public = Listener::new(PUBLIC, public, parts.edge, drain.clone(), None);
    let public = server.add_service(public);
    // The first request finds names resolved and models asked for.
    public.add_dependency(&upkeep);
    server.add_service(Listener::new(
        ADMIN,
        admin,
        Arc::new(parts.admin),
        admin_drain.clone(),
        Some(1),
    ));
    let pace = Pace {
        settle: settings.drain_settle,
        grace: settings.grace_period,
    };
    let signals = Signals::new(
        drain,
        admin_drain,
        pace,
        handover,
        reloader,
        start.watched,
        welcome,
    );
    server.run(RunArgs {
        shutdown_signal: Box::new(signals),
    });
    // No request runs any more, so no span can come behind these.
    if let Some(exporting) = exporting {
        exporting.finish();
    }
    log::info!("stopped");
    Ok(())
}

fn handover_error(socket: &Path, error: io::Error) -> ServeError {
    ServeError::Handover(socket.display().to_string(), error)
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
