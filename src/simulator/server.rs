//! The listening side: accepts connections and serves each in one task.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::behaviour::BehaviourError;
use super::connection::{Connection, End};
use super::engine::{Engine, SimulatorConfig};
use super::ledger::Counts;
use super::reply::Reply;
use super::route::{self, Flow};

/// A simulated engine that is bound to its port.
#[derive(Debug)]
pub struct Simulator {
    listener: TcpListener,
    local_addr: SocketAddr,
    engine: Arc<Engine>,
}

/// A handle on a simulated engine: the control path without HTTP.
#[derive(Clone, Debug)]
pub struct Control {
    engine: Arc<Engine>,
}

/// A simulated engine that serves in a task of its own. Dropping it stops the engine: its port and
/// all its connections are closed.
#[derive(Debug)]
pub struct RunningSimulator {
    local_addr: SocketAddr,
    control: Control,
    task: JoinHandle<()>,
}

// === impl Simulator ===

impl Simulator {
    /// Listens on the configured address. Clients can connect from now on, and are answered once it
    /// runs.
    ///
    /// # Errors
    /// - the address cannot be listened on
    /// - no model is configured, or one without a name
    pub async fn bind(config: SimulatorConfig) -> io::Result<Self> {
        let listener = TcpListener::bind((config.host.as_str(), config.port)).await?;
        let local_addr = listener.local_addr()?;
        let engine = Arc::new(Engine::new(config, local_addr.port())?);
        Ok(Self {
            listener,
            local_addr,
            engine,
        })
    }

    /// The address it listens on, with the actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// A handle to look at it and change it while it runs.
    pub fn control(&self) -> Control {
        Control {
            engine: Arc::clone(&self.engine),
        }
    }

    /// Serves until the future is dropped; its connections end with it.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(serve(Arc::clone(&self.engine), stream));
                    }
                    Err(error) => {
                        log::warn!("engine={} a connection was not accepted: {error}", self.engine.port);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Serves in a task of the current runtime.
    pub fn spawn(self) -> RunningSimulator {
        RunningSimulator {
            local_addr: self.local_addr,
            control: self.control(),
            task: tokio::spawn(self.run()),
        }
    }
}

// === impl Control ===

impl Control {
    /// Changes the behaviour, as `POST /sim` does.
    ///
    /// # Errors
    /// As [`Behaviour::changed`](super::Behaviour::changed).
    pub fn change(&self, change: &Value) -> Result<(), BehaviourError> {
        self.engine.change(change)
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.engine.ledger.counts()
    }

    /// How many requests run and how many wait.
    pub fn gauges(&self) -> (usize, usize) {
        self.engine.slots.gauges()
    }

    /// What `GET /sim` shows.
    pub fn status(&self) -> Value {
        self.engine.status()
    }

    /// What `GET /sim/requests` shows: the last requests, the oldest of them first.
    pub fn last_requests(&self, most: usize) -> Value {
        self.engine.ledger.last(most)
    }
}

// === impl RunningSimulator ===

impl RunningSimulator {
    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The handle to look at it and change it.
    pub fn control(&self) -> &Control {
        &self.control
    }
}

impl Drop for RunningSimulator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves one connection until it ends.
async fn serve(engine: Arc<Engine>, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        log::debug!("engine={} no TCP_NODELAY: {error}", engine.port);
    }
    let mut connection = Connection::new(stream, engine.config.keep_alive);
    // The kernel completes connections whether or not a server accepts them, so a client cannot
    // tell a paused `accept` from one whose first request is left alone. The latter leaves the
    // control path open.
    let mut held = engine.is_paused();
    let mut answered = false;
    loop {
        let request = match connection.next_request(answered).await {
            Ok(request) => request,
            Err(End::Closed) => return,
            Err(end) => {
                let reply = match end {
                    End::TooLarge => Reply::text(413, TEXT, "Content Too Large"),
                    _ => Reply::text(400, TEXT, "Invalid HTTP request received."),
                };
                // The client may be gone; there is nothing left to do for it either way.
                drop(reply.send(&mut connection, true, false).await);
                return;
            }
        };
        if held && !request.head.path.starts_with("/sim") {
            if connection.until(engine.resumed()).await.is_err() {
                return;
            }
            held = false;
        }
        match route::answer(&engine, &mut connection, &request).await {
            Flow::Keep => answered = true,
            Flow::Close => return,
            Flow::Reset => return connection.reset(),
        }
    }
}

const TEXT: &str = "text/plain; charset=utf-8";
