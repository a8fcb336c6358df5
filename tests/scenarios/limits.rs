//! Slow and oversized messages: C39.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::*;

async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge(settings).engines([&engine]).start().await;
    (engine, edge)
}

/// Sends one byte of `bytes` after each `gap` until the router ends the connection; says when,
/// and what it answered.
async fn drip(edge: &TestEdge, bytes: &[u8], gap: Duration) -> (Duration, Option<Response>) {
    let mut client = Client::connect(edge.addr()).await;
    let begun = Instant::now();
    for byte in bytes {
        if client.try_send([*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(gap).await;
        if client.has_something_to_read() {
            break;
        }
    }
    let ended = begun.elapsed();
    (ended, client.try_read_response().await.ok())
}

// Slow clients

#[tokio::test(start_paused = true)]
async fn c39_a_head_that_comes_byte_by_byte_has_one_deadline_for_all_of_it() {
    let (engine, edge) = served_with("header_timeout_ms: 3000\n").await;
    for start in ["", "POST /v1/chat/completions HTTP/1.1\r\n", "\r\n\r\n"] {
        let endless = format!("{start}{}", "X-Slow: header\r\n".repeat(100));
        let bytes = &endless.as_bytes()[start.len().saturating_sub(8)..];
        let (ended, response) = drip(&edge, bytes, secs(1)).await;
        assert!((secs(3)..=secs(5)).contains(&ended), "{ended:?}");
        if let Some(response) = response {
            assert_eq!(response.status, 408);
            assert_eq!(response.json()["error"]["code"], "request_timeout");
            assert_eq!(response.headers.get("connection"), Some("close"));
        }
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn c39_the_deadline_of_a_head_holds_for_later_requests_too() {
    let (engine, edge) = served_with("header_timeout_ms: 3000\n").await;
    let mut client = Client::connect(edge.addr()).await;
    assert_eq!(client.ask(&req_n()).await.status, 200);
    client.send("POST /v1/").await;
    let response = client.read_response().await;
    assert_eq!(response.status, 408);
    client.expect_eof().await;
    assert_eq!(engine.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn c39_a_head_that_takes_its_time_and_makes_it_is_served() {
    let (_engine, edge) = served_with("header_timeout_ms: 30000\n").await;
    let request = req_n();
    let mut client = Client::connect(edge.addr()).await;
    client.send_slowly(request.head_bytes(), 40, secs(2)).await;
    client.send(request.framed_body()).await;
    assert_eq!(client.read_response().await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn c39_an_idle_connection_is_closed_without_a_word() {
    let (engine, edge) = served_with("client_keepalive_ms: 7000\n").await;
    let mut silent = Client::connect(edge.addr()).await;
    let begun = Instant::now();
    silent.expect_eof().await;
    assert!(
        (secs(7)..secs(9)).contains(&begun.elapsed()),
        "{:?}",
        begun.elapsed()
    );
    let mut client = Client::connect(edge.addr()).await;
    assert_eq!(client.ask(&req_n()).await.status, 200);
    client.expect_eof().await;
    assert_eq!(engine.begun(), 1);
}

#[tokio::test(start_paused = true)]
async fn c39_slow_connections_do_not_hold_up_others() {
    let (_engine, edge) = served_with("header_timeout_ms: 3000\n").await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut client = Client::connect(edge.addr()).await;
        client.send("POST /v1/chat").await;
        slow.push(client);
    }
    for _ in 0..20 {
        let begun = std::time::Instant::now();
        assert_eq!(edge.ask(&req_n()).await.status, 200);
        assert!(begun.elapsed() < secs(2), "{:?}", begun.elapsed());
    }
    for mut client in slow {
        assert_eq!(client.read_response().await.status, 408);
        client.expect_eof().await;
    }
}

// Pingora times the reads of a body, on the real clock.
#[tokio::test]
async fn c39_a_body_that_stops_is_given_up() {
    let (engine, edge) = served_with("body_timeout_ms: 150\n").await;
    for request in [req_n(), req_n().chunked([9])] {
        let mut client = Client::connect(edge.addr()).await;
        client.send(request.head_bytes()).await;
        client.send(&request.framed_body()[..12]).await;
        let begun = Instant::now();
        let response = client.read_response().await;
        assert!(begun.elapsed() >= ms(140), "{:?}", begun.elapsed());
        assert_eq!(response.status, 408);
        assert_eq!(response.json()["error"]["code"], "request_timeout");
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
    }
    assert_eq!(engine.begun(), 0);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("own_error"), 2.0);
}

#[tokio::test]
async fn c39_a_body_that_goes_on_is_waited_for() {
    let (engine, edge) = served_with("body_timeout_ms: 3000\n").await;
    let request = req_n();
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send_slowly(request.framed_body(), 1, ms(2)).await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(engine.deliveries()[0].body, request.body_bytes());
}

// Oversized heads

fn sized_fields(count: usize, size: usize) -> Vec<u8> {
    let value = "v".repeat(size);
    let fields: Vec<String> = (0..count).map(|i| format!("X-F{i}: {value}\r\n")).collect();
    let fields = fields.concat();
    let body = r#"{"model":"m"}"#;
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: e\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

async fn status_of(edge: &TestEdge, bytes: &[u8]) -> u16 {
    let mut client = Client::connect(edge.addr()).await;
    // What is too large may be refused while it is still being sent.
    let _ = client.try_send(bytes).await;
    let response = client.read_response().await;
    if response.status >= 400 {
        assert_eq!(response.headers.get("connection"), Some("close"));
        assert!(response.json()["error"]["code"].is_string());
    }
    response.status
}

#[tokio::test(start_paused = true)]
async fn c39_large_heads_pass_up_to_the_limits_and_no_further() {
    let (engine, edge) = served_with("").await;
    for (count, size, status) in [
        (1, 8 * 1024, 200),
        (16, 512, 200),
        (100, 80, 200),
        (1, 60 * 1024, 200),
        (1, 64 * 1024, 431),
        (64, 1024, 431),
        (1, 256 * 1024, 431),
        (1024, 256, 431),
        (1, 2 * 1024 * 1024, 431),
        (500, 4, 431),
        (20_000, 100, 431),
    ] {
        let seen = engine.seen();
        let answered = status_of(&edge, &sized_fields(count, size)).await;
        assert_eq!(answered, status, "{count} fields of {size} bytes");
        assert_eq!(engine.seen() - seen, usize::from(status == 200));
    }
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c39_a_long_bearer_token_reaches_the_engine_whole() {
    let (engine, edge) = served_with("").await;
    let token = format!("Bearer {}", "t".repeat(8 * 1024));
    assert_eq!(
        edge.ask(&req_n().set("Authorization", &token)).await.status,
        200
    );
    let delivery = engine.deliveries().pop().unwrap();
    assert_eq!(delivery.headers.get("authorization"), Some(&*token));
}

#[tokio::test(start_paused = true)]
async fn c39_a_long_request_line_is_refused_with_its_own_status() {
    let (engine, edge) = served_with("").await;
    let body = req_n().body_bytes().to_vec();
    for (length, status) in [
        (4 * 1024, 200),
        (15 * 1024, 200),
        (17 * 1024, 414),
        (100 * 1024, 414),
    ] {
        let target = format!("/v1/chat/completions?{}", "q".repeat(length));
        let bytes = post(&target).body(&body).to_bytes();
        assert_eq!(status_of(&edge, &bytes).await, status, "{length}");
    }
    // Without an end, too.
    assert_eq!(status_of(&edge, &vec![b'a'; 100 * 1024]).await, 414);
    assert_eq!(engine.seen(), 2);
}

#[tokio::test(start_paused = true)]
async fn c39_a_head_without_an_end_is_refused_at_the_limit() {
    let (engine, edge) = served_with("").await;
    for line in [
        "X: y\r\n",
        "X-Long: 0123456789012345678901234567890123456789\r\n",
    ] {
        let mut bytes = b"GET /v1/models HTTP/1.1\r\nHost: e\r\n".to_vec();
        bytes.extend(line.repeat(300 * 1024 / line.len()).bytes());
        assert_eq!(status_of(&edge, &bytes).await, 431);
    }
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test]
async fn a_head_request_that_is_refused_gets_the_head_of_its_answer_only() {
    let (engine, edge) = served_with("").await;
    let long = format!(" /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(20_000));
    for rest in [
        " / HTTP/1.1\r\n\r\n",
        " / HTTP/1.1\r\nHost: a\r\nno field\r\n\r\n",
        &long,
    ] {
        let answer = async |method: &str| {
            let mut client = Client::connect(edge.addr()).await;
            client.send(format!("{method}{rest}")).await;
            let (_, bytes) = client.read_to_end().await;
            let answer = String::from_utf8(bytes).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            let same = |line: &&str| !line.starts_with("x-request-id");
            let head: Vec<_> = head.lines().filter(same).map(str::to_owned).collect();
            (head, body.to_owned())
        };
        let (head, body) = answer("GET").await;
        assert!(head.contains(&format!("content-length: {}", body.len())));
        assert_eq!(answer("HEAD").await, (head, String::new()));
    }
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_http_is_refused() {
    let (engine, edge) = served_with("").await;
    for bytes in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\r\n\r\n"[..],
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
        b"\0\0\0\0\r\n\r\n",
        b"*1\r\n$4\r\nPING\r\n\r\n",
        b"GET\r\n\r\n",
        b"{\"model\":\"m\"}\n\n",
    ] {
        assert_eq!(status_of(&edge, bytes).await, 400, "{bytes:?}");
    }
    assert_eq!(engine.accepted(), 0);
}

// Engines

/// Heads of a response that no engine sends.
fn bad_heads() -> Vec<Reply> {
    let one = format!(
        "HTTP/1.1 200 OK\r\nX-Big: {}\r\nContent-Length: 2\r\n\r\n{{}}",
        "x".repeat(300 * 1024)
    );
    let many = format!(
        "HTTP/1.1 200 OK\r\n{}Content-Length: 2\r\n\r\n{{}}",
        "X-Many: 1\r\n".repeat(30_000)
    );
    vec![
        raw(one.clone()),
        raw(many),
        raw(&one[..250 * 1024]).then_close(),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Unfinished").then_close(),
        raw("HTTP/1.1 200 OK\r\nNo colon\r\n\r\n{}").then_close(),
        raw("HTTP/1.1 20x OK\r\n\r\n").then_close(),
        raw("HTTP/1.1 999999 OK\r\n\r\n").then_close(),
        raw("HTTP/1.1 000 Zero\r\nContent-Length: 0\r\n\r\n").then_close(),
        raw("HTTP/3.7 200 OK\r\nContent-Length: 0\r\n\r\n").then_close(),
        raw("ICY 200 OK\r\n\r\n").then_close(),
        raw("\0\0\0\0\0\0\0\0").then_close(),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\0b\r\n\r\n{}").then_close(),
        raw("HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}").then_close(),
        raw("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}").then_close(),
        raw("\r\n\r\n").then_close(),
        raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").then_close(),
        raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n").then_close(),
        raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n")
            .then_close(),
    ]
}

#[tokio::test(start_paused = true)]
async fn c39_an_engine_with_a_bad_head_is_passed_over() {
    for (case, reply) in bad_heads().into_iter().enumerate() {
        let bad = ScriptedEngine::start(reply).await;
        let good = ScriptedEngine::start(ok("{\"good\":1}")).await;
        let edge = edge(RETRIES).engines([&bad, &good]).start().await;
        for _ in 0..2 {
            let response = edge.ask(&req_n()).await;
            assert_eq!(
                (response.status, response.text()),
                (200, "{\"good\":1}"),
                "case {case}"
            );
        }
        assert!(bad.seen() > 0);
        edge.wait_until_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c39_a_lone_engine_with_a_bad_head_is_a_bad_gateway() {
    // The last ones have a good head: with retries off it has gone out when the body fails.
    let heads = bad_heads();
    let complete = heads.len() - 3;
    for (case, reply) in heads.into_iter().enumerate() {
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge("").engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        if case < complete {
            assert_eq!(response.status, 502, "case {case}");
            assert_eq!(response.json()["error"]["code"], "engine_unreachable");
        } else {
            assert!(response.status == 502 || !response.complete, "case {case}");
        }
        assert_eq!(engine.seen(), 1);
        edge.wait_until_idle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn c39_an_engine_that_never_finishes_its_head_runs_into_the_first_byte_timeout() {
    let endless = raw_pieces((0..1000).map(|i| {
        (
            secs(1),
            format!(
                "{}X-{i}: y\r\n",
                if i == 0 { "HTTP/1.1 200 OK\r\n" } else { "" }
            ),
        )
    }));
    let slow = ScriptedEngine::start(endless).await;
    let good = ScriptedEngine::start(ok("{}")).await;
    let lone = edge("first_byte_timeout_ms: 5000\n")
        .engines([&slow])
        .start()
        .await;
    let response = lone.ask(&req_n()).await;
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["error"]["code"], "engine_timeout");
    assert!(
        (secs(5)..secs(8)).contains(&response.waited()),
        "{:?}",
        response.waited()
    );
    let settings = format!("{RETRIES}first_byte_timeout_ms: 5000\n");
    let edge = edge(&settings).engines([&slow, &good]).start().await;
    for _ in 0..2 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    edge.wait_until_idle().await;
}
