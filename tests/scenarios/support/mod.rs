//! The two ends of every scenario: an engine that misbehaves on request, and a client that sees
//! each byte.
//!
//! Both speak HTTP/1.1 over plain sockets, so that framing, cuts and resets are visible. Neither
//! polls: waiting is woken by what it waits for. Every recorded time is a `tokio::time::Instant`,
//! and only [`patience`] looks at the real clock, so a scenario may run on a paused one.
#![allow(
    dead_code,
    unused_imports,
    reason = "each scenario uses the verbs it needs"
)]

mod client;
mod collector;
mod dns;
mod edge;
mod engine;
mod full;
mod kube;
mod patience;
mod process;
pub mod promql;
mod scratch;
mod script;
mod sse;
pub mod wire;

pub use client::{Client, Interim, NoResponse, Request, Response, post, req_n, req_s};
pub use collector::{Collector, Span, SpanEvent};
pub use dns::{DnsServer, Zone, addresses, services};
pub use edge::{
    EdgeBuilder, NOBODY_OUT, RETRIES, TestEdge, Trace, edge, lines_with, millis, retries, trace,
};
pub use engine::{Connection, Delivery, ScriptedEngine};
pub use full::Full;
pub use kube::{Gone, KubeApi, pods};
pub use patience::{PATIENCE, within};
pub use process::Process;
pub use scratch::Scratch;
pub use script::{
    Point, Reply, Script, answer, chunks, connections, event, fin_at, flood, hang, ok, raw,
    raw_pieces, rst_at, script, serving_m, sse, sse_body, status,
};
pub use sse::Event;
pub use wire::{Close, Framing, Headers, body_hash};

use std::time::Duration;

/// Milliseconds, short enough to read in a script.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// What an engine is and why, as [`TestEdge::condition`] tells it.
pub fn words(condition: &str, reason: &str) -> (String, String) {
    (condition.to_owned(), reason.to_owned())
}

/// Whole seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
