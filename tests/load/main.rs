//! The router under load, with engines that fail: every client gets its own answer, and the books
//! of the engines, the router and the clients agree to the last attempt.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so"
)]

mod client;
mod router;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use vllm_pingora::simulator::{Behaviour, RunningSimulator, Simulator, SimulatorConfig, echo};

use client::Client;
use router::Router;

const REQUESTS: u64 = 10_000;
const CLIENTS: usize = 64;
/// Far more than it takes: a router that hangs fails the test instead of the machine.
const PATIENCE: Duration = Duration::from_secs(240);

const SETTINGS: &str = "\
enable_retries: true
initial_backoff_ms: 1
max_backoff_ms: 5
";

/// Every request's number and attempts, as the clients saw them.
#[derive(Debug, Default)]
struct Seen {
    next: AtomicU64,
    answered: AtomicU64,
    attempts: AtomicU64,
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_requests_over_failing_engines_are_all_answered_and_all_counted() {
    let tired = engine(r#"{"fail_share":0.3333,"fail_status":503,"seed":1,"tokens":3}"#).await;
    let shaky = engine(r#"{"reset_share":0.1,"reset_at":"before-head","seed":2,"tokens":3}"#).await;
    let healthy = engine(r#"{"seed":3,"tokens":3}"#).await;
    let engines = [&tired, &shaky, &healthy];
    let router = Router::start(SETTINGS, engines.map(RunningSimulator::local_addr)).await;

    let seen = Arc::new(Seen::default());
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(ask_until_none_is_left(router.addr(), Arc::clone(&seen)));
    }
    timeout(PATIENCE, clients.join_all())
        .await
        .expect("the clients are done in time");
    timeout(PATIENCE, router.idle())
        .await
        .expect("every request comes to its end");

    assert_eq!(seen.answered.load(Ordering::Relaxed), REQUESTS);
    let answered = [("outcome", "answered"), ("status", "200")];
    assert_eq!(router.sum("requests_total", &answered), REQUESTS);
    assert_eq!(router.sum("requests_total", &[]), REQUESTS);

    let attempts = router.sum("attempts_total", &[]);
    let stale = router.sum("stale_connections_total", &[]);
    let [failed, reset] = [&tired, &shaky].map(|engine| engine.control().counts());
    assert_eq!(attempts, seen.attempts.load(Ordering::Relaxed));
    for engine in engines {
        let received = engine.control().counts().received;
        assert!(received > REQUESTS / 4, "an engine was left out");
    }
    let received: u64 = engines
        .map(|it| it.control().counts().received)
        .iter()
        .sum();
    assert_eq!(attempts + stale, received);

    let retries = |reason| router.sum("retries_total", &[("reason", reason)]);
    assert_eq!(router.sum("retries_total", &[]), attempts - REQUESTS);
    assert_eq!(retries("503"), failed.statuses[&503]);
    assert!(retries("503") > REQUESTS / 20, "too few failures to tell");
    // A connection from the pool that is reset before a byte of an answer passes for a stale one.
    assert_eq!(retries("closed") + stale, reset.resets);
    assert!(reset.resets > REQUESTS / 100, "too few resets to tell");
    assert_eq!(retries("503") + retries("closed"), attempts - REQUESTS);
    assert_eq!(router.sum("backoff_seconds_count", &[]), retries("503"));
    assert_eq!(router.sum("engine_requests_in_flight", &[]), 0);
}

async fn engine(behaviour: &str) -> RunningSimulator {
    let config = SimulatorConfig {
        behaviour: Behaviour::from_json(behaviour).unwrap(),
        ..SimulatorConfig::default()
    };
    Simulator::bind(config).await.unwrap().spawn()
}

/// One client on one connection: asks until all clients together have asked everything. Of each
/// three requests, one is a stream.
async fn ask_until_none_is_left(router: SocketAddr, seen: Arc<Seen>) {
    let mut client = Client::new(router);
    loop {
        let number = seen.next.fetch_add(1, Ordering::Relaxed);
        if number >= REQUESTS {
            return;
        }
        let prompt = format!(r#""question {number}""#);
        let stream = number.is_multiple_of(3);
        let answer = client
            .post(
                "/v1/completions",
                &format!(r#"{{"model":"m","prompt":{prompt},"stream":{stream}}}"#),
            )
            .await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.body);
        let text = if stream {
            streamed(&answer.body)
        } else {
            choice(&answer.body)
        };
        let expected = echo(&prompt);
        assert!(text.starts_with(&expected), "{number}: {}", answer.body);
        assert!(text.len() > expected.len(), "{number}: {}", answer.body);
        seen.answered.fetch_add(1, Ordering::Relaxed);
        seen.attempts.fetch_add(answer.attempts, Ordering::Relaxed);
    }
}

fn choice(json: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    value["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// The text of a whole stream; its end must be there, and nothing behind it.
fn streamed(body: &str) -> String {
    let events = body.strip_suffix("data: [DONE]\n\n").expect(body);
    events
        .split_terminator("\n\n")
        .map(|event| choice(event.strip_prefix("data: ").expect(body)))
        .collect()
}
