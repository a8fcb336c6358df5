//! What happens on a connection: idling, framing, leaving.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::client::{Client, Cut, engine, engine_with, eventually};

#[tokio::test]
async fn an_idle_connection_is_closed_when_the_keep_alive_time_is_over() {
    let keep_alive = Duration::from_millis(60);
    let engine = engine_with(&json!({}), |config| config.keep_alive = keep_alive).await;
    let mut client = Client::connect(&engine).await;
    assert_eq!(client.complete().await.status(), 200);
    let idle = Instant::now();
    assert_eq!(client.cut().await, Cut::Closed);
    assert!(idle.elapsed() > keep_alive / 2);
}

#[tokio::test]
async fn bodies_in_chunks_and_requests_in_pieces_or_in_a_row_are_read() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let chunked = "POST /v1/completions HTTP/1.1\r\ncontent-type: application/json\r\n\
        expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n\
        c;x=y\r\n{\"prompt\": \"\r\n4\r\nhi\"}\r\n0\r\nt: 1\r\n\r\n";
    for part in chunked.as_bytes().chunks(7) {
        client.send(part).await;
    }
    assert_eq!(client.head().await.status, 100);
    assert_eq!(client.answer().await.status(), 200);
    client
        .send(b"GET /health HTTP/1.1\r\n\r\nGET /version HTTP/1.1\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.body, "");
    assert_eq!(client.answer().await.body, r#"{"version":"0.32.0"}"#);
}

#[tokio::test]
async fn what_is_not_http_gets_a_400_and_a_close() {
    let engine = engine(&json!({})).await;
    for text in [
        "garbage\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ] {
        let mut client = Client::connect(&engine).await;
        client.send(text.as_bytes()).await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.body.as_str()),
            (400, "Invalid HTTP request received.")
        );
    }
}

#[tokio::test]
async fn close_is_honoured_and_head_has_no_body() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    client
        .send(b"HEAD /health HTTP/1.1\r\n\r\nGET /health HTTP/1.0\r\n\r\n")
        .await;
    let head = client.head().await;
    assert_eq!((head.status, head.header("allow")), (405, Some("GET")));
    let head = client.head().await;
    assert_eq!(
        (head.status, head.header("connection")),
        (200, Some("close"))
    );
    assert_eq!(client.cut().await, Cut::Closed);
}

#[tokio::test]
async fn a_client_that_leaves_is_out_of_the_gauges_at_once() {
    // An hour to the first token: only the client's leaving can end these.
    let engine = engine(&json!({"ttft_ms": 3_600_000, "max_num_seqs": 2})).await;
    let (mut closes, mut half_closes) = (
        Client::connect(&engine).await,
        Client::connect(&engine).await,
    );
    closes.start_stream().await;
    assert_eq!(
        closes.head().await.status,
        200,
        "the head comes before the first token"
    );
    half_closes
        .start_post("/v1/completions", r#"{"prompt":"hi"}"#, "")
        .await;
    eventually(|| engine.control().gauges() == (2, 0)).await;
    let mut waits = Client::connect(&engine).await;
    waits.start_stream().await;
    assert_eq!(
        waits.head().await.status,
        200,
        "a waiting stream has its head too"
    );
    assert_eq!(engine.control().gauges(), (2, 1));
    drop(waits);
    eventually(|| engine.control().gauges() == (2, 0)).await;
    drop(closes);
    eventually(|| engine.control().gauges() == (1, 0)).await;
    half_closes.stream.shutdown().await.unwrap();
    assert_eq!(half_closes.cut().await, Cut::Closed);
    eventually(|| engine.control().gauges() == (0, 0)).await;
    eventually(|| engine.control().counts().aborted == 3).await;
    let metrics = Client::connect(&engine).await.get("/metrics").await.body;
    let line = r#"finished_reason="abort"} 0"#;
    assert!(
        metrics.lines().any(|it| it.ends_with(line)),
        "clients that leave are not counted"
    );
}

#[tokio::test]
async fn a_client_that_does_not_read_and_leaves_is_noticed() {
    let engine = engine(&json!({"tokens": 1_000_000})).await;
    let mut client = Client::connect(&engine).await;
    client.start_stream().await;
    assert_eq!(client.head().await.status, 200);
    client.stream.shutdown().await.unwrap();
    eventually(|| engine.control().counts().aborted == 1).await;
    eventually(|| engine.control().gauges() == (0, 0)).await;
}

#[tokio::test]
async fn a_dropped_engine_closes_its_connections() {
    let engine = engine(&json!({"ttft_ms": 3_600_000})).await;
    let mut client = Client::connect(&engine).await;
    client.start_stream().await;
    client.head().await;
    drop(engine);
    client.cut().await;
}
