//! The sum of the request bodies that are kept, and its bound: C12, C39.

use std::time::Duration;

use crate::h2::{H2C, H2Client};
use crate::support;
use crate::support::*;

/// The bound, and so the largest body, too.
const BOUND: usize = 100_000;

const CHAT: &str = "/v1/chat/completions";

async fn bounded(bound: usize, replies: Reply) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(replies).await;
    let edge = bounds(bound).engines([&engine]).start().await;
    (engine, edge)
}

fn bounds(bound: usize) -> EdgeBuilder {
    edge(&format!(
        "{H2C}max_request_body_bytes: {BOUND}\nmax_buffered_body_bytes: {bound}\n"
    ))
}

fn prompt(size: usize) -> Request {
    let (start, end) = (r#"{"model":"m","prompt":""#, r#""}"#);
    let filler = "x".repeat(size - start.len() - end.len());
    post(CHAT).body(format!("{start}{filler}{end}"))
}

fn buffered(edge: &TestEdge) -> usize {
    edge.metric("vllm_pingora_buffered_body_bytes", &[]) as usize
}

async fn wait_for_buffered(edge: &TestEdge, bytes: usize) {
    let complaint = || format!("{} bytes are kept, not {bytes}", buffered(edge));
    let kept = async {
        while buffered(edge) != bytes {
            tokio::time::sleep(ms(2)).await;
        }
    };
    within(PATIENCE, complaint, kept).await;
}

/// A client that has sent so many bytes of a longer body, and sends no more.
async fn stalled(edge: &TestEdge, bytes: usize) -> Client {
    let before = buffered(edge);
    let request = prompt(bytes + 10);
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send(&request.framed_body()[..bytes]).await;
    wait_for_buffered(edge, before + bytes).await;
    client
}

#[tokio::test]
async fn a_client_that_asks_for_leave_is_told_when_there_is_no_room() {
    let (engine, edge) = bounded(BOUND, ok("good")).await;
    let stalled = stalled(&edge, 90_000).await;
    let ask = async |size| {
        let request = prompt(size).header("Expect", "100-continue");
        let mut client = Client::connect(edge.addr()).await;
        client.send(request.head_bytes()).await;
        (client, request)
    };
    let (mut client, _) = ask(10_001).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.informational.len()), (503, 0));
    assert_eq!(response.json()["error"]["code"], "overloaded");
    assert_eq!(response.headers.get("retry-after"), Some("1"));
    assert_eq!(response.headers.get("connection"), Some("close"));
    client.expect_eof().await;
    // What fits is let in, and to ask took no room.
    let (mut client, request) = ask(10_000).await;
    client.send(request.framed_body()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.informational.len()), (200, 1));
    assert_eq!(engine.seen(), 1);
    stalled.close();
    wait_for_buffered(&edge, 0).await;
}

#[tokio::test]
async fn an_upload_beyond_the_bound_is_told_so_and_the_next_one_passes_when_there_is_room() {
    let (engine, edge) = bounded(BOUND, ok("good")).await;
    for request in [prompt(50_000), prompt(50_000).chunked([333, 4097])] {
        let stalled = stalled(&edge, 90_000).await;
        let mut client = Client::connect(edge.addr()).await;
        // The client writes all it has before it reads.
        let response = client.ask(&request).await;
        assert_eq!(response.status, 503);
        assert_eq!(response.json()["error"]["code"], "overloaded");
        assert_eq!(response.headers.get("retry-after"), Some("1"));
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
        // Nothing of it is kept, and what fits is served.
        assert_eq!(buffered(&edge), 90_000);
        assert_eq!(edge.ask(&prompt(1000)).await.text(), "good");
        stalled.close();
        wait_for_buffered(&edge, 0).await;
        assert_eq!(edge.ask(&request).await.text(), "good");
        assert_eq!(buffered(&edge), 0);
    }
    assert_eq!(engine.seen(), 4);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("own_error"), 2.0);
}

#[tokio::test]
async fn over_h2_only_the_stream_beyond_the_bound_is_told_so() {
    let (_engine, edge) = bounded(BOUND, ok("good")).await;
    let mut client = H2Client::connect(&edge).await;
    let request = prompt(50_000);
    let body = request.body_bytes();
    for declared in [true, false] {
        let stalled = stalled(&edge, 90_000).await;
        let answer = client.send(CHAT, body, declared, false).await;
        let answer = answer.answer().await;
        assert_eq!(answer.status, 503);
        assert!(answer.text().contains("\"overloaded\""));
        assert_eq!(answer.headers["retry-after"], "1");
        assert_eq!(client.chat().await.answer().await.status, 200);
        stalled.close();
        wait_for_buffered(&edge, 0).await;
        let answer = client.send(CHAT, body, declared, false).await;
        assert_eq!(answer.answer().await.status, 200);
        assert_eq!(buffered(&edge), 0);
    }
}

#[tokio::test]
async fn a_declared_length_takes_no_room() {
    let (_engine, edge) = bounded(BOUND, ok("good")).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        let mut client = Client::connect(edge.addr()).await;
        client.send(prompt(BOUND).head_bytes()).await;
        client.send("{").await;
        waiting.push(client);
    }
    wait_for_buffered(&edge, waiting.len()).await;
    assert_eq!(edge.ask(&prompt(BOUND - 5)).await.text(), "good");
}

#[tokio::test]
async fn the_bound_follows_a_reload() {
    let (engine, edge) = bounded(BOUND, ok("good")).await;
    let _stalled = stalled(&edge, 90_000).await;
    for (bound, status) in [(BOUND, 503), (2 * BOUND, 200), (BOUND, 503), (0, 200)] {
        assert!(edge.reload(&bounds(bound).engines([&engine])));
        let told = edge.metric("vllm_pingora_max_buffered_body_bytes", &[]) as usize;
        assert_eq!(told, bound);
        assert_eq!(edge.ask(&prompt(50_000)).await.status, status, "{bound}");
    }
}

#[tokio::test]
async fn a_body_is_counted_while_an_attempt_may_need_it_and_no_longer() {
    let begun = chunks([(Duration::ZERO, event(0)), (secs(3600), event(1))]);
    let begun = begun.header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start([status(503), hang(), begun]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = prompt(20_000);
    let mut waiting = Client::connect(edge.addr()).await;
    waiting.send_request(&request).await;
    engine.wait_for_deliveries(2).await;
    assert_eq!(buffered(&edge), 20_000);

    let mut streaming = Client::connect(edge.addr()).await;
    streaming.send_request(&request).await;
    let mut response = streaming.read_head().await;
    streaming.read_events(&mut response, 1).await;
    assert_eq!(buffered(&edge), 20_000, "only the one that waits");
    waiting.close();
    wait_for_buffered(&edge, 0).await;
    assert!(!response.complete);
}

#[tokio::test]
async fn nothing_is_counted_after_a_request_however_it_has_ended() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let limits = format!("{H2C}max_request_body_bytes: {BOUND}\nbody_timeout_ms: 300\n");
    let edge = support::edge(&limits).engines([&engine]).start().await;
    let large = prompt(20_000);
    let chunked = || prompt(20_000).chunked([4097]);

    // Answered by the engine, on a connection that stays.
    let mut client = Client::connect(edge.addr()).await;
    for request in [&large, &chunked()] {
        assert_eq!(client.ask(request).await.status, 200);
        assert_eq!(buffered(&edge), 0);
    }
    let mut h2 = H2Client::connect(&edge).await;
    let asked = h2.send(CHAT, large.body_bytes(), false, true).await;
    assert_eq!(asked.answer().await.status, 200);
    assert_eq!(buffered(&edge), 0);

    // Answered here: no such model, too large, malformed, too slow.
    let unknown = post(CHAT).body(large.body_bytes().to_ascii_uppercase());
    let malformed = post(CHAT).header("Transfer-Encoding", "chunked");
    let malformed = [malformed.head_bytes(), b"4\r\n{\"mo\r\nzz\r\n".to_vec()].concat();
    let slow = [large.head_bytes(), large.framed_body()[..9000].to_vec()].concat();
    for (sent, status) in [
        (unknown.to_bytes(), 400),
        (prompt(BOUND + 1).chunked([4097]).to_bytes(), 413),
        (malformed, 400),
        (slow, 408),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        client.send(sent).await;
        assert_eq!(client.read_response().await.status, status);
        assert_eq!(buffered(&edge), 0, "{status}");
    }

    // Cut by the engine, before and in its answer.
    for (cut, status) in [
        (rst_at(Point::Request), 502),
        (ok("good").rst_at(Point::BodyBytes(2)), 200),
    ] {
        engine.play(cut);
        let response = edge.ask(&large).await;
        assert_eq!(
            (response.status, response.complete),
            (status, status != 200)
        );
        assert_eq!(buffered(&edge), 0, "{status}");
    }

    // The client leaves, in its upload and in its wait.
    engine.play(hang());
    stalled(&edge, 9000).await.close();
    wait_for_buffered(&edge, 0).await;
    let mut reset = h2.begin(CHAT, None, false).await;
    reset.body.send_data("{\"mod".into(), false).unwrap();
    wait_for_buffered(&edge, 5).await;
    reset.body.send_reset(::h2::Reason::CANCEL);
    wait_for_buffered(&edge, 0).await;
    let mut waiting = Client::connect(edge.addr()).await;
    waiting.send_request(&large).await;
    wait_for_buffered(&edge, 20_000).await;
    waiting.reset();
    wait_for_buffered(&edge, 0).await;
    edge.wait_until_idle().await;
}
