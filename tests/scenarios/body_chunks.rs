//! What chunks carry beside the body never becomes a part of it: C27.

use crate::request_body::{ODD, assert_delivered, prompt};
use crate::support::*;

const CHAT: &str = r#"{"model":"m","messages":[]}"#;

#[tokio::test(start_paused = true)]
async fn c27_trailers_and_extensions_never_become_body() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let (start, end) = CHAT.split_at(10);
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    for wire in [
        format!("a;name=value\r\n{start}\r\n11;x=\"a;b\"\r\n{end}\r\n0;last\r\n\r\n"),
        format!("a\r\n{start}\r\n11\r\n{end}\r\n0\r\nX-Trailer: 1\r\nX-Other: 2\r\n\r\n"),
        format!("000A\r\n{start}\r\n0011\r\n{end}\r\n000\r\n\r\n"),
    ] {
        client.send(request.head_bytes()).await;
        client.send(wire).await;
        assert_eq!(client.read_response().await.text(), "good");
    }
    assert_delivered(&engine, CHAT.as_bytes(), 3, "extensions and trailers");
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn c27_a_terminator_that_comes_by_itself_ends_the_body_once() {
    let engine = ScriptedEngine::start([status(503), ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    for cuts in [0, 1, 2, 3, 4] {
        client.send(request.head_bytes()).await;
        client.send(format!("{:x}\r\n{CHAT}\r\n", CHAT.len())).await;
        tokio::time::sleep(ms(10)).await;
        let (first, second) = "0\r\n\r\n".split_at(cuts);
        client.send(first).await;
        tokio::time::sleep(ms(10)).await;
        client.send(second).await;
        assert_eq!(client.read_response().await.text(), "good");
    }
    assert_delivered(&engine, CHAT.as_bytes(), 6, "split terminator");
}

#[tokio::test(start_paused = true)]
async fn c27_two_hundred_mixed_requests_leave_every_connection_in_step() {
    let replies = vec![
        answer(|request| ok(request.case())),
        answer(|request| ok(request.case()).chunked()),
        status(503),
        answer(|request| ok(request.case())),
        sse(2, ms(5)).header("X-Stream", "1"),
        answer(|request| ok(request.case())).fin_at(Point::Headers),
    ];
    let engine = ScriptedEngine::start(script(replies).cycle()).await;
    let edge = edge(&retries(6)).engines([&engine]).start().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(edge.addr()).await);
    }
    let mut bodies = std::collections::HashMap::new();
    for i in 0..200 {
        let body = prompt(60 + (i * 7919) % 70_000);
        let request = post("/v1/chat/completions").body(&body);
        let request = match i % 3 {
            0 => request,
            1 => request.chunked(ODD),
            _ => request.chunked([body.len()]),
        };
        bodies.insert(request.case().to_owned(), body_hash(&body));
        let response = clients[i % 4].ask(&request).await;
        assert_eq!(response.status, 200, "request {i}");
        let own = response.text() == request.case();
        let streamed = response.headers.has("x-stream") && response.body == sse_body(2);
        assert!(own || streamed, "request {i}: {:?}", response.text());
    }
    for delivery in engine.deliveries() {
        assert_eq!(bodies[delivery.case()], delivery.body_hash);
    }
    engine.assert_clean();
}
