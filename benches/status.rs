//! What the status page costs each request, and what it takes to tell of a large fleet.
//!
//! ```text
//! cargo bench --bench status
//! ```
//!
//! Times are what threads spend on the processor. The request path pays for one record under a lock,
//! noted by one thread or by several at once; a stream pays for a snapshot every two seconds, however many listen.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench that cannot go on should say so; figures are for people"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::time::ClockId;
use tokio::sync::watch;
use vllm_pingora::config::EngineSpec;
use vllm_pingora::engines::{Fleet, Policy};
use vllm_pingora::metrics::Metrics;
use vllm_pingora::record::{Attempt, Observer as _, Record};
use vllm_pingora::status::Status;

const RECORDS: u32 = 1_000_000;
const SNAPSHOTS: u32 = 50;

fn status(engines: u16) -> (Status, Vec<Arc<str>>) {
    let specs: Vec<_> = (0..engines)
        .map(|number| {
            let url = format!("http://10.0.{}.{}:8000", number / 256, number % 256);
            EngineSpec::new(url.parse().unwrap(), vec!["m".to_owned()])
        })
        .collect();
    let fleet = Arc::new(Fleet::new(&specs, &BTreeMap::new(), Policy::default()));
    let engines = fleet.engines();
    let labels = engines
        .iter()
        .map(|engine| Arc::clone(engine.label()))
        .collect();
    let (_, draining) = watch::channel(false);
    let status = Status::new(fleet, Metrics::new().unwrap(), draining, true);
    (status, labels)
}

fn attempt(engine: &Arc<str>, outcome: &'static str, code: u16) -> Attempt {
    Attempt {
        engine: Arc::clone(engine),
        outcome,
        status: Some(code),
        begun: Duration::ZERO,
        took: Duration::from_millis(900),
        retry: None,
        ..Attempt::default()
    }
}

fn record(attempts: &[Attempt]) -> Record<'_> {
    Record {
        request_id: "0123456789abcdef0123456789abcdef",
        trace: None,
        client: Some("127.0.0.1:5000".parse().unwrap()),
        method: "POST",
        path: "/v1/chat/completions",
        route: "/v1/chat/completions",
        model: "m",
        stream: true,
        status: 200,
        outcome: "answered",
        reason: "answered",
        attempts,
        backoff: Duration::ZERO,
        backoffs: &[],
        first_byte: Some(Duration::from_millis(80)),
        total: Duration::from_secs(1),
        bytes_in: 1000,
        bytes_out: 5000,
        ..Record::default()
    }
}

/// What this thread has spent on the processor, whoever else uses it.
fn spent() -> Duration {
    let now = ClockId::CLOCK_THREAD_CPUTIME_ID.now().unwrap();
    Duration::new(
        now.tv_sec().try_into().unwrap(),
        now.tv_nsec().try_into().unwrap(),
    )
}

/// Nanoseconds that a record costs its thread, while `threads` of them note some.
fn cost(status: &Status, requests: &[Vec<Attempt>], threads: usize) -> f64 {
    let note = || {
        let begun = spent();
        for attempts in requests.iter().cycle().take(RECORDS as usize) {
            status.ended(black_box(&record(attempts)));
        }
        spent().saturating_sub(begun)
    };
    let all: Duration = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(note)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    all.as_nanos() as f64 / f64::from(RECORDS) / threads as f64
}

fn main() {
    for engines in [3, 1000] {
        let (status, labels) = status(engines);
        let plain: Vec<_> = labels
            .iter()
            .map(|label| vec![attempt(label, "answered", 200)])
            .collect();
        let retried: Vec<_> = labels
            .iter()
            .zip(labels.iter().cycle().skip(1))
            .map(|(one, other)| {
                vec![
                    attempt(one, "retryable_status", 503),
                    attempt(other, "answered", 200),
                ]
            })
            .collect();
        println!("{engines} engines");
        for threads in [1, 2, 4] {
            let each = cost(&status, &plain, threads);
            println!("  a plain request, {threads} threads: {each:.0} ns");
        }
        println!("  a retried request: {:.0} ns", cost(&status, &retried, 1));
        let begun = spent();
        for _ in 0..SNAPSHOTS {
            black_box(status.snapshot());
        }
        println!(
            "  a snapshot: {:?}",
            spent().saturating_sub(begun) / SNAPSHOTS
        );
        let (before, after) = (status.snapshot(), status.snapshot());
        let whole = serde_json::to_string(&after).unwrap().len();
        let update = serde_json::to_string(&after.since(&before)).unwrap().len();
        println!("  all as JSON: {whole} bytes, without a change: {update} bytes");
    }
}
