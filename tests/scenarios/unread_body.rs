//! Answers of our own to requests whose body has not been read: C38.

use crate::framing::{BODY, hidden, served, with_fields};
use crate::support::*;

/// Requests that are answered here: the head without its framing, and the status.
fn answered_here() -> Vec<(Request, u16)> {
    let keyed = |request: Request| request.set("Authorization", "Bearer right");
    vec![
        (post("/v1/chat/completions"), 401),
        (keyed(post("/nowhere")), 404),
        (keyed(post("/v1/models")), 405),
        (keyed(Request::new("OPTIONS", "/v1/chat/completions")), 405),
        (keyed(Request::new("GET", "/v1/chat/completions")), 405),
        (Request::new("GET", "/health"), 200),
        (keyed(Request::new("DELETE", "/health")), 405),
        (keyed(Request::new("GET", "/v1/models")), 200),
    ]
}

const KEYED: &str = "api_keys: [right]\nmax_request_body_bytes: 1000\n";

async fn keyed() -> (ScriptedEngine, TestEdge) {
    let models = ok(r#"{"data":[{"id":"m"}]}"#);
    let engine = ScriptedEngine::start(script(ok("{}")).on("/v1/models", models)).await;
    let edge = edge(KEYED).engines([&engine]).start().await;
    (engine, edge)
}

/// What is left of a connection after the answer: the next request is answered, or it is closed.
async fn next_is_answered_or_closed(client: &mut Client, engine: &ScriptedEngine, what: &str) {
    let next = req_n()
        .set("X-Case", "next")
        .set("Authorization", "Bearer right");
    let sent = client.try_send(next.to_bytes()).await.is_ok();
    match client.try_read_response().await {
        Ok(response) => {
            assert!(sent);
            assert_eq!((response.status, response.text()), (200, "{}"), "{what}");
            let delivery = engine.deliveries().pop().unwrap();
            assert_eq!(delivery.case(), "next", "{what}");
        }
        Err(none) => assert_eq!(none.partial, b"", "{what}"),
    }
    for delivery in engine.deliveries() {
        assert_eq!(delivery.case(), "next", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_sent_with_its_head_is_no_request() {
    let (engine, edge) = keyed().await;
    let hidden = hidden();
    for (request, status) in answered_here() {
        for chunked in [false, true] {
            let mut request = request.clone().body(&hidden);
            if chunked {
                request = request.chunked([hidden.len()]);
            }
            let what = format!("{status} chunked={chunked}");
            let mut client = Client::connect(edge.addr()).await;
            client.send_request(&request).await;
            assert_eq!(client.read_response().await.status, status, "{what}");
            next_is_answered_or_closed(&mut client, &engine, &what).await;
        }
    }
    engine.assert_clean();
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_sent_after_the_answer_is_no_request() {
    let (engine, edge) = keyed().await;
    let hidden = hidden();
    for pause in [ms(300), secs(10), secs(70)] {
        for (request, status) in answered_here() {
            for chunked in [false, true] {
                let mut request = request.clone().body(&hidden);
                if chunked {
                    request = request.chunked([hidden.len()]);
                }
                let what = format!("{status} after {pause:?} chunked={chunked}");
                let mut client = Client::connect(edge.addr()).await;
                client.send(request.head_bytes()).await;
                let answer = client.read_response().await;
                assert_eq!(answer.status, status, "{what}");
                tokio::time::sleep(pause).await;
                if client.try_send(request.framed_body()).await.is_ok() {
                    next_is_answered_or_closed(&mut client, &engine, &what).await;
                }
            }
        }
    }
    assert!(engine.deliveries().iter().all(|d| d.case() == "next"));
    engine.assert_clean();
    edge.wait_until_idle().await;
}

#[tokio::test]
async fn c38_a_large_body_sent_slowly_is_no_request() {
    let (engine, edge) = keyed().await;
    let mut body = hidden();
    body.resize(512 * 1024, b' ');
    for (request, status) in [
        (post("/v1/chat/completions"), 401),
        (
            post("/v1/chat/completions").set("Authorization", "Bearer right"),
            413,
        ),
    ] {
        let request = request.body(&body);
        let mut client = Client::connect(edge.addr()).await;
        client.send(request.head_bytes()).await;
        assert_eq!(client.read_response().await.status, status);
        for piece in body.chunks(32 * 1024) {
            if client.try_send(piece).await.is_err() {
                break;
            }
            tokio::time::sleep(ms(1)).await;
        }
        let (_, surplus) = client.read_to_end().await;
        assert!(surplus.is_empty(), "{}", String::from_utf8_lossy(&surplus));
    }
    assert_eq!(engine.begun(), 0);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_of_a_body_of_50_mib_no_more_is_read_than_half_a_minute_brings() {
    const SIZE: usize = 50 << 20;
    let (engine, edge) = keyed().await;
    // Small enough for the sockets to take it at once, whoever reads.
    let mut piece = hidden();
    piece.resize(32 * 1024, b'\n');
    for (key, status) in [("wrong", 401), ("right", 413)] {
        let head = post("/v1/chat/completions")
            .set("Authorization", &format!("Bearer {key}"))
            .header("Content-Length", SIZE.to_string());
        let mut client = Client::connect(edge.addr()).await;
        client.send(head.head_bytes()).await;
        assert_eq!(client.read_response().await.status, status);
        let mut sent = 0;
        // All of it would take 40 s.
        while sent < SIZE && client.try_send(&piece).await.is_ok() {
            sent += piece.len();
            tokio::time::sleep(ms(25)).await;
        }
        assert!(sent < SIZE, "all of it was read");
        let (_, surplus) = client.read_to_end().await;
        assert!(surplus.is_empty(), "{}", String::from_utf8_lossy(&surplus));
    }
    assert_eq!(engine.accepted(), 0);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_above_the_limit_is_no_request() {
    let (engine, edge) = keyed().await;
    let mut body = hidden();
    body.resize(2000, b'\n');
    body.extend(hidden());
    for chunked in [false, true] {
        let mut request = post("/v1/chat/completions")
            .set("Authorization", "Bearer right")
            .body(&body);
        if chunked {
            request = request.chunked([2000]);
        }
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&request).await;
        assert_eq!(client.read_response().await.status, 413);
        next_is_answered_or_closed(&mut client, &engine, "413").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c38_an_unroutable_body_is_no_request() {
    let (engine, edge) = served().await;
    for (body, status) in [
        (br#"{"model":"nobody"}"#.to_vec(), 404),
        (b"not json".to_vec(), 400),
        (hidden(), 400),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&post("/v1/chat/completions").body(body)).await;
        assert_eq!(response.status, status);
        next_is_answered_or_closed(&mut client, &engine, "unroutable").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_left_unread_by_an_engine_is_no_request() {
    // The engine answers before it has read the body, and closes.
    let early = status(400).body("{}").answer_before_body().then_close();
    let engine = ScriptedEngine::start([early, ok("{}")]).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let mut body = BODY.as_bytes().to_vec();
    body.resize(4096, b' ');
    body.extend(hidden());
    // Not JSON as a whole, so it does not even go to an engine.
    let response = client.ask(&post("/v1/chat/completions").body(&body)).await;
    assert_eq!(response.status, 400);
    body.truncate(4096);
    let early = client
        .ask(
            &post("/v1/chat/completions")
                .set("X-Case", "next")
                .body(&body),
        )
        .await;
    assert_eq!((early.status, early.text()), (400, "{}"));
    next_is_answered_or_closed(&mut client, &engine, "early answer").await;
}

#[tokio::test]
async fn a_client_that_is_still_sending_reads_why_it_was_refused() {
    let (engine, edge) = keyed().await;
    let body = vec![b'x'; 3 * 1024 * 1024];
    for (key, status) in [("wrong", 401), ("right", 413)] {
        let request = post("/v1/chat/completions")
            .set("Authorization", &format!("Bearer {key}"))
            .body(&body);
        let mut client = Client::connect(edge.addr()).await;
        // All of it is sent before anything is read, as simple clients do.
        client.send_request(&request).await;
        let response = client.read_response().await;
        assert_eq!(response.status, status);
        assert_eq!(response.headers.get("connection"), Some("close"));
        let (close, surplus) = client.read_to_end().await;
        assert_eq!((close, surplus), (Close::Fin, vec![]));
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closing_connection_is_not_read_for_ever() {
    let (_engine, edge) = keyed().await;
    let mut client = Client::connect(edge.addr()).await;
    let head = with_fields("Content-Length: 4, 5\r\n", b"");
    client.send(head).await;
    assert_eq!(client.read_response().await.status, 400);
    client.expect_eof().await;
    let begun = tokio::time::Instant::now();
    while client.try_send(b"x").await.is_ok() {
        tokio::time::sleep(secs(1)).await;
        assert!(begun.elapsed() < secs(120), "it reads on and on");
    }
}
