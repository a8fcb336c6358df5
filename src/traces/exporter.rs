//! Brings spans to the collector, in batches, apart from all requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

use super::Options;
use super::collector::{self, CollectorError};
use super::losses::Losses;
use crate::config::CollectorUrl;
use crate::metrics::Metrics;

/// The most spans that wait. One that finds no place is lost.
pub(super) const QUEUE: usize = 2048;
/// The most spans in one batch.
const BATCH: usize = 512;
/// How long a batch waits to be filled.
const LINGER: Duration = Duration::from_secs(1);
/// How long what waits at the end has to get out.
const FLUSH: Duration = Duration::from_secs(3);

/// The way to the collector before it is opened.
#[derive(Debug)]
pub struct Outlet {
    pub(super) endpoint: CollectorUrl,
    pub(super) options: Options,
    pub(super) spans: mpsc::Receiver<SpanData>,
    pub(super) dropped: Arc<AtomicU64>,
    pub(super) metrics: Metrics,
}

impl Outlet {
    /// Opens it, inside the tokio runtime it is to [run](Exporter::run) in. Nobody is connected to
    /// yet.
    ///
    /// # Errors
    /// What TLS needs is missing, or the environment asks for what there is not.
    pub fn open(self) -> Result<Exporter<opentelemetry_otlp::SpanExporter>, CollectorError> {
        let collector = collector::connect(&self.endpoint, &self.options)?;
        Ok(Exporter {
            collector,
            timeout: self.options.timeout,
            spans: self.spans,
            batch: Vec::with_capacity(BATCH),
            dropped: self.dropped,
            losses: Losses::default(),
            metrics: self.metrics,
        })
    }
}

/// Empties the queue of spans.
#[derive(Debug)]
pub struct Exporter<C> {
    collector: C,
    timeout: Duration,
    spans: mpsc::Receiver<SpanData>,
    batch: Vec<SpanData>,
    /// Spans that found no place in the queue and have not been told of.
    dropped: Arc<AtomicU64>,
    losses: Losses,
    metrics: Metrics,
}

impl<C: SpanExporter> Exporter<C> {
    /// Sends spans until `stop` turns true, then what is left of them, and returns within seconds.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut ending = stop.clone();
        let too_late = async {
            stopped(&mut ending).await;
            sleep(FLUSH).await;
        };
        let work = async {
            while self.gather(&mut stop).await {
                self.send().await;
            }
        };
        tokio::select! {
            () = work => {}
            () = too_late => log::warn!("traces: the last spans could not be sent in time"),
        }
    }

    /// Waits for a batch; `false` once there are no spans left and none will come.
    async fn gather(&mut self, stop: &mut watch::Receiver<bool>) -> bool {
        let is_ending = tokio::select! {
            biased;
            () = stopped(stop) => true,
            () = fill(&mut self.spans, &mut self.batch) => false,
        };
        if is_ending {
            self.spans.close();
            let room = BATCH - self.batch.len();
            self.spans.recv_many(&mut self.batch, room).await;
        }
        !self.batch.is_empty()
    }

    async fn send(&mut self) {
        // The room of the batch is given away; that costs one allocation in half a thousand spans.
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        let count = batch.len();
        let failure = match timeout(self.timeout, self.collector.export(batch)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {:?}", self.timeout)),
        };
        let outcome = if failure.is_none() { "sent" } else { "failed" };
        self.metrics.spans_left(outcome, count);
        let failed = if failure.is_none() { 0 } else { count as u64 };
        let lost = failed + self.dropped.swap(0, Ordering::Relaxed);
        if let Some(lost) = self.losses.add(lost, Instant::now()) {
            let why = failure
                .as_deref()
                .unwrap_or("they came faster than they could be sent");
            log::warn!("traces: {lost} spans are lost: {why}");
        }
    }
}

/// Waits until it is said to stop, or nobody is left to say it.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Waits for spans, and then a while for more.
async fn fill(spans: &mut mpsc::Receiver<SpanData>, batch: &mut Vec<SpanData>) {
    if batch.is_empty() && spans.recv_many(batch, BATCH).await == 0 {
        return;
    }
    let full = async {
        while batch.len() < BATCH {
            let room = BATCH - batch.len();
            if spans.recv_many(batch, room).await == 0 {
                return;
            }
        }
    };
    // A batch that is not full goes, too.
    let _ = timeout(LINGER, full).await;
}

#[cfg(test)]
mod tests;
