//! Uploads that take longer than their bytes are worth: C39.

use bytes::Bytes;
use tokio::time::Instant;

use crate::h2::{H2C, H2Client};
use crate::support::*;

const SECOND: std::time::Duration = secs(1);

/// How a body is framed.
#[derive(Clone, Copy, Debug)]
enum Over {
    Length,
    Chunks,
    H2,
}

const ALL: [Over; 3] = [Over::Length, Over::Chunks, Over::H2];

/// Silence is far from its limit: a piece comes each second.
const RATE: usize = 100;
const LIMITS: &str = "body_timeout_ms: 10000\nbody_min_bytes_per_second: 100\n";

async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(&format!("{H2C}{settings}"));
    let edge = edge.engines([&engine]).start().await;
    (engine, edge)
}

fn prompt(size: usize) -> Vec<u8> {
    let (start, end) = (r#"{"model":"m","prompt":""#, r#""}"#);
    let filler = "x".repeat(size - start.len() - end.len());
    format!("{start}{filler}{end}").into_bytes()
}

/// Sends so many bytes of `body` each second; says when it was answered, and what.
async fn drip(
    edge: &TestEdge,
    over: Over,
    body: &[u8],
    each: usize,
) -> (std::time::Duration, u16, String) {
    let request = post("/v1/chat/completions").body(body);
    let (request, framed) = match over {
        Over::Chunks => (
            request.chunked([each]),
            each + format!("{each:x}\r\n\r\n").len(),
        ),
        Over::Length => (request, each),
        Over::H2 => return drip_over_h2(edge, body, each).await,
    };
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    let begun = Instant::now();
    for piece in request.framed_body().chunks(framed) {
        tokio::time::sleep(SECOND).await;
        if client.has_something_to_read() {
            break;
        }
        client.send(piece).await;
    }
    let response = client.read_response().await;
    let took = begun.elapsed();
    if response.status != 200 {
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
    }
    (took, response.status, response.text().to_owned())
}

async fn drip_over_h2(
    edge: &TestEdge,
    body: &[u8],
    each: usize,
) -> (std::time::Duration, u16, String) {
    let mut client = H2Client::connect(edge).await;
    let asked = client.begin("/v1/chat/completions", None, false).await;
    let (mut sending, mut response) = (asked.body, asked.response);
    let begun = Instant::now();
    let mut pieces = body.chunks(each).peekable();
    let response = loop {
        let pause = tokio::time::sleep(SECOND);
        tokio::select! {
            response = &mut response => break response.unwrap(),
            () = pause, if pieces.peek().is_some() => {}
        }
        let piece = Bytes::copy_from_slice(pieces.next().unwrap());
        let sent = sending.send_data(piece, pieces.peek().is_none());
        sent.unwrap();
    };
    let took = begun.elapsed();
    let (head, mut body) = response.into_parts();
    let mut text = Vec::new();
    while let Some(data) = body.data().await {
        text.extend(data.unwrap());
    }
    // Only the stream is over.
    assert_eq!(client.chat().await.answer().await.status, 200);
    (took, head.status.as_u16(), String::from_utf8(text).unwrap())
}

#[tokio::test(start_paused = true)]
async fn c39_a_body_that_drips_in_at_half_the_least_rate_is_given_up() {
    for over in ALL {
        let (engine, edge) = served_with(LIMITS).await;
        let (took, status, text) = drip(&edge, over, &prompt(10_000), RATE / 2).await;
        assert_eq!(status, 408, "{over:?}");
        assert!(text.contains("request_timeout"), "{over:?}: {text}");
        // Ten seconds for nothing, and one for every two that went by.
        assert!((secs(18)..secs(22)).contains(&took), "{over:?}: {took:?}");
        edge.wait_until_idle().await;
        let served = usize::from(matches!(over, Over::H2));
        assert_eq!(engine.seen(), served, "{over:?}");
        assert_eq!(edge.requests("own_error"), 1.0, "{over:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c39_a_body_at_twice_the_least_rate_may_take_its_time() {
    for over in ALL {
        let (engine, edge) = served_with(LIMITS).await;
        let body = prompt(10_000);
        let (took, status, text) = drip(&edge, over, &body, 2 * RATE).await;
        assert_eq!((status, &*text), (200, "good"), "{over:?}");
        assert!(took > secs(45), "{over:?}: {took:?}");
        assert_eq!(engine.deliveries()[0].body, body, "{over:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c39_without_a_least_rate_a_body_may_drip() {
    for over in ALL {
        let settings = "body_timeout_ms: 10000\nbody_min_bytes_per_second: 0\n";
        let (_engine, edge) = served_with(settings).await;
        let (took, status, _) = drip(&edge, over, &prompt(1000), RATE / 10).await;
        assert_eq!(status, 200, "{over:?}");
        assert!(took > secs(95), "{over:?}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn c39_a_client_that_waits_for_leave_has_all_of_its_time_after_it() {
    const LEAVE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let (engine, edge) = served_with(LIMITS).await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").body(prompt(2000));
    let request = request.header("Expect", "100-continue");
    // The head comes slowly, too, which is on an account of its own.
    client.send_slowly(request.head_bytes(), 16, SECOND).await;
    assert_eq!(client.read_exactly(LEAVE.len()).await, LEAVE);
    tokio::time::sleep(secs(9)).await;
    client
        .send_slowly(request.framed_body(), RATE, SECOND)
        .await;
    assert_eq!(client.read_response().await.text(), "good");
    assert_eq!(engine.deliveries()[0].body, request.body_bytes());
}
