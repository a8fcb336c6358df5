//! How large request bodies may be, and how long they say they are: C12.

use crate::request_body::{ODD, assert_delivered, prompt};
use crate::support::*;

const LIMIT: usize = 100_000;

async fn limited() -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("good")).await;
    let yaml = format!("max_request_body_bytes: {LIMIT}");
    let edge = edge(&yaml).engines([&engine]).start().await;
    (engine, edge)
}

#[tokio::test(start_paused = true)]
async fn c12_bodies_up_to_the_limit_are_forwarded_intact() {
    for size in [LIMIT - 1, LIMIT] {
        for chunks in [None, Some(ODD)] {
            let (engine, edge) = limited().await;
            let body = prompt(size);
            let request = post("/v1/chat/completions").body(&body);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            assert_eq!(edge.ask(&request).await.text(), "good");
            assert_delivered(&engine, &body, 1, &format!("{size} {chunks:?}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c12_larger_ones_get_a_413_that_the_client_can_read() {
    for size in [LIMIT + 1, 10 * LIMIT] {
        for chunks in [None, Some(ODD)] {
            let (engine, edge) = limited().await;
            let id = format!("c12-{size}-{}", chunks.is_some());
            let request = post("/v1/chat/completions").body(prompt(size));
            let request = request.header("X-Request-Id", &id);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            let mut client = Client::connect(edge.addr()).await;
            // The client writes all it has before it reads.
            let response = client.ask(&request).await;
            assert_eq!(response.status, 413, "{id}");
            assert_eq!(response.json()["error"]["code"], "request_too_large");
            assert_eq!(response.headers.get("connection"), Some("close"), "{id}");
            client.expect_eof().await;
            assert_eq!((engine.begun(), engine.accepted()), (0, 0), "{id}");
            let line = edge.access_line(&id).await;
            assert!(line.contains("status=413 outcome=own_error"), "{line}");
            edge.wait_until_idle().await;
        }
    }
}

/// A length may be written twice, as long as it is one.
fn twice(length: usize, more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {length}, {length}\r\n{more}\r\n"
    )
}

#[tokio::test(start_paused = true)]
async fn c12_a_length_that_is_written_twice_is_judged_before_the_body_comes() {
    for length in [LIMIT + 1, 100_000_000_000] {
        for more in ["", "Expect: 100-continue\r\n"] {
            let (engine, edge) = limited().await;
            let mut client = Client::connect(edge.addr()).await;
            client.send(twice(length, more)).await;
            let response = client.read_response().await;
            assert_eq!(response.status, 413, "{length} {more}");
            assert_eq!(response.headers.get("connection"), Some("close"));
            client.expect_eof().await;
            assert_eq!((engine.begun(), engine.accepted()), (0, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn engines_get_a_length_once_and_where_the_client_wrote_it() {
    let (engine, edge) = limited().await;
    let body = prompt(60_000);
    let more = "X-Last: 1\r\n";
    for pieces in [1, 2] {
        let mut client = Client::connect(edge.addr()).await;
        let head = twice(body.len(), more);
        if pieces == 1 {
            client.send([head.as_bytes(), &body].concat()).await;
        } else {
            // So that it does not come whole with its head.
            client.send(head).await;
            client.send(body.get(..100).unwrap()).await;
            tokio::task::yield_now().await;
            client.send(body.get(100..).unwrap()).await;
        }
        let response = client.read_response().await;
        assert_eq!((response.status, response.text()), (200, "good"));
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.body, body);
        let length = body.len().to_string();
        assert_eq!(delivery.headers.all("content-length"), [length.as_str()]);
        // The connection goes on.
        assert_eq!(client.ask(&req_n()).await.text(), "good");
    }
}

#[tokio::test(start_paused = true)]
async fn c12_what_follows_a_length_that_is_too_small_is_nobodys_request() {
    let (engine, edge) = limited().await;
    let (body, surplus) = (prompt(60), "surplus that is not HTTP\r\n\r\n");
    let request = post("/v1/chat/completions")
        .header("Content-Length", "60")
        .body([&body, surplus.as_bytes()].concat());
    let mut client = Client::connect(edge.addr()).await;
    let response = client.ask(&request).await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_delivered(&engine, &body, 1, "lying");
    // At most it is answered for itself, and the connection is over.
    let after = client.read_response().await;
    assert_eq!(after.status, 400);
    client.expect_eof().await;
    assert_eq!(engine.begun(), 1);
    // The engine's connection is still in step.
    assert_eq!(edge.ask(&req_n()).await.text(), "good");
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_leave_to_send_its_body_gets_it() {
    const LEAVE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let engine = ScriptedEngine::start([status(503), ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").body(prompt(70_000));
    let request = request.header("Expect", "100-continue");
    client.send(request.head_bytes()).await;
    assert_eq!(client.read_exactly(LEAVE.len()).await, LEAVE);
    assert_eq!(engine.accepted(), 0);
    client.send(request.framed_body()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_eq!(response.informational, []);
    assert_delivered(&engine, request.body_bytes(), 2, "expect");
    assert!(engine.deliveries().iter().all(|d| !d.headers.has("expect")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_will_be_refused_is_not_asked_for() {
    let (engine, edge) = limited().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").body(prompt(LIMIT + 1));
    let request = request.header("Expect", "100-continue");
    client.send(request.head_bytes()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.informational.len()), (413, 0));
    assert_eq!(engine.accepted(), 0);
}
