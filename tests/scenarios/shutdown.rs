//! The way down: what runs is finished, and nothing new begins.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_running_stream_is_finished() {
    let engine = ScriptedEngine::start(sse(10, secs(1))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 1).await;

    let drain = edge.drain().clone();
    assert_eq!(drain.open(), 1);
    client.finish(&mut response).await;
    assert_eq!((response.complete, response.body), (true, sse_body(10)));
    // Its connection takes no further request.
    client.expect_eof().await;
    drain.finished().await;
    assert_eq!(edge.requests("answered"), 1.0);
    edge.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_request_in_its_backoff_is_finished() {
    let engine = ScriptedEngine::start([status(503), ok("late")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = req_n();
    let drain = async {
        tokio::time::sleep(ms(100)).await;
        edge.drain();
    };
    let (response, ()) = tokio::join!(edge.ask(&request), drain);
    assert_eq!((response.status, response.text()), (200, "late"));
    edge.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut fresh = Client::connect(edge.addr()).await;
    let mut used = Client::connect(edge.addr()).await;
    assert_eq!(used.ask(&req_n()).await.text(), "ok");
    while edge.open() < 2 {
        tokio::time::sleep(ms(1)).await;
    }
    let start = tokio::time::Instant::now();
    let drain = edge.drain().clone();
    fresh.expect_eof().await;
    used.expect_eof().await;
    drain.finished().await;
    assert_eq!(start.elapsed().as_millis(), 0);
    edge.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn new_connections_are_refused() {
    let engine = ScriptedEngine::start(sse(3, secs(1))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    let (addr, drain) = (edge.addr(), edge.drain().clone());
    edge.stopped().await;
    let refused = tokio::net::TcpStream::connect(addr).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
    // The listener has stopped, and the stream has not.
    assert_eq!(drain.open(), 1);
    client.finish(&mut response).await;
    assert!(response.complete);
    drain.finished().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_begins_while_draining_announces_the_close() {
    let engine = ScriptedEngine::start(ok("ok").delay(secs(1))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = req_n();
    client.send(&request.head_bytes()).await;
    tokio::time::sleep(ms(10)).await;
    edge.drain();
    tokio::time::sleep(ms(10)).await;
    client.send(request.framed_body()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.text()), (200, "ok"));
    assert_eq!(response.headers.get("connection"), Some("close"));
    client.expect_eof().await;
    edge.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn while_it_settles_connections_are_accepted_and_closed_after_their_answer() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut kept = Client::connect(edge.addr()).await;
    let response = kept.ask(&req_n()).await;
    assert_ne!(response.headers.get("connection"), Some("close"));
    assert_eq!(edge.admin("/ready").await.status, 200);

    edge.announce_the_end();
    assert_eq!(edge.admin("/ready").await.status, 503);
    // Neither a new client nor one with an open connection loses a request.
    for mut client in [kept, Client::connect(edge.addr()).await] {
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "ok"));
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
    }
    edge.drain();
    edge.stopped().await;
}
