//! Retryable and final statuses, in the head or in a stream's first event: C01, C05, C06.

use crate::support::*;

const FINAL: [u16; 21] = [
    200, 201, 301, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 425, 431, 451, 501, 505, 511,
    529, 599,
];
const RETRYABLE: [u16; 6] = [408, 429, 500, 502, 503, 504];

#[tokio::test(start_paused = true)]
async fn a_503_is_asked_again_after_one_backoff() {
    let engine = ScriptedEngine::start([status(503), ok("late")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "late"));
    assert_eq!(response.waited().as_millis(), 200);
    assert_eq!(engine.seen(), 2);
    assert_eq!(response.attempts(), 2);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn the_engine_that_just_answered_503_is_picked_last() {
    let (tired, fresh) = (
        ScriptedEngine::start(status(503)).await,
        ScriptedEngine::start(ok("fresh")).await,
    );
    let edge = edge(RETRIES).engines([&tired, &fresh]).start().await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.text(), "fresh");
    }
    // Two of the four began with the tired one, and none of them asked it twice.
    assert_eq!((tired.seen(), fresh.seen()), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn every_attempt_gets_the_same_request() {
    let engine = ScriptedEngine::start([status(503), status(500), ok("third")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    edge.ask(&req_n()).await;
    let seen = engine.deliveries();
    assert_eq!(seen.len(), 3);
    for again in &seen[1..] {
        assert_eq!((&again.head, &again.body), (&seen[0].head, &seen[0].body));
    }
}

#[tokio::test(start_paused = true)]
async fn c01_max_retries_counts_all_attempts() {
    for budget in [2, 3, 5] {
        let engine = ScriptedEngine::start(status(503).body(r#"{"full":true}"#)).await;
        let edge = edge(&retries(budget)).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(
            (response.status, response.text()),
            (503, r#"{"full":true}"#)
        );
        assert_eq!(engine.seen(), budget as usize);
        let waits = [200, 400, 800, 1000];
        assert_eq!(millis(&engine.gaps()), waits[..budget as usize - 1]);
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("exhausted"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn c01_refused_connects_and_statuses_share_one_budget() {
    let (dead, full) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(status(503).body("full")).await,
    );
    let edge = edge(&format!("{}{NOBODY_OUT}", retries(4)))
        .engines([&dead, &full])
        .start()
        .await;
    for n in 1..=20 {
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (503, "full"));
        assert_eq!(response.attempts(), 4);
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(&dead), f64::from(n));
        assert_eq!(edge.attempts_on(&full), f64::from(3 * n));
        assert_eq!(full.seen(), 3 * n as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn c01_two_dead_engines_cost_one_attempt_each() {
    let (dead, gone) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    );
    let full = ScriptedEngine::start(status(503)).await;
    let engines = [&dead, &full, &gone];
    let settings = format!("{}{NOBODY_OUT}", retries(4));
    let edge = edge(&settings).engines(engines).start().await;
    for n in 1..=6 {
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.attempts()), (503, 4));
        edge.wait_until_idle().await;
        let attempts = engines.map(|engine| edge.attempts_on(engine));
        assert_eq!(attempts, [f64::from(n), f64::from(2 * n), f64::from(n)]);
    }
}

#[tokio::test(start_paused = true)]
async fn c05_a_final_status_passes_on_the_spot() {
    let engine = ScriptedEngine::start(hang()).await;
    let edge = edge(&retries(3)).engines([&engine]).start().await;
    for (n, code) in FINAL.into_iter().enumerate() {
        let body = format!(r#"{{"status":{code}}}"#);
        engine.play(status(code).header("X-Engine", "a").body(&body));
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (code, body.as_str()));
        assert_eq!(response.headers.get("x-engine"), Some("a"));
        assert_eq!(response.waited().as_millis(), 0);
        assert_eq!(response.attempts(), 1, "{code}");
        assert_eq!(engine.seen(), n + 1, "{code}");
    }
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), FINAL.len() as f64);
    assert_eq!(edge.metric("vllm_pingora_retries_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn c05_a_retryable_status_is_asked_again_until_the_budget_is_spent() {
    for code in RETRYABLE {
        let engine = ScriptedEngine::start(status(code).body("no")).await;
        let edge = edge(&retries(3)).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (code, "no"));
        assert_eq!(millis(&engine.gaps()), [200, 400], "{code}");
        edge.wait_until_idle().await;
        let reason = [("reason", code.to_string())];
        let reason = reason.each_ref().map(|(k, v)| (*k, v.as_str()));
        assert_eq!(edge.metric("vllm_pingora_retries_total", &reason), 2.0);
    }
}

/// The last answer of C06: 300 KiB, and every header an overloaded engine might give.
fn overloaded() -> (Reply, String) {
    let body = format!(r#"{{"n":3,"pad":"{}"}}"#, "p".repeat(300 * 1024));
    let reply = status(429)
        .header("Content-Type", "application/json")
        .header("Retry-After", "7")
        .header("retry-after-ms", "6500")
        .header("x-should-retry", "false")
        .header("x-ratelimit-remaining", "0")
        .header("Set-Cookie", "a=1; Path=/")
        .header("Set-Cookie", "b=2; Path=/")
        .body(&body);
    (reply, body)
}

#[tokio::test(start_paused = true)]
async fn c06_an_exhausted_request_gets_the_last_answer_as_the_engine_gave_it() {
    let (last, body) = overloaded();
    for last in [last.clone(), last.chunked()] {
        let engine = ScriptedEngine::start([
            status(503).body(r#"{"n":1}"#),
            status(500).body(r#"{"n":2}"#),
            last,
        ])
        .await;
        let edge = edge(&retries(3)).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.complete), (429, true));
        assert!(response.body == body.as_bytes(), "another body");
        for (name, value) in [
            ("content-type", "application/json"),
            ("retry-after", "7"),
            ("retry-after-ms", "6500"),
            ("x-should-retry", "false"),
            ("x-ratelimit-remaining", "0"),
        ] {
            assert_eq!(response.headers.get(name), Some(value), "{name}");
        }
        let cookies = response.headers.all("set-cookie");
        assert_eq!(cookies, ["a=1; Path=/", "b=2; Path=/"]);
        assert_eq!(engine.seen(), 3);

        engine.play(ok("next"));
        let next = client.ask(&req_n()).await;
        assert_eq!((next.status, next.text()), (200, "next"));
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn c06_a_transport_failure_at_the_end_is_answered_by_the_router() {
    let engine = ScriptedEngine::start([
        status(503).body("first"),
        status(503).body("second"),
        rst_at(Point::Request),
    ])
    .await;
    let edge = edge(&retries(3)).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["code"], "engine_unreachable");
    assert_eq!(response.attempts(), 3);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("own_error"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_discarded_answer_gives_its_connection_up_at_once() {
    let (_, body) = overloaded();
    let head = format!(
        "HTTP/1.1 503 Busy\r\nContent-Length: {}\r\n\r\n",
        body.len() + 3
    );
    let unfinished = raw_pieces([
        (ms(0), head.as_str()),
        (ms(0), body.as_str()),
        (secs(3600), "end"),
    ]);
    let engine = ScriptedEngine::start([unfinished, ok("second")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.text(), "second");
    assert!(response.raw.starts_with(b"HTTP/1.1 200 "));
    let (_, at) = engine.wait_for_peer_close(0).await;
    assert_eq!((at - engine.deliveries()[0].at).as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_died_before_its_first_byte_does_not_keep_a_later_503_from_being_retried() {
    let dead = sse(3, ms(0)).rst_at(Point::ResponseHead);
    let engine = ScriptedEngine::start([dead, status(503), sse(3, ms(0))]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!((response.status, response.attempts()), (200, 3));
    assert_eq!(response.body, sse_body(3));
    assert_eq!(millis(&engine.gaps()), [200, 400]);
}

fn error_event(code: &str) -> String {
    format!(
        "data: {{\"error\": {{\"message\": \"no\", \"type\": \"x\", \"param\": null, \"code\": {code}}}}}\n\n"
    )
}

fn event_stream<const N: usize>(pieces: [&str; N]) -> Reply {
    let pieces = pieces.map(|piece| (ms(0), piece.to_owned()));
    chunks(pieces).header("Content-Type", "text/event-stream; charset=utf-8")
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_begins_with_an_error_object_counts_as_its_code() {
    for code in RETRYABLE {
        let error = error_event(&code.to_string());
        let engine = ScriptedEngine::start([
            event_stream([error.as_str(), "data: [DONE]\n\n"]),
            sse(3, ms(50)),
        ])
        .await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.attempts()), (200, 2));
        assert_eq!(response.body, sse_body(3));
        assert_eq!(millis(&engine.gaps()), [200]);
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended("retryable_status"), 1.0);
        assert_eq!(edge.requests("answered"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_object_that_comes_in_pieces_counts_the_same() {
    let error = error_event("503");
    for at in [1, 5, 6, 7, 14, 20, error.len() - 2, error.len() - 1] {
        let pieces = [(ms(0), &error[..at]), (ms(70), &error[at..])];
        let split = chunks(pieces).header("Content-Type", "text/event-stream");
        let engine = ScriptedEngine::start([split, sse(2, ms(0))]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!(response.body, sse_body(2), "split at {at}");
        assert_eq!(engine.seen(), 2, "split at {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_object_passes_as_it_is_once_the_budget_is_spent() {
    let error = error_event("503");
    let engine = ScriptedEngine::start(event_stream([&error, "data: [DONE]\n\n"])).await;
    let edge = edge(&retries(2)).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!((response.status, response.complete), (200, true));
    assert_eq!(response.text(), error + "data: [DONE]\n\n");
    assert_eq!(engine.seen(), 2);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("exhausted"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_error_object_that_asking_again_cannot_change_passes_on_the_spot() {
    for code in ["400", "404", "501", "\"x\"", "null", "99999"] {
        let error = error_event(code);
        let engine = ScriptedEngine::start(event_stream([&error])).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.text()), (200, error.as_str()));
        assert_eq!(response.attempts(), 1);
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("answered"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_object_is_looked_for_in_the_first_event_of_a_stream_only() {
    let error = error_event("503");
    let later = event_stream(["data: {}\n\n", &error]);
    let json = ok(&error);
    for (reply, body) in [(later, format!("data: {{}}\n\n{error}")), (json, error)] {
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.text()), (200, body.as_str()));
        assert_eq!(engine.seen(), 1);
    }
}
