//! Requests that ask for another protocol: nothing is tunnelled: C37.

use crate::framing::{BODY, answers, raw_request, served, served_with, with_fields};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn c37_no_byte_is_tunnelled_to_an_engine_that_did_not_switch_protocols() {
    let switching =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
    for settings in ["", RETRIES] {
        let (engine, edge) = served_with(settings).await;
        for reply in [
            ok("{}"),
            status(403).body("{}"),
            status(426).body("{}"),
            raw(
                "HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}",
            ),
            raw(switching),
            raw(switching).then_close(),
            raw("HTTP/1.1 101 Switching Protocols\r\n\r\n").then_close(),
        ] {
            for fields in [
                "Upgrade: websocket\r\nConnection: Upgrade\r\n",
                "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
                "Upgrade: foo\r\nConnection: Upgrade\r\n",
                "",
            ] {
                engine.play(reply.clone());
                let framed = format!("{fields}Content-Length: {}\r\n", BODY.len());
                let mut bytes = with_fields(&framed, BODY.as_bytes());
                bytes.extend(raw_request("GET /metrics HTTP/1.1", "", b""));
                let mut client = Client::connect(edge.addr()).await;
                client.send(&bytes).await;
                client.shutdown_write().await;
                let answers = answers(&mut client).await;
                // Every attempt carries the one request, and nothing that follows it.
                for connection in engine.connections() {
                    let received = String::from_utf8_lossy(&connection.received).into_owned();
                    assert!(!received.contains("/metrics"), "{received:?}");
                }
                assert!(engine.deliveries().iter().all(|d| d.case() == "outer"));
                engine.assert_clean();
                assert!(answers.len() <= 2, "{answers:?}");
                if let Some(second) = answers.get(1) {
                    assert_eq!(second.status, 404, "the request behind is one of its own");
                }
                edge.wait_until_idle().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c37_an_engine_that_switches_protocols_unasked_is_passed_over() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello";
    let first = ScriptedEngine::start(raw(switching)).await;
    let second = ScriptedEngine::start(ok("second")).await;
    let lone = edge("").engines([&first]).start().await;
    assert_eq!(lone.ask(&req_n()).await.status, 502);
    let edge = edge(RETRIES).engines([&first, &second]).start().await;
    for _ in 0..2 {
        let response = edge.ask(&req_n().header("Upgrade", "websocket")).await;
        assert_eq!((response.status, response.text()), (200, "second"));
    }
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c37_bytes_behind_a_get_that_asks_for_an_upgrade_are_never_read() {
    let routes = "extra_routes: [{method: GET, path: /v1/realtime, model: any}]\n";
    for reply in [ok("{}"), status(403).body("{}")] {
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge(routes).engines([&engine]).start().await;
        let fields = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
        let behind = raw_request("GET /metrics HTTP/1.1", "", b"");
        let bytes = raw_request("GET /v1/realtime HTTP/1.1", fields, &behind);
        let mut client = Client::connect(edge.addr()).await;
        client.send(&bytes).await;
        assert_eq!(client.read_response().await.text(), "{}");
        client.expect_eof().await;
        assert_eq!((engine.seen(), engine.begun()), (1, 1));
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn c37_an_upgrade_is_not_offered_to_engines() {
    let (engine, edge) = served().await;
    let request = req_n()
        .header("Upgrade", "websocket")
        .header("Connection", "Upgrade")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==");
    for _ in 0..2 {
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&request).await;
        assert_eq!((response.status, response.text()), (200, "{}"));
        // What it sends next may not be HTTP any more.
        client.expect_eof().await;
    }
    for delivery in engine.deliveries() {
        assert!(!delivery.headers.has("upgrade") && !delivery.headers.has("connection"));
    }
}
