//! The engine's `/metrics`: names, labels and buckets of a vLLM server.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The media type of the exposition.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

const TTFT_BOUNDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_BOUNDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_BOUNDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const FINISHES: [&str; 5] = ["stop", "length", "abort", "error", "repetition"];

/// Counters and histograms of one engine.
#[derive(Debug)]
pub(super) struct Metrics {
    prompt_tokens: AtomicU64,
    generation_tokens: AtomicU64,
    finished: [AtomicU64; FINISHES.len()],
    rejected: AtomicU64,
    ttft: Histogram,
    inter_token: Histogram,
    e2e: Histogram,
    queue: Histogram,
}

/// What a finished request adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) reason: &'static str,
    pub(super) prompt_tokens: u32,
    pub(super) tokens: u32,
    pub(super) queued: Duration,
    pub(super) ttft: Duration,
    pub(super) gap: Duration,
    pub(super) e2e: Duration,
}

/// The gauges at the moment of a scrape.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gauges {
    pub(super) running: usize,
    pub(super) waiting: usize,
    pub(super) max_running: usize,
}

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is beyond all of them.
    buckets: Vec<AtomicU64>,
    sum_micros: AtomicU64,
}

// === impl Metrics ===

impl Metrics {
    pub(super) fn new() -> Self {
        Self {
            prompt_tokens: AtomicU64::new(0),
            generation_tokens: AtomicU64::new(0),
            finished: Default::default(),
            rejected: AtomicU64::new(0),
            ttft: Histogram::new(TTFT_BOUNDS),
            inter_token: Histogram::new(TOKEN_BOUNDS),
            e2e: Histogram::new(REQUEST_BOUNDS),
            queue: Histogram::new(REQUEST_BOUNDS),
        }
    }

    /// Counts a request turned away by the queue limit.
    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Relaxed);
    }

    /// Counts a request that ended by itself. One whose client left is not counted, as on a real
    /// engine.
    pub(super) fn finish(&self, finished: Finished) {
        self.prompt_tokens
            .fetch_add(u64::from(finished.prompt_tokens), Relaxed);
        self.generation_tokens
            .fetch_add(u64::from(finished.tokens), Relaxed);
        for (name, count) in FINISHES.iter().zip(&self.finished) {
            if *name == finished.reason {
                count.fetch_add(1, Relaxed);
            }
        }
        self.queue.observe(finished.queued, 1);
        self.ttft.observe(finished.ttft, 1);
        self.inter_token
            .observe(finished.gap, u64::from(finished.tokens.saturating_sub(1)));
        self.e2e.observe(finished.e2e, 1);
    }

    /// The exposition. `model` is the first served name.
    pub(super) fn render(&self, model: &str, gauges: Gauges) -> String {
        let model = model
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let mut page = Page {
            text: String::with_capacity(8192),
            labels: format!(r#"engine="0",model_name="{model}""#),
        };
        let Gauges {
            running,
            waiting,
            max_running,
        } = gauges;
        page.gauge("num_requests_running", "", running);
        page.gauge("num_requests_waiting", "", waiting);
        page.kind("num_requests_waiting_by_reason", "gauge");
        page.sample(
            "num_requests_waiting_by_reason",
            r#",reason="capacity""#,
            waiting,
        );
        page.sample("num_requests_waiting_by_reason", r#",reason="deferred""#, 0);
        page.gauge("kv_cache_usage_perc", "", usage(running, max_running));
        page.counter("num_preemptions_total", "", 0);
        page.counter(
            "prefix_cache_queries_total",
            "",
            self.prompt_tokens.load(Relaxed),
        );
        page.counter("prefix_cache_hits_total", "", 0);
        page.counter("prompt_tokens_total", "", self.prompt_tokens.load(Relaxed));
        page.counter(
            "generation_tokens_total",
            "",
            self.generation_tokens.load(Relaxed),
        );
        page.kind("request_success_total", "counter");
        for (reason, count) in FINISHES.iter().zip(&self.finished) {
            let label = format!(r#",finished_reason="{reason}""#);
            page.sample("request_success_total", &label, count.load(Relaxed));
        }
        page.counter(
            "admission_rejections_total",
            r#",reason="max_num_queued_reqs""#,
            self.rejected.load(Relaxed),
        );
        page.histogram("time_to_first_token_seconds", &self.ttft);
        page.histogram("inter_token_latency_seconds", &self.inter_token);
        page.histogram("e2e_request_latency_seconds", &self.e2e);
        page.histogram("request_queue_time_seconds", &self.queue);
        page.text
    }
}

/// Cache use as the share of places taken: a running request stands for its cache blocks.
fn usage(running: usize, max_running: usize) -> f64 {
    let number = |n: usize| f64::from(u32::try_from(n).unwrap_or(u32::MAX));
    (number(running) / number(max_running.max(1))).min(1.0)
}

// === impl Histogram ===

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum_micros: AtomicU64::new(0),
        }
    }

    fn observe(&self, value: Duration, times: u64) {
        if times == 0 {
            return;
        }
        let seconds = value.as_secs_f64();
        let index = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(times, Relaxed);
        }
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        self.sum_micros
            .fetch_add(micros.saturating_mul(times), Relaxed);
    }
}

/// A page being written.
struct Page {
    text: String,
    labels: String,
}

// === impl Page ===

impl Page {
    fn kind(&mut self, name: &str, kind: &str) {
        // The family of a counter has no `_total`.
        let name = name.strip_suffix("_total").unwrap_or(name);
        let _ = writeln!(self.text, "# HELP vllm:{name} As reported by vLLM.");
        let _ = writeln!(self.text, "# TYPE vllm:{name} {kind}");
    }

    fn sample(&mut self, name: &str, label: &str, value: impl std::fmt::Display) {
        let labels = &self.labels;
        let _ = writeln!(self.text, "vllm:{name}{{{labels}{label}}} {value}");
    }

    fn gauge(&mut self, name: &str, label: &str, value: impl std::fmt::Display) {
        self.kind(name, "gauge");
        self.sample(name, label, value);
    }

    fn counter(&mut self, name: &str, label: &str, value: u64) {
        self.kind(name, "counter");
        self.sample(name, label, value);
    }

    fn histogram(&mut self, name: &str, histogram: &Histogram) {
        self.kind(name, "histogram");
        let bounds = histogram.bounds.iter().map(f64::to_string);
        let mut count = 0;
        for (bound, bucket) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.buckets) {
            count += bucket.load(Relaxed);
            let label = format!(r#",le="{bound}""#);
            self.sample(&format!("{name}_bucket"), &label, count);
        }
        self.sample(&format!("{name}_count"), "", count);
        let micros = histogram.sum_micros.load(Relaxed);
        let sum = Duration::from_micros(micros).as_secs_f64();
        self.sample(&format!("{name}_sum"), "", sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_request_is_in_its_counters_and_buckets() {
        let metrics = Metrics::new();
        metrics.reject();
        metrics.finish(Finished {
            reason: "length",
            prompt_tokens: 3,
            tokens: 5,
            queued: Duration::ZERO,
            ttft: Duration::from_millis(50),
            gap: Duration::from_millis(20),
            e2e: Duration::from_millis(130),
        });
        let page = metrics.render(
            "a\"b",
            Gauges {
                running: 1,
                waiting: 2,
                max_running: 4,
            },
        );
        let labels = r#"engine="0",model_name="a\"b""#;
        for line in [
            format!("vllm:num_requests_running{{{labels}}} 1"),
            format!("vllm:num_requests_waiting{{{labels}}} 2"),
            format!("vllm:kv_cache_usage_perc{{{labels}}} 0.25"),
            format!("vllm:generation_tokens_total{{{labels}}} 5"),
            format!(r#"vllm:request_success_total{{{labels},finished_reason="length"}} 1"#),
            format!(r#"vllm:request_success_total{{{labels},finished_reason="abort"}} 0"#),
            format!(
                r#"vllm:admission_rejections_total{{{labels},reason="max_num_queued_reqs"}} 1"#
            ),
            format!(r#"vllm:time_to_first_token_seconds_bucket{{{labels},le="0.04"}} 0"#),
            format!(r#"vllm:time_to_first_token_seconds_bucket{{{labels},le="0.06"}} 1"#),
            format!("vllm:inter_token_latency_seconds_count{{{labels}}} 4"),
            format!("vllm:inter_token_latency_seconds_sum{{{labels}}} 0.08"),
            "# TYPE vllm:generation_tokens counter".to_owned(),
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        }
    }
}
