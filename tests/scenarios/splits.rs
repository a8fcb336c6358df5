//! Requests and answers in pieces, wherever they are split: C20.

use std::time::Duration;

use crate::framing::{BODY, served, served_with};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_request_split_anywhere_is_the_same_request() {
    let (engine, edge) = served().await;
    let requests = [
        post("/v1/chat/completions").body(BODY),
        post("/v1/chat/completions").body(BODY).chunked([3, 11]),
    ];
    for request in requests {
        let bytes = request.to_bytes();
        let mut client = Client::connect(edge.addr()).await;
        let head = request.head_bytes().len();
        let splits = (1..head - 4).step_by(5).chain(head - 4..bytes.len());
        for at in splits {
            client.send(&bytes[..at]).await;
            settle().await;
            client.send(&bytes[at..]).await;
            assert_eq!(client.read_response().await.status, 200, "split at {at}");
            let delivery = engine.deliveries().pop().unwrap();
            assert_eq!((delivery.case(), delivery.text()), (request.case(), BODY));
        }
        assert_eq!(client.surplus(), b"");
    }
    engine.assert_clean();
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_sent_byte_by_byte_is_the_same_request() {
    let (engine, edge) = served_with(RETRIES).await;
    for request in [req_n(), req_n().chunked([5])] {
        let mut client = Client::connect(edge.addr()).await;
        for byte in request.to_bytes() {
            client.send([byte]).await;
            settle().await;
        }
        assert_eq!(client.read_response().await.status, 200);
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.body, request.body_bytes());
    }
    engine.assert_clean();
}

/// Lets the router read what has been sent, on a paused clock as good as at once.
async fn settle() {
    tokio::time::sleep(Duration::from_micros(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_pieces_is_the_same_answer() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";
    for settings in ["", RETRIES] {
        let (engine, edge) = served_with(settings).await;
        let mut client = Client::connect(edge.addr()).await;
        for at in (1..answer.len()).step_by(3) {
            engine.play(raw_pieces([
                (Duration::ZERO, &answer[..at]),
                (ms(1), &answer[at..]),
            ]));
            let response = client.ask(&req_n()).await;
            assert_eq!(
                (response.status, response.text()),
                (200, "{}"),
                "split at {at}"
            );
            assert!(response.complete);
        }
        assert_eq!(engine.accepted(), 1);
    }
}
