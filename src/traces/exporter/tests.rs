use std::collections::BTreeMap;
use std::sync::Mutex;

use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};

use super::*;
use crate::config::Settings;
use crate::engines::{Fleet, Policy};
use crate::record::{OTHER_ROUTE, Observer as _, Record};
use crate::traces::{self, Tracer};

/// A collector that answers as told, and keeps what it got.
#[derive(Clone, Debug, Default)]
struct Collector {
    batches: Arc<Mutex<Vec<usize>>>,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, Default)]
enum Answer {
    #[default]
    Taken,
    Refused,
    Never,
}

impl Collector {
    fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().clone()
    }
}

impl SpanExporter for Collector {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.batches.lock().unwrap().push(batch.len());
        match self.answer {
            Answer::Taken => Ok(()),
            Answer::Refused => Err(OTelSdkError::InternalFailure("no".to_owned())),
            Answer::Never => std::future::pending().await,
        }
    }
}

/// A router's tracer and what exports its spans to a collector that answers like this.
struct Traced {
    tracer: Tracer,
    collector: Collector,
    metrics: Metrics,
    stop: watch::Sender<bool>,
    exporting: tokio::task::JoinHandle<()>,
}

fn start(answer: Answer) -> Traced {
    let settings = "otel_endpoint: http://c:4317\nengines: [{url: http://e, models: [m]}]";
    let options = Settings::from_yaml(settings).unwrap().traces;
    let metrics = Metrics::new().unwrap();
    let (tracer, outlet) = traces::open(&options, &metrics).unwrap();
    let collector = Collector {
        answer,
        ..Collector::default()
    };
    let exporter = Exporter {
        collector: collector.clone(),
        timeout: options.timeout,
        spans: outlet.spans,
        batch: Vec::new(),
        dropped: outlet.dropped,
        losses: Losses::default(),
        metrics: outlet.metrics,
    };
    let (stop, stopped) = watch::channel(false);
    Traced {
        tracer,
        collector,
        metrics,
        stop,
        exporting: tokio::spawn(exporter.run(stopped)),
    }
}

impl Traced {
    /// So many requests end, each a span.
    fn requests(&self, count: usize) {
        for _ in 0..count {
            let trace = self.tracer.begin(&http::HeaderMap::new(), (1, 2));
            self.tracer.ended(&Record {
                request_id: "r",
                trace: Some(&trace),
                client: None,
                method: "GET",
                path: "/",
                route: OTHER_ROUTE,
                model: "",
                stream: false,
                status: 200,
                outcome: "answered",
                reason: "answered",
                attempts: &[],
                backoff: Duration::ZERO,
                backoffs: &[],
                first_byte: None,
                total: Duration::ZERO,
                bytes_in: 0,
                bytes_out: 0,
            });
        }
    }

    fn spans(&self, outcome: &str) -> u64 {
        let nobody = Fleet::new(&[], &BTreeMap::new(), Policy::default());
        let text = String::from_utf8(self.metrics.expose(&nobody)).unwrap();
        let series = format!("vllm_pingora_spans_total{{outcome=\"{outcome}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&series));
        value.map_or(0, |value| value.parse().unwrap())
    }

    async fn stop(self) -> Duration {
        let begun = Instant::now();
        self.stop.send_replace(true);
        self.exporting.await.unwrap();
        begun.elapsed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_goes_when_it_is_full_or_has_waited_for_a_second() {
    let traced = start(Answer::Taken);
    let begun = Instant::now();
    traced.requests(3);
    sleep(LINGER / 2).await;
    traced.requests(2);
    assert!(traced.collector.batches().is_empty());
    sleep(LINGER / 2 + Duration::from_millis(1)).await;
    assert_eq!(traced.collector.batches(), [5]);
    traced.requests(BATCH + 1);
    while traced.collector.batches().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(traced.collector.batches(), [5, BATCH]);
    assert_eq!(
        begun.elapsed(),
        LINGER + Duration::from_millis(1),
        "at once"
    );
    sleep(LINGER + Duration::from_millis(1)).await;
    assert_eq!(traced.collector.batches(), [5, BATCH, 1]);
    assert_eq!(traced.spans("sent"), 5 + BATCH as u64 + 1);
}

#[tokio::test(start_paused = true)]
async fn unsampled_requests_send_nothing() {
    let traced = start(Answer::Taken);
    let mut fields = http::HeaderMap::new();
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    fields.insert(traces::TRACEPARENT, parent.parse().unwrap());
    assert!(!traced.tracer.begin(&fields, (1, 2)).is_sampled());
    let collector = traced.collector.clone();
    assert_eq!(traced.stop().await, Duration::ZERO);
    assert!(collector.batches().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_lost_and_the_next_batch_goes() {
    let traced = start(Answer::Refused);
    for _ in 0..2 {
        traced.requests(7);
        sleep(LINGER * 2).await;
    }
    assert_eq!(traced.collector.batches(), [7, 7]);
    assert_eq!((traced.spans("failed"), traced.spans("sent")), (14, 0));
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_never_answers_costs_spans_and_no_memory() {
    let traced = start(Answer::Never);
    traced.requests(BATCH);
    while traced.collector.batches().is_empty() {
        tokio::task::yield_now().await;
    }
    traced.requests(QUEUE + 10);
    assert_eq!(traced.spans("dropped"), 10, "the queue holds no more");
    sleep(Duration::from_secs(11)).await;
    assert_eq!(traced.spans("failed"), BATCH as u64);
    assert_eq!(traced.collector.batches(), [BATCH, BATCH]);
    traced.requests(BATCH + 1);
    assert_eq!(traced.spans("dropped"), 11);
    assert_eq!(traced.stop().await, FLUSH);
}

#[tokio::test(start_paused = true)]
async fn at_the_end_all_that_waits_goes_at_once() {
    let traced = start(Answer::Taken);
    traced.requests(3);
    sleep(LINGER / 2).await;
    traced.requests(QUEUE - 3);
    let begun = Instant::now();
    traced.stop.send_replace(true);
    while !traced.exporting.is_finished() {
        tokio::task::yield_now().await;
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(traced.collector.batches(), [BATCH; QUEUE / BATCH]);
    // A request that ends still later finds nobody, and goes on.
    traced.requests(1);
    assert_eq!(traced.spans("dropped"), 1);
}
