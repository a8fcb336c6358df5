//! How requests end, as metrics and the access log tell it: each counted once.

use crate::support::*;

/// Panics unless these are all outcomes of requests, with how often each came.
#[track_caller]
fn assert_outcomes<const N: usize>(edge: &TestEdge, expected: [(&str, &str, u32); N]) {
    let mut all = 0;
    for (outcome, status, count) in expected {
        let labels = [("outcome", outcome), ("status", status)];
        let found = edge.metric("vllm_pingora_requests_total", &labels);
        assert_eq!(found, f64::from(count), "{outcome} {status}");
        all += count;
    }
    let total = edge.metric("vllm_pingora_requests_total", &[]);
    assert_eq!(total, f64::from(all), "requests in all");
    let timed = edge.metric("vllm_pingora_request_duration_seconds_count", &[]);
    assert_eq!(timed, f64::from(all), "durations");
}

fn keys_and_values(line: &str) -> std::collections::HashMap<&str, &str> {
    line.split(' ')
        .filter_map(|field| field.split_once('='))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn every_request_and_attempt_is_counted_once_by_how_it_ended() {
    let (a, b) = (
        ScriptedEngine::start(ok("ok")).await,
        ScriptedEngine::start(ok("ok")).await,
    );
    let edge = edge(&format!("{}{NOBODY_OUT}", retries(3)))
        .engines([&a, &b])
        .start()
        .await;
    // Plain.
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.attempts(), 1);
    }
    // Three attempts each: both engines answer 503 first.
    for _ in 0..10 {
        a.play([status(503), ok("ok")]);
        b.play([status(503), ok("ok")]);
        assert_eq!(edge.ask(&req_n()).await.attempts(), 3);
    }
    edge.wait_until_idle().await;
    assert_eq!(a.seen() + b.seen(), 40);
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 40.0);
    let retried = edge.metric("vllm_pingora_retries_total", &[("reason", "503")]);
    assert_eq!(retried, 20.0);
    assert_eq!(edge.attempts_ended("retryable_status"), 20.0);
    assert_eq!(edge.attempts_ended("answered"), 20.0);

    // Exhausted.
    a.play(status(503));
    b.play(status(503));
    for _ in 0..5 {
        assert_eq!(edge.ask(&req_n()).await.status, 503);
    }
    // Rerouted.
    a.stop().await;
    b.play(ok("ok"));
    let mut rerouted = 0;
    while rerouted < 5 {
        rerouted += edge.ask(&req_n()).await.attempts() - 1;
    }
    edge.wait_until_idle().await;
    let answered = edge.requests("answered");
    assert_eq!(edge.requests("exhausted"), 5.0);
    assert_eq!(edge.attempts_ended("connect"), 5.0);
    assert_eq!(edge.attempts_ended("answered"), answered);
    assert_eq!(
        edge.metric("vllm_pingora_attempts_total", &[]),
        (a.seen() + b.seen()) as f64 + 5.0
    );
    assert_outcomes(
        &edge,
        [
            ("answered", "200", answered as u32),
            ("exhausted", "503", 5),
        ],
    );
    assert_eq!(edge.attempts_on(&a), a.seen() as f64 + 5.0);
    assert_eq!(edge.attempts_on(&b), b.seen() as f64);
}

#[tokio::test(start_paused = true)]
async fn three_attempts_are_three_in_every_count() {
    let engine = ScriptedEngine::start(script([status(503), status(429), ok("ok")]).cycle()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.attempts(), 3);
    }
    edge.wait_until_idle().await;
    assert_outcomes(&edge, [("answered", "200", 10)]);
    assert_eq!(engine.seen(), 30);
    assert_eq!(edge.attempts_on(&engine), 30.0);
    assert_eq!(edge.attempts_ended("retryable_status"), 20.0);
    assert_eq!(edge.attempts_ended("answered"), 10.0);
    for reason in ["503", "429"] {
        let labels = [("reason", reason)];
        assert_eq!(edge.metric("vllm_pingora_retries_total", &labels), 10.0);
    }
    edge.assert_backoffs(&[[200, 400]; 10].concat());
    let first = edge.metric("vllm_pingora_time_to_first_token_seconds_sum", &[]);
    assert!((first - 6.0).abs() < 1e-6, "{first}");
}

#[tokio::test(start_paused = true)]
async fn a_stale_connection_is_no_attempt() {
    let stale = |shape: Reply| connections([vec![shape], vec![ok("fresh")]]);
    let second = |shape: Reply| connections([vec![ok("first"), shape], vec![ok("fresh")]]);
    // Reset on the first byte of the request; read and closed; read and reset.
    for (script, unanswered) in [
        (stale(ok("first").then_rst_on_next_byte()), 0),
        (second(fin_at(Point::Request)), 1),
        (second(rst_at(Point::Request)), 1),
    ] {
        for settings in [RETRIES, ""] {
            let engine = ScriptedEngine::start(script.clone()).await;
            let edge = edge(settings).engines([&engine]).start().await;
            assert_eq!(edge.ask(&req_n()).await.text(), "first");
            let response = edge.ask(&req_n()).await;
            assert_eq!((response.status, response.text()), (200, "fresh"));
            assert_eq!(response.waited().as_millis(), 0);
            edge.wait_until_idle().await;
            assert_outcomes(&edge, [("answered", "200", 2)]);
            let stale = edge.metric("vllm_pingora_stale_connections_total", &[]);
            assert_eq!(stale, 1.0);
            assert_eq!(edge.attempts_on(&engine), 2.0);
            assert_eq!(edge.metric("vllm_pingora_retries_total", &[]), 0.0);
            assert_eq!(engine.seen(), 2 + unanswered);
            if settings == RETRIES {
                assert_eq!(response.attempts(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_left_is_nobodys_failure() {
    let engine = ScriptedEngine::start(hang()).await;
    let edge = edge(&retries(5)).engines([&engine]).start().await;
    let leave = async |reply: Reply, request: Request, after: u64| {
        engine.play(reply);
        let connection = engine.accepted();
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&request).await;
        engine.wait_for_connections(connection + 1).await;
        tokio::time::sleep(ms(after)).await;
        let left = tokio::time::Instant::now();
        client.close();
        let (_, at) = engine.wait_for_peer_close(connection).await;
        at.saturating_duration_since(left)
    };
    // While the engine thinks.
    let noticed = leave(hang(), req_n(), 5000).await;
    assert!(noticed < secs(1), "{noticed:?}");
    // Between the held head and the first byte.
    let late = chunks([(secs(3600), "late")]);
    assert!(leave(late, req_s(), 5000).await < secs(1));
    // In the middle of a stream.
    assert!(leave(sse(1000, secs(60)), req_s(), 90_000).await < secs(1));
    // In a backoff.
    let before = engine.seen();
    leave(status(503), req_n(), 100).await;
    edge.wait_for_requests("client_gone", 4).await;
    tokio::time::sleep(secs(10)).await;
    assert_eq!(engine.seen(), before + 1);
    // Before the body is complete: no engine hears of it.
    let mut client = Client::connect(edge.addr()).await;
    client.send(req_n().head_bytes()).await;
    client.send(b"{").await;
    tokio::time::sleep(ms(10)).await;
    client.close();
    edge.wait_for_requests("client_gone", 5).await;
    edge.wait_until_idle().await;
    assert_eq!(engine.seen(), before + 1);

    assert_outcomes(&edge, [("client_gone", "0", 4), ("client_gone", "200", 1)]);
    assert_eq!(edge.attempts_ended("client_gone"), 3.0);
    assert_eq!(edge.attempts_ended("retryable_status"), 1.0);
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 4.0);
    // The attempt that was decided on never began, and its wait was not waited out.
    assert_eq!(edge.metric("vllm_pingora_retries_total", &[]), 0.0);
    edge.assert_backoffs(&[]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_in_its_backoff_is_noticed_then() {
    let engine = ScriptedEngine::start(status(503)).await;
    let settings = RETRIES
        .replace("initial_backoff_ms: 200", "initial_backoff_ms: 60000")
        .replace("max_backoff_ms: 1000", "max_backoff_ms: 60000");
    let edge = edge(&settings).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = req_n().header("X-Request-Id", "left-in-backoff");
    client.send_request(&request).await;
    engine.wait_for_deliveries(1).await;
    tokio::time::sleep(secs(7)).await;
    client.close();
    let line = edge.access_line("left-in-backoff").await;
    let fields = keys_and_values(&line);
    assert_eq!(fields["outcome"], "client_gone");
    assert_eq!(fields["status"], "0");
    assert_eq!(fields["backoff_ms"], "7000.0");
    assert_eq!(fields["total_ms"], "7000.0");
    edge.wait_until_idle().await;
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_of_our_own_are_counted_as_such() {
    let dead = ScriptedEngine::refusing().await;
    let edge = edge(&format!(
        "{RETRIES}max_request_body_bytes: 1000\napi_keys: [client-key]\n"
    ))
    .engines([&dead])
    .start()
    .await;
    let get = |path| Request::new("GET", path);
    for (request, expected) in [
        (req_n(), 502),
        (req_n().set("Authorization", "Bearer wrong"), 401),
        (post("/v1/chat/completions").body("{"), 400),
        (post("/v1/chat/completions").body(r#"{"model":"x"}"#), 404),
        (get("/nowhere"), 404),
        (get("/v1/chat/completions"), 405),
        (post("/v1/completions").body("x".repeat(1001)), 413),
        (
            post("/v1/completions")
                .body("x".repeat(1001))
                .chunked([100]),
            413,
        ),
        (get("/v1/models"), 503),
        (get("/health"), 200),
    ] {
        let response = edge.ask(&request).await;
        assert_eq!(response.status, expected, "{}", request.case());
        if expected != 200 {
            assert!(response.json()["error"]["code"].is_string());
        }
    }
    edge.wait_until_idle().await;
    assert_outcomes(
        &edge,
        [
            ("own_error", "502", 1),
            ("own_error", "401", 1),
            ("own_error", "400", 1),
            ("own_error", "404", 2),
            ("own_error", "405", 1),
            ("own_error", "413", 2),
            ("own_error", "503", 1),
            ("answered", "200", 1),
        ],
    );
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 5.0);
    assert_eq!(edge.attempts_ended("connect"), 5.0);
}

#[tokio::test(start_paused = true)]
async fn names_that_clients_make_up_make_no_series() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    edge.ask(&req_n()).await;
    let before = edge.exposition().lines().count();
    let mut client = Client::connect(edge.addr()).await;
    for n in 0..1000 {
        let request = match n % 2 {
            0 => post("/v1/chat/completions").body(format!(r#"{{"model":"model-{n}"}}"#)),
            _ => Request::new("GET", &format!("/path-{n}")),
        };
        assert_eq!(client.ask(&request).await.status, 404);
    }
    edge.wait_until_idle().await;
    let exposition = edge.exposition();
    let grown = exposition.lines().count() - before;
    assert!(grown < 50, "{grown} new lines");
    assert!(!exposition.contains("model-") && !exposition.contains("path-"));
    assert_outcomes(&edge, [("answered", "200", 1), ("own_error", "404", 1000)]);
}

#[tokio::test(start_paused = true)]
async fn gauges_show_what_runs_and_come_back_to_zero() {
    let engine = ScriptedEngine::start(ok("ok").delay(secs(1))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = req_n();
    let ask = futures::future::join_all((0..7).map(|_| edge.ask(&request)));
    let look = async {
        tokio::time::sleep(ms(500)).await;
        [
            edge.metric("vllm_pingora_requests_in_flight", &[]),
            edge.metric("vllm_pingora_engine_requests_in_flight", &[]),
        ]
    };
    let (_, running) = tokio::join!(ask, look);
    assert_eq!(running, [7.0, 7.0]);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_in_its_backoff_is_on_no_engine() {
    let engine = ScriptedEngine::start([status(503), ok("ok")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = req_n();
    let look = async {
        tokio::time::sleep(ms(100)).await;
        [
            edge.metric("vllm_pingora_requests_in_flight", &[]),
            edge.metric("vllm_pingora_engine_requests_in_flight", &[]),
        ]
    };
    let (_, running) = tokio::join!(edge.ask(&request), look);
    assert_eq!(running, [1.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn the_access_log_tells_a_request_with_all_its_attempts() {
    let dead = ScriptedEngine::refusing().await;
    let busy = ScriptedEngine::start([status(503), sse(2, ms(25)).delay(ms(10))]).await;
    let edge = edge(RETRIES).engines([&dead, &busy]).start().await;
    let request = req_s().header("X-Request-Id", "told-whole");
    let response = edge.ask(&request).await;
    assert_eq!(response.headers.get("x-request-id"), Some("told-whole"));
    for delivery in busy.deliveries() {
        assert_eq!(delivery.headers.get("x-request-id"), Some("told-whole"));
    }
    let line = edge.access_line("told-whole").await;
    let fields = keys_and_values(&line);
    let attempts = format!(
        "{}:connect:0.0ms,{busy}:retryable_status/503:0.0ms,{busy}:answered/200:35.0ms",
        dead.url(),
        busy = busy.url(),
    );
    for (key, value) in [
        ("method", "POST"),
        ("path", "/v1/chat/completions"),
        ("model", "m"),
        ("stream", "true"),
        ("status", "200"),
        ("outcome", "answered"),
        ("reason", "answered"),
        ("attempts", attempts.as_str()),
        ("backoff_ms", "200.0"),
        ("ttft_ms", "210.0"),
        ("total_ms", "235.0"),
        ("bytes_in", &request.body_bytes().len().to_string()),
        ("bytes_out", &sse_body(2).len().to_string()),
    ] {
        assert_eq!(fields[key], value, "{key} in {line}");
    }
    assert!(fields["client"].starts_with("127.0.0.1:"), "{line}");
}

#[tokio::test(start_paused = true)]
async fn the_access_log_keeps_apart_how_requests_end() {
    let engine = ScriptedEngine::start(hang()).await;
    let edge = edge(&retries(2)).engines([&engine]).start().await;
    let dying = || chunks([(ms(0), "x"), (ms(50), "y")]);
    let cut = dying().rst_at(Point::Pieces(1)).cut_after(ms(10));
    for (id, reply, expected, stop) in [
        (
            "end-final",
            status(404),
            ("404", "answered", "answered"),
            "answered",
        ),
        (
            "end-full",
            status(503),
            ("503", "exhausted", "budget_spent"),
            "budget_spent",
        ),
        ("end-cut", cut, ("200", "cut", "committed"), "committed"),
        (
            "end-dead",
            rst_at(Point::Request),
            ("502", "own_error", "engine_unreachable"),
            "budget_spent",
        ),
    ] {
        engine.play(reply);
        edge.ask(&req_n().header("X-Request-Id", id)).await;
        let line = edge.access_line(id).await;
        let fields = keys_and_values(&line);
        let found = (fields["status"], fields["outcome"], fields["reason"]);
        assert_eq!(found, expected, "{line}");
        assert_eq!(fields["stop"], stop, "{line}");
    }
    let unknown = Request::new("GET", "/no%20where?key=hidden").header("X-Request-Id", "end-none");
    edge.ask(&unknown).await;
    let line = edge.access_line("end-none").await;
    let fields = keys_and_values(&line);
    assert_eq!((fields["path"], fields["attempts"]), ("/no%20where", "-"));
    assert_eq!(
        (fields["outcome"], fields["reason"]),
        ("own_error", "not_found")
    );
    assert!(!line.contains("hidden"), "{line}");
    assert!(!line.contains(" stop="), "no policy was asked: {line}");
}

#[tokio::test(start_paused = true)]
async fn the_access_log_tells_a_slow_client_from_a_slow_router() {
    let engine = ScriptedEngine::start([status(503), ok("ok").delay(ms(40))]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = req_n().header("X-Request-Id", "slow-client");
    let body = request.body_bytes();
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send(&body[..5]).await;
    tokio::time::sleep(secs(3)).await;
    client.send(&body[5..]).await;
    assert_eq!(client.read_response().await.status, 200);
    let line = edge.access_line("slow-client").await;
    let fields = keys_and_values(&line);
    for (key, value) in [
        ("upload_ms", "3000.0"),
        ("backoff_ms", "200.0"),
        ("total_ms", "3240.0"),
    ] {
        assert_eq!(fields[key], value, "{key} in {line}");
    }
    // Broken off.
    let request = req_n().header("X-Request-Id", "gone-client");
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send(&body[..5]).await;
    tokio::time::sleep(secs(2)).await;
    client.close();
    edge.wait_for_requests("client_gone", 1).await;
    let line = edge.access_line("gone-client").await;
    assert_eq!(keys_and_values(&line)["upload_ms"], "2000.0", "{line}");
    // No body is asked for, of whatever length.
    let request = post("/no/where")
        .body("x")
        .header("X-Request-Id", "no-upload");
    assert_eq!(edge.ask(&request).await.status, 404);
    let line = edge.access_line("no-upload").await;
    assert_eq!(keys_and_values(&line)["upload_ms"], "-", "{line}");
}

#[tokio::test(start_paused = true)]
async fn neither_keys_nor_prompts_are_logged() {
    let engine =
        ScriptedEngine::start([rst_at(Point::Request), status(503), ok("s3cret-answer")]).await;
    let settings = "api_keys: [s3cret-client]\nengine_api_key: s3cret-engine\n";
    let edge = edge(&format!("{RETRIES}{settings}"))
        .engines([&engine])
        .start()
        .await;
    let prompt = r#"{"model":"m","messages":[{"role":"user","content":"s3cret-prompt"}]}"#;
    for (key, body) in [
        ("s3cret-client", prompt),
        (
            "s3cret-client",
            "{\"model\":\"m\",\"prompt\":\"s3cret-prompt\"",
        ),
        ("s3cret-wrong", prompt),
    ] {
        let request = post("/v1/chat/completions?key=s3cret-query")
            .set("Authorization", &format!("Bearer {key}"))
            .header("X-Api-Key", "s3cret-header")
            .body(body);
        edge.ask(&request).await;
    }
    let last = Request::new("GET", "/health").header("X-Request-Id", "secrets-end");
    edge.ask(&last).await;
    edge.access_line("secrets-end").await;
    let told = lines_with("s3cret");
    assert!(told.is_empty(), "{told:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_refused_for_its_head_is_counted_and_logged_as_well() {
    let engine = ScriptedEngine::start(ok("")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client
        .send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\n")
        .await;
    assert_eq!(client.read_response().await.status, 400);
    let refused = [
        ("outcome", "own_error"),
        ("status", "400"),
        ("route", "other"),
    ];
    assert_eq!(edge.metric("vllm_pingora_requests_total", &refused), 1.0);
    let lines = lines_with("status=400 outcome=own_error reason=invalid_request attempts=-");
    assert!(
        lines.iter().any(|line| line.contains(" method=- ")),
        "{lines:?}"
    );
    assert_eq!(engine.begun(), 0);
}
