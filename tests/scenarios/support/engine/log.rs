//! What an engine records of the requests and the connections it gets.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::support::script::Playback;
use crate::support::wire::{Close, Framing, Headers};

/// A request received in full.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub method: String,
    pub target: String,
    pub version: String,
    pub headers: Headers,
    /// The head as received, blank line included.
    pub head: Bytes,
    /// The decoded body; empty if the script forgets bodies.
    pub body: Bytes,
    pub body_len: u64,
    /// Equals [`wire::body_hash`] of the body.
    pub body_hash: u64,
    pub framing: Framing,
    pub chunk_sizes: Vec<u64>,
    pub chunk_extensions: Vec<String>,
    pub trailers: Headers,
    /// Index into [`ScriptedEngine::connections`].
    pub connection: usize,
    /// Which request of its connection it is, counted from 0.
    pub nth: usize,
    pub head_at: Instant,
    /// When the last byte arrived.
    pub at: Instant,
    /// Whether the scripted response has been sent in full (not cut, not withheld).
    pub answered: bool,
    pub(super) routed: bool,
}

impl Delivery {
    /// The `X-Case` it carries.
    pub fn case(&self) -> &str {
        self.headers
            .get("x-case")
            .unwrap_or_else(|| panic!("no x-case in {:?}", self.headers))
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        path(&self.target)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body that is JSON")
    }
}

pub(super) fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// One accepted connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub accepted_at: Instant,
    /// How and when the peer ended its side, as far as the engine got to see it.
    pub peer_close: Option<(Close, Instant)>,
    /// How and when the engine ended its side.
    pub engine_close: Option<(Close, Instant)>,
    pub bytes_received: u64,
    /// Every byte received; empty if the script forgets bodies.
    pub received: Vec<u8>,
    /// Bytes of responses handed to the socket.
    pub bytes_sent: u64,
    /// Whether the peer left in the middle of a request.
    pub cut_request: bool,
}

#[derive(Default)]
pub(super) struct Log {
    pub(super) deliveries: Vec<Delivery>,
    pub(super) connections: Vec<Connection>,
    pub(super) requests_begun: usize,
    pub(super) errors: Vec<String>,
}

pub(super) struct Shared {
    pub(super) log: Mutex<Log>,
    pub(super) playback: Mutex<Playback>,
    pub(super) changes: watch::Sender<()>,
    pub(super) patience: Mutex<Duration>,
}

impl Shared {
    pub(super) fn read<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.lock().unwrap())
    }

    pub(super) fn write<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let result = change(&mut self.log.lock().unwrap());
        self.changes.send_replace(());
        result
    }
}
