use std::num::NonZeroU32;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::sync::watch;

use super::*;
use crate::edge::buffered::Share;
use crate::edge::exchange::{Client, Patience};
use crate::edge::h1::H1;
use crate::edge::upload_time::UploadTime;

/// A session with a request read, what it shares, and the client's end of its connection.
async fn session() -> (ClientSession, Arc<Exchange>, DuplexStream) {
    session_with("GET / HTTP/1.1\r\nHost: edge.test\r\n\r\n").await
}

async fn session_with(request: &str) -> (ClientSession, Arc<Exchange>, DuplexStream) {
    let (mut client, ours) = tokio::io::duplex(1 << 16);
    client.write_all(request.as_bytes()).await.unwrap();
    let mut h1 = Box::new(H1::new(Box::new(ours), BytesMut::new()));
    assert!(h1.next(None).await.unwrap());
    let (client_of, patience) = (Client::default(), Patience::default());
    let exchange = Arc::new(Exchange::new(client_of, patience, true));
    let (_, shutdown) = watch::channel(false);
    let time = UploadTime::new(Duration::from_secs(60), NonZeroU32::new(1000));
    let intake = Intake::new(time, Share::new(Arc::default(), None));
    let kept = Kept::new(ClientWire::H1(h1), intake);
    let session = ClientSession::new(kept, Arc::clone(&exchange), shutdown, None);
    (session, exchange, client)
}

fn head() -> HttpTask {
    let mut head = ResponseHeader::build(200, None).unwrap();
    head.insert_header(CONTENT_LENGTH, 10).unwrap();
    HttpTask::Header(Box::new(head), false)
}

fn broken() -> HttpTask {
    HttpTask::Failed(Error::new_up(ErrorType::ReadError))
}

#[tokio::test]
async fn a_first_byte_that_comes_with_the_engines_failure_has_gone_out() {
    let (mut session, exchange, mut client) = session().await;
    let first = HttpTask::Body(Some(Bytes::from_static(b"first")), false);
    let sent = session
        .response_duplex_vec(vec![head(), first, broken()])
        .await;
    assert_eq!(sent.unwrap_err().esource, ErrorSource::Upstream);
    assert!(exchange.first_byte().is_some());
    drop(session);
    drop(exchange.take_back());
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert!(seen.ends_with(b"\r\n\r\nfirst"), "{}", seen.escape_ascii());
}

#[tokio::test]
async fn a_failure_before_the_first_byte_leaves_the_client_without_an_answer() {
    let (mut session, exchange, mut client) = session().await;
    let sent = session.response_duplex_vec(vec![head(), broken()]).await;
    assert_eq!(sent.unwrap_err().esource, ErrorSource::Upstream);
    assert_eq!(exchange.first_byte(), None);
    assert!(session.response_written().is_none());
    drop(session);
    drop(exchange.take_back());
    let mut seen = Vec::new();
    client.read_to_end(&mut seen).await.unwrap();
    assert!(seen.is_empty(), "{}", seen.escape_ascii());
}

#[tokio::test]
async fn a_byte_that_the_client_did_not_take_is_no_first_byte() {
    let (mut session, exchange, client) = session().await;
    drop(client);
    let first = HttpTask::Body(Some(Bytes::from_static(b"first")), false);
    let sent = session.response_duplex_vec(vec![head(), first]).await;
    assert_eq!(sent.unwrap_err().esource, ErrorSource::Downstream);
    assert_eq!(exchange.first_byte(), None);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_client_is_not_waited_for_is_not_its_own() {
    let head = "POST / HTTP/1.1\r\nHost: edge.test\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut session, _, mut client) = session_with(head).await;
    for n in 0..4 {
        // The router is held up, by an hour each time, and the client with it.
        tokio::time::advance(Duration::from_secs(3600)).await;
        let read = async {
            tokio::time::sleep(Duration::from_secs(14)).await;
            client.write_all(b"1\r\nx\r\n").await.unwrap();
        };
        let (data, ()) = tokio::join!(session.read_body_bytes(), read);
        assert_eq!(data.unwrap().as_deref(), Some(&b"x"[..]), "{n}");
    }
}
