//! Begins traces, and turns the records of requests that have ended into spans.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use http::HeaderMap;
use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::mpsc;

use super::exporter::{Outlet, QUEUE};
use super::sampling::Ratio;
use super::spans::spans;
use super::{Options, Trace};
use crate::metrics::Metrics;
use crate::record::{Observer, Record};

/// Begins the traces of requests, and queues their spans.
#[derive(Clone, Debug)]
pub struct Tracer {
    ratio: Ratio,
    scope: InstrumentationScope,
    queue: mpsc::Sender<SpanData>,
    dropped: Arc<AtomicU64>,
    metrics: Metrics,
}

/// A tracer and its way out; `None` where there is no collector.
pub fn open(options: &Options, metrics: &Metrics) -> Option<(Tracer, Outlet)> {
    let endpoint = options.endpoint.clone()?;
    let (queue, spans) = mpsc::channel(QUEUE);
    let dropped = Arc::default();
    let tracer = Tracer {
        ratio: options.ratio,
        scope: InstrumentationScope::builder(env!("CARGO_PKG_NAME"))
            .with_version(env!("CARGO_PKG_VERSION"))
            .build(),
        queue,
        dropped: Arc::clone(&dropped),
        metrics: metrics.clone(),
    };
    let outlet = Outlet {
        endpoint,
        options: options.clone(),
        spans,
        dropped,
        metrics: metrics.clone(),
    };
    Some((tracer, outlet))
}

impl Tracer {
    /// The trace of a request with these fields; see [`Trace::begin`].
    pub fn begin(&self, fields: &HeaderMap, random: (u128, u64)) -> Trace {
        Trace::begin(fields, self.ratio, random)
    }
}

impl Observer for Tracer {
    fn ended(&self, record: &Record<'_>) {
        let Some(trace) = record.trace.filter(|trace| trace.is_sampled()) else {
            return;
        };
        let count = 1 + record.attempts.len();
        // Before the spans are made: where there is no room, they need not be.
        let Ok(places) = self.queue.try_reserve_many(count) else {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
            self.metrics.spans_left("dropped", count);
            return;
        };
        let spans = spans(record, trace, SystemTime::now(), &self.scope);
        for (place, span) in places.zip(spans) {
            place.send(span);
        }
    }
}
