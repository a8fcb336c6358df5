//! Traces: where the time of a request went, told to a collector over OTLP.
//!
//! Each request has a span, and below it one for each attempt; whatever an engine records hangs
//! below the attempt. A request's ids are there [from its beginning](Trace), since engines are told
//! of them. Its spans are made out of its [record](crate::record) once it has ended, and wait in a
//! queue for their [way out](Exporter), which runs by itself: a collector that is slow or gone costs
//! spans, and nothing else. Without an endpoint there is none of this.

mod collector;
mod context;
mod exporter;
mod losses;
mod sampling;
mod spans;
mod trace;
mod tracer;

use std::time::Duration;

use crate::config::CollectorUrl;

pub use collector::CollectorError;
pub use context::TraceParent;
pub use exporter::{Exporter, Outlet};
pub use sampling::Ratio;
pub use trace::{TRACEPARENT, TRACESTATE, Trace};
pub use tracer::{Tracer, open};

/// What is traced, and where the spans go.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where they go; `None` is nowhere, and then nothing is traced.
    pub endpoint: Option<CollectorUrl>,
    /// How the collector is spoken to.
    pub protocol: Protocol,
    /// What the spans say they are of.
    pub service_name: String,
    /// The share of traces that is recorded, of those that begin here.
    pub ratio: Ratio,
    /// Longest time for a batch of spans to be taken, another try included.
    pub timeout: Duration,
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP/1.1 with protobuf in its bodies.
    Http,
}

impl Protocol {
    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}
