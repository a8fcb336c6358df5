//! What becomes of an engine's connection when its answer is discarded.

use crate::h2::{H2Client, h2_and_retries};
use crate::support::*;

/// A refusal on a connection that stays.
fn refusals() -> [Reply; 3] {
    [status(503).body("full"), status(429), ok("good")]
}

#[tokio::test(start_paused = true)]
async fn a_refusals_connection_carries_the_next_attempt() {
    let engine = ScriptedEngine::start(refusals()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_eq!((response.attempts(), engine.seen()), (3, 3));
    assert_eq!(engine.accepted(), 1, "an overloaded engine has to accept");
    // Neither refusal delays the attempt behind it.
    assert_eq!(millis(&engine.gaps()), [200, 400]);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), 1.0);
    assert_eq!(edge.attempts_on(&engine), 3.0);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_refusals_connection_carries_the_next_attempt_for_a_client_of_h2() {
    let engine = ScriptedEngine::start(refusals()).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    for begun in [3, 4] {
        let answer = client.chat().await.answer().await;
        assert_eq!((answer.status, answer.text()), (200, "good"));
        assert_eq!((engine.seen(), engine.accepted()), (begun, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_clients_connection_serves_its_next_request_after_refusals() {
    let engine = ScriptedEngine::start(script(refusals()).cycle()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for n in 1..=4 {
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "good"));
        assert_eq!((response.attempts(), engine.seen()), (3, 3 * n));
    }
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_does_not_end_well_is_followed_on_another_connection() {
    let long = "x".repeat(16 * 1024 + 1);
    let refusal = || status(503).body("full");
    for (refusal, case) in [
        (refusal().close(), "closed"),
        (refusal().then_close(), "closed, unannounced"),
        (refusal().chunked(), "in chunks"),
        (refusal().until_close(), "until it closes"),
        (refusal().rst_at(Point::BodyBytes(2)), "reset inside"),
        (refusal().fin_at(Point::ResponseHead), "ended inside"),
        (status(503).body(&long), "long"),
    ] {
        let engine = ScriptedEngine::start([refusal, ok("good")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "good"), "{case}");
        assert_eq!((response.attempts(), engine.seen()), (2, 2), "{case}");
        assert_eq!(engine.accepted(), 2, "{case}");
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(&engine), 2.0, "{case}");
        let outcomes = [("outcome", "retryable_status")];
        let refused = edge.metric("vllm_pingora_attempts_total", &outcomes);
        assert_eq!(refused, 1.0, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_refusal_is_waited_for_a_moment_and_no_longer() {
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\n";
    for (rest, expected, connections) in [(50, 250, 1), (60_000, 300, 2)] {
        let pieces = [(ms(0), head), (ms(rest), "full")];
        let engine = ScriptedEngine::start([raw_pieces(pieces), ok("good")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "good"), "{rest}");
        assert_eq!(response.waited().as_millis(), expected, "{rest}");
        assert_eq!((response.attempts(), engine.accepted()), (2, connections));
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_meanwhile_is_not_served_again() {
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\n";
    let pieces = [(ms(0), head), (ms(90), "full")];
    let engine = ScriptedEngine::start([raw_pieces(pieces), ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_n()).await;
    engine.wait_for_begun(1).await;
    drop(client);
    edge.wait_for_requests("client_gone", 1).await;
    edge.wait_until_idle().await;
    assert_eq!(engine.begun(), 1);
}
