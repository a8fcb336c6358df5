//! A scripted engine: answers on a raw socket as its [`Script`] says, and records what it gets.
//!
//! - `log`: what it records;
//! - `waits`: waiting for that;
//! - `serving`: the life of a connection;
//! - `reading`: requests;
//! - `socket`: bytes.

mod log;
mod reading;
mod serving;
mod socket;
mod waits;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::patience::PATIENCE;
use super::script::{Playback, Script};
use super::wire::Close;
use log::Shared;
use serving::Serving;

pub use log::{Connection, Delivery};

struct Running {
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

/// An engine on a port of its own on 127.0.0.1, which stays reserved for as long as this lives.
pub struct ScriptedEngine {
    addr: SocketAddr,
    /// Bound, never listening: while nothing else listens, the port refuses.
    _reservation: TcpSocket,
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

impl ScriptedEngine {
    /// An engine that listens and plays this script.
    pub async fn start(script: impl Into<Script>) -> Self {
        let engine = Self::refusing().await;
        engine.listen_with(script).await;
        engine
    }

    /// An engine whose port is bound but not listening, so that it refuses connections.
    #[expect(
        clippy::unused_async,
        reason = "reads like `start`, and needs a runtime all the same"
    )]
    pub async fn refusing() -> Self {
        Self::reserve("127.0.0.1:0".parse().unwrap())
    }

    /// Another engine on the port of this one, at another address of this machine: 127.0.0.2, say.
    pub async fn beside(&self, ip: &str, script: impl Into<Script>) -> Self {
        let engine = Self::reserve(SocketAddr::new(ip.parse().unwrap(), self.addr.port()));
        engine.listen_with(script).await;
        engine
    }

    fn reserve(addr: SocketAddr) -> Self {
        let reservation = bind(addr);
        let addr = reservation.local_addr().unwrap();
        let nothing = super::script::hang().into();
        let shared = Shared {
            log: Mutex::default(),
            playback: Mutex::new(Playback::new(nothing)),
            changes: watch::channel(()).0,
            patience: Mutex::new(PATIENCE),
        };
        let running = Mutex::new(None);
        Self {
            addr,
            _reservation: reservation,
            shared: Arc::new(shared),
            running,
        }
    }

    /// Begins to listen on a port that has refused so far.
    #[expect(
        clippy::unused_async,
        reason = "pairs with `stop`, and needs a runtime all the same"
    )]
    pub async fn listen_with(&self, script: impl Into<Script>) {
        let mut running = self.running.lock().unwrap();
        assert!(
            running.is_none(),
            "the engine on {} listens already",
            self.addr
        );
        self.play(script);
        let listener = bind(self.addr).listen(1024).unwrap();
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, self.shared.clone(), stopped));
        *running = Some(Running { stop, accepting });
    }

    /// Stops listening and closes every connection, as the end of a process does. The port
    /// refuses from when this returns. What was recorded is kept.
    pub async fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        let Some(Running { stop, accepting }) = running else {
            return;
        };
        let _ = stop.send(());
        if let Err(failure) = accepting.await {
            std::panic::resume_unwind(failure.into_panic());
        }
        let now = Instant::now();
        self.shared.write(|log| {
            for connection in &mut log.connections {
                if connection.peer_close.is_none() && connection.engine_close.is_none() {
                    connection.engine_close = Some((Close::Fin, now));
                }
            }
        });
    }

    /// Stops, then listens again on the same port with another script.
    pub async fn restart(&self, script: impl Into<Script>) {
        self.stop().await;
        self.listen_with(script).await;
    }

    /// Replaces the script, from the next request on; connections stay open.
    pub fn play(&self, script: impl Into<Script>) {
        *self.shared.playback.lock().unwrap() = Playback::new(script.into());
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Such as `http://127.0.0.1:4711`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The requests received in full, in the order their last bytes came; those of routes apart.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries_where(|delivery| !delivery.routed)
    }

    /// The requests received in full for exactly this path, of a route or not.
    pub fn deliveries_to(&self, path: &str) -> Vec<Delivery> {
        self.deliveries_where(|delivery| delivery.path() == path)
    }

    fn deliveries_where(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        self.shared.read(|log| {
            log.deliveries
                .iter()
                .filter(|d| wanted(d))
                .cloned()
                .collect()
        })
    }

    /// How many requests were received in full; those of routes not counted.
    pub fn seen(&self) -> usize {
        self.shared
            .read(|log| log.deliveries.iter().filter(|d| !d.routed).count())
    }

    /// How many requests got their headers through; those of routes not counted.
    pub fn begun(&self) -> usize {
        self.shared.read(|log| log.requests_begun)
    }

    /// The waits between consecutive deliveries.
    pub fn gaps(&self) -> Vec<Duration> {
        let times: Vec<Instant> = self.deliveries().iter().map(|d| d.at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.read(|log| log.connections.len())
    }

    pub fn connections(&self) -> Vec<Connection> {
        self.shared.read(|log| log.connections.clone())
    }

    /// What was wrong with the requests received, in words.
    pub fn protocol_errors(&self) -> Vec<String> {
        self.shared.read(|log| log.errors.clone())
    }

    /// Panics if any request was malformed, or followed by bytes before its answer.
    #[track_caller]
    pub fn assert_clean(&self) {
        let errors = self.protocol_errors();
        assert!(
            errors.is_empty(),
            "the engine on {} was sent bad HTTP: {errors:#?}",
            self.addr
        );
    }

    /// How long the waits below last, on the real clock, before they panic.
    pub fn set_patience(&self, patience: Duration) {
        *self.shared.patience.lock().unwrap() = patience;
    }
}

/// Address reuse lets the reservation and a listener share the port.
fn bind(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket
        .bind(addr)
        .unwrap_or_else(|e| panic!("binding {addr}: {e}"));
    socket
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // Also when the engine is dropped.
            _ = &mut stopped => break,
            Some(served) = serving.join_next() => served.expect("serving a connection"),
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                serving.spawn(Serving::begin(stream, shared.clone()).run());
            }
        }
    }
    drop(listener);
    serving.shutdown().await;
}
