//! Requests that follow each other before their answers do: C18, C37.

use crate::framing::{answers, hidden, served, with_fields};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let echo = answer(|request| ok(request.case()).delay(ms(10)));
    for settings in ["", RETRIES] {
        for count in [2, 3] {
            let engine = ScriptedEngine::start(echo.clone()).await;
            let edge = edge(settings).engines([&engine]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            let requests: Vec<Request> = (0..count)
                .map(|i| {
                    let request = req_n().set("X-Case", &format!("p{i}"));
                    if i == 1 {
                        request.chunked([9])
                    } else {
                        request
                    }
                })
                .collect();
            let bytes: Vec<u8> = requests.iter().flat_map(Request::to_bytes).collect();
            client.send(bytes).await;
            for i in 0..count {
                let response = client.read_response().await;
                assert_eq!((response.status, response.text()), (200, &*format!("p{i}")));
            }
            assert_eq!(engine.seen(), count);
            engine.assert_clean();
            // And the connection goes on.
            assert_eq!(
                client.ask(&req_n().set("X-Case", "last")).await.text(),
                "last"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_of_all_kinds_are_answered_in_order() {
    let (engine, edge) = served().await;
    let mut client = Client::connect(edge.addr()).await;
    let bytes = [
        Request::new("GET", "/health").to_bytes(),
        req_n().to_bytes(),
        post("/nowhere").body("{}").to_bytes(),
        req_n().to_bytes(),
        with_fields("Content-Length: x\r\n", b""),
        hidden(),
    ];
    client.send(bytes.concat()).await;
    let seen: Vec<u16> = answers(&mut client)
        .await
        .iter()
        .map(|r| r.status)
        .collect();
    // The connection may end after an answer of our own to a body that was not read.
    let full = [200, 200, 404, 200, 400];
    assert!(full.starts_with(&seen) && seen.len() >= 3, "{seen:?}");
    assert!(engine.seen() <= 2);
    assert!(engine.deliveries().iter().all(|d| d.case() != "hidden"));
}

#[tokio::test(start_paused = true)]
async fn requests_pipelined_during_a_retry_wait_their_turn() {
    let engine = ScriptedEngine::start([status(503), ok("first"), ok("second")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send(req_n().set("X-Case", "one").to_bytes()).await;
    engine.wait_for_deliveries(1).await;
    client.send(req_n().set("X-Case", "two").to_bytes()).await;
    assert_eq!(client.read_response().await.text(), "first");
    assert_eq!(client.read_response().await.text(), "second");
    let cases: Vec<String> = engine
        .deliveries()
        .iter()
        .map(|d| d.case().to_owned())
        .collect();
    assert_eq!(cases, ["one", "one", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_behind_a_pipelined_request_is_gone() {
    let engine = ScriptedEngine::start(hang()).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client
        .send([req_n().to_bytes(), req_n().to_bytes()].concat())
        .await;
    engine.wait_for_deliveries(1).await;
    client.close();
    engine.wait_for_peer_close(0).await;
    edge.wait_until_idle().await;
    assert_eq!(engine.seen(), 1);
}
