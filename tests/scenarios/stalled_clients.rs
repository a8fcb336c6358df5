//! Clients that stop reading: their engine is free again after a while; slow ones are not cut.

use ::h2::Reason;
use tokio::time::Instant;

use crate::h2::{H2C, H2Client, next};
use crate::support::*;

const LIMIT: &str = "client_send_timeout_ms: 10000\n";
/// Less than what a sending system calls room enough to go on in half of the limit.
const SIP: usize = 256 << 10;
const FLOOD: usize = 40 << 20;

async fn flooded(settings: &str, total: usize) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start([flood(total), ok("next")]).await;
    let edge = edge(&format!("{H2C}{RETRIES}{settings}"));
    let edge = edge.engines([&engine]).start().await;
    (engine, edge)
}

/// The engine was let go at the limit, and the request counts as one whose client left.
async fn is_given_up(engine: &ScriptedEngine, edge: &TestEdge, id: &str, stopped: Instant) {
    let (_, at) = engine.wait_for_peer_close(0).await;
    // What is on its way when the client stops still counts as taken, and the system may tell so
    // late on a clock that runs ahead of it.
    let took = at - stopped;
    assert!(took >= secs(10) && took <= secs(20), "{took:?}");
    edge.wait_for_requests("client_gone", 1).await;
    edge.wait_until_idle().await;
    let line = edge.access_line(id).await;
    let outcome = "outcome=client_gone reason=client_gone";
    assert!(line.contains(outcome), "{line}");
    assert_eq!(edge.attempts_ended("client_gone"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn c24_a_client_that_takes_nothing_for_too_long_is_gone() {
    let (engine, edge) = flooded(LIMIT, FLOOD).await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client
        .send_request(&req_s().header("X-Request-Id", "stalled"))
        .await;
    let mut response = client.read_head().await;
    is_given_up(&engine, &edge, "stalled", Instant::now()).await;
    // What had left for the client is still there; then its connection ends, and looks cut.
    client.finish(&mut response).await;
    assert!(!response.complete);
    assert!(response.body_len() < FLOOD as u64);
    assert_eq!(edge.open(), 0);
    assert_eq!(edge.ask(&req_n()).await.text(), "next");
}

#[tokio::test(start_paused = true)]
async fn c24_a_stream_whose_client_takes_nothing_for_too_long_is_reset() {
    let (engine, edge) = flooded(LIMIT, FLOOD).await;
    let mut client = H2Client::connect(&edge).await;
    let (_, mut stream, _body) = client.chat_as("stalled").await.head().await;
    is_given_up(&engine, &edge, "stalled", Instant::now()).await;
    // The connection and its other streams go on. What was not taken keeps its window.
    let cut = loop {
        match next(&mut stream).await {
            Some(Ok(_)) => {}
            Some(Err(cut)) => break cut,
            None => panic!("it looks complete"),
        }
    };
    assert_eq!(cut.reason(), Some(Reason::INTERNAL_ERROR));
    assert_eq!(client.chat().await.answer().await.text(), "next");
}

#[tokio::test(start_paused = true)]
async fn c24_a_client_that_sips_is_served_for_as_long_as_it_takes() {
    let (_engine, edge) = flooded(LIMIT, FLOOD).await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    let begun = Instant::now();
    while begun.elapsed() < secs(300) {
        tokio::time::sleep(secs(5)).await;
        let before = response.body_len();
        while response.body_len() < before + SIP as u64 {
            assert!(client.read_more(&mut response).await, "cut");
        }
    }
    client.finish(&mut response).await;
    assert!(response.complete, "cut after {} bytes", response.body_len());
    assert_eq!(response.body_len(), FLOOD as u64);
    edge.wait_for_requests("answered", 1).await;
}

#[tokio::test(start_paused = true)]
async fn c24_a_stream_whose_client_sips_is_served_for_as_long_as_it_takes() {
    // A single write of the engine's takes longer than the limit.
    const TOTAL: usize = 1 << 20;
    let (_engine, edge) = flooded(LIMIT, TOTAL).await;
    let mut client = H2Client::connect(&edge).await;
    let (_, mut stream, _body) = client.chat().await.head().await;
    let begun = Instant::now();
    let (mut received, mut untaken) = (0, 0);
    while let Some(piece) = stream.data().await {
        let piece = piece.unwrap().len();
        (received, untaken) = (received + piece, untaken + piece);
        // As much as makes the client's side tell of it.
        if untaken > 32 << 10 {
            tokio::time::sleep(secs(8)).await;
            let taken = std::mem::take(&mut untaken);
            stream.flow_control().release_capacity(taken).unwrap();
        }
    }
    assert_eq!(received, TOTAL);
    assert!(begun.elapsed() > secs(100), "{:?}", begun.elapsed());
    edge.wait_for_requests("answered", 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_silence_of_an_engine_is_no_standstill_of_its_client() {
    let slow = sse(3, secs(60)).delay(secs(60));
    let engine = ScriptedEngine::start([slow.clone(), slow]).await;
    let edge = edge(&format!("{H2C}{LIMIT}")).engines([&engine]);
    let edge = edge.start().await;
    assert_eq!(edge.ask(&req_s()).await.events().len(), 4);
    let mut client = H2Client::connect(&edge).await;
    let answer = client.chat().await.answer().await;
    assert_eq!(answer.body, sse_body(3));
}
