//! Retries are opt-in: off means one attempt, whatever happens to it: C10.

use crate::support::*;

/// Ways in which an engine fails a request it has read, with the status that tells the client.
fn failures() -> [(&'static str, Reply, u16); 6] {
    [
        ("closed", fin_at(Point::Request), 502),
        ("reset", rst_at(Point::Request), 502),
        ("no HTTP", raw("SSH-2.0-OpenSSH_9.7\r\n\r\n"), 502),
        ("busy", status(503).body("busy"), 503),
        ("overloaded", status(429).body("busy"), 429),
        ("hangs", hang(), 504),
    ]
}

async fn fails_once(settings: &str) {
    for (name, reply, expected) in failures() {
        let (a, b) = (
            ScriptedEngine::start(reply.clone()).await,
            ScriptedEngine::start(reply).await,
        );
        let settings = format!("{settings}first_byte_timeout_ms: 300\n");
        let edge = edge(&settings).engines([&a, &b]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, expected, "{name}");
        match expected {
            502 => assert_eq!(response.json()["error"]["code"], "engine_unreachable"),
            504 => assert_eq!(response.json()["error"]["code"], "engine_timeout"),
            _ => assert_eq!(response.text(), "busy"),
        }
        let waited = if expected == 504 { 300 } else { 0 };
        assert_eq!(response.waited().as_millis(), waited, "{name}");
        assert!(!response.headers.has("x-vllm-pingora-attempts"));
        assert_eq!(a.seen() + b.seen(), 1, "{name}");
        edge.wait_until_idle().await;
        assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 1.0);
        assert_eq!(edge.metric("vllm_pingora_retries_total", &[]), 0.0);
        edge.assert_backoffs(&[]);
        assert_eq!(edge.requests("exhausted"), 0.0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn c10_without_the_switch_nothing_is_sent_twice() {
    fails_once("").await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_lone_max_retries_changes_nothing() {
    fails_once("max_retries: 5\ninitial_backoff_ms: 1\n").await;
}

#[tokio::test(start_paused = true)]
async fn c10_settings_out_of_range_are_ignored_while_retries_are_off() {
    fails_once("max_retries: 0\njitter_factor: 7\nbackoff_multiplier: -1\nmax_backoff_ms: 0\n")
        .await;
}

#[tokio::test(start_paused = true)]
async fn c10_a_refused_connect_is_not_failed_over() {
    let (dead, sound) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("sound")).await,
    );
    let edge = edge(NOBODY_OUT).engines([&dead, &sound]).start().await;
    let mut statuses = vec![];
    for _ in 0..4 {
        statuses.push(edge.ask(&req_n()).await.status);
    }
    assert_eq!(statuses, [502, 200, 502, 200]);
    assert_eq!(sound.seen(), 2);
}

#[tokio::test(start_paused = true)]
async fn c10_an_engine_that_dies_after_its_head_is_shown_as_cut() {
    for reply in [
        sse(3, ms(0)).rst_at(Point::ResponseHead).cut_after(ms(10)),
        sse(3, ms(0)).fin_at(Point::ResponseHead).cut_after(ms(10)),
    ] {
        let (dying, other) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(ok("other")).await,
        );
        let edge = edge("").engines([&dying, &other]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.complete), (200, false));
        assert_eq!(response.text(), "");
        assert_eq!((dying.seen(), other.seen()), (1, 0));
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("cut"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_object_at_the_start_of_a_stream_passes_while_retries_are_off() {
    let error = "data: {\"error\": {\"message\": \"no\", \"code\": 503}}\n\n";
    let stream = chunks([(ms(0), error)]).header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(stream).await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_s()).await.text(), error);
    assert_eq!(engine.seen(), 1);
}
