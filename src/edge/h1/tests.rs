use std::num::NonZeroU32;

use pingora_core::ErrorSource;
use pingora_core::protocols::http::HttpTask;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

use super::*;
use crate::edge::buffered::Share;
use crate::edge::intake::Intake;
use crate::edge::upload_time::UploadTime;

/// A connection on which this has come, and the client's end of it.
async fn connection(sent: &str) -> (H1, DuplexStream) {
    let (mut client, ours) = tokio::io::duplex(1 << 16);
    client.write_all(sent.as_bytes()).await.unwrap();
    (H1::new(Box::new(ours), BytesMut::new()), client)
}

/// The same, with the head of its first request read.
async fn asked(sent: &str) -> (H1, DuplexStream) {
    let (mut h1, client) = connection(sent).await;
    assert!(h1.next(None).await.unwrap());
    (h1, client)
}

fn intake() -> Intake {
    let time = UploadTime::new(Duration::from_secs(60), NonZeroU32::new(1));
    Intake::new(time, Share::new(std::sync::Arc::default(), None))
}

async fn whole_body(h1: &mut H1) -> Vec<u8> {
    let (mut intake, mut body) = (intake(), Vec::new());
    while let Some(data) = h1.read_body(&mut intake).await.unwrap() {
        body.extend_from_slice(&data);
    }
    assert!(h1.has_ended());
    assert_eq!(h1.body_bytes_read(), body.len());
    body
}

fn head(status: u16, fields: &[(&'static str, &str)]) -> HttpTask {
    let mut head = ResponseHeader::build(status, None).unwrap();
    for (name, value) in fields {
        head.insert_header(*name, *value).unwrap();
    }
    HttpTask::Header(Box::new(head), false)
}

fn body(data: &'static str, end: bool) -> HttpTask {
    HttpTask::Body(Some(Bytes::from_static(data.as_bytes())), end)
}

/// All the client gets, without the time of day.
async fn seen(h1: H1, mut client: DuplexStream) -> String {
    drop(h1);
    let mut seen = String::new();
    client.read_to_string(&mut seen).await.unwrap();
    let lines = seen.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("Date: ")).collect()
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_body_is_what_its_framing_says_and_the_next_request_begins_behind_it() {
    let bodies = [
        ("Content-Length: 5\r\n\r\nhello", "hello"),
        ("Content-Length: 0\r\n\r\n", ""),
        ("\r\n", ""),
        (
            "Content-Length: 5, 5\r\nContent-Length: 5\r\n\r\nhello",
            "hello",
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x\r\nllo\r\n0\r\nA: b\r\n\r\n",
            "hello",
        ),
        ("Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""),
    ];
    for (first, expected) in bodies {
        let sent = format!("POST /first HTTP/1.1\r\nHost: a\r\n{first}{GET}");
        // However it comes: at once, or in two pieces.
        for at in (1..=sent.len()).filter(|at| sent.is_char_boundary(*at)) {
            let (now, later) = sent.split_at(at);
            let (mut h1, mut client) = connection(now).await;
            let later = later.to_owned();
            let rest = tokio::spawn(async move {
                tokio::task::yield_now().await;
                client.write_all(later.as_bytes()).await.unwrap();
                client
            });
            assert!(h1.next(None).await.unwrap());
            assert_eq!(h1.request().raw_path(), b"/first");
            assert_eq!(
                whole_body(&mut h1).await,
                expected.as_bytes(),
                "{first:?} {at}"
            );
            h1.rest();
            assert!(h1.next(None).await.unwrap());
            assert_eq!(
                (&h1.request().method, h1.has_ended()),
                (&http::Method::GET, true)
            );
            assert!(h1.ahead().is_empty());
            drop(rest.await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_length_that_is_said_more_than_once_is_passed_on_once() {
    let (h1, _client) = asked(
        "POST / HTTP/1.1\r\nContent-Length: 5, 5\r\nHost: a\r\ncontent-length: 5\r\n\r\nhello",
    )
    .await;
    let lengths = h1.request().headers.get_all("content-length");
    assert_eq!(lengths.iter().collect::<Vec<_>>(), ["5"]);
}

#[tokio::test]
async fn a_body_that_breaks_off_or_is_malformed_is_an_error_and_the_last_request() {
    for (rest, expected) in [
        ("Content-Length: 5\r\n\r\nhell", ErrorType::ConnectionClosed),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            ErrorType::ConnectionClosed,
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\n",
            ErrorType::InvalidHTTPHeader,
        ),
        (
            "Transfer-Encoding: chunked\r\n\r\nx",
            ErrorType::InvalidHTTPHeader,
        ),
    ] {
        let (mut h1, client) = asked(&format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}")).await;
        drop(client);
        assert!(h1.stays());
        let mut intake = intake();
        let error = loop {
            match h1.read_body(&mut intake).await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{rest:?} has ended"),
                Err(error) => break error,
            }
        };
        assert_eq!(*error.etype(), expected, "{rest:?}");
        assert!(!h1.stays() && !h1.has_ended());
    }
}

#[tokio::test]
async fn an_answer_is_framed_as_its_head_says_and_its_last_byte_leaves_with_its_end() {
    let length = ("Content-Length", "5");
    let chunked = ("Transfer-Encoding", "chunked");
    let tasks = |fields| vec![head(200, fields), body("he", false), body("llo", true)];
    for (request, tasks, expected) in [
        (
            GET,
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        ),
        (
            GET,
            tasks(&[chunked]),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n\
             5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            GET,
            tasks(&[]),
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        ),
        // What an engine says of its own connection, and of the time, is not for the client.
        (
            GET,
            tasks(&[length, ("Connection", "x"), ("Date", "then")]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        ),
        (
            "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
        ),
        (
            GET,
            vec![head(304, &[length]), HttpTask::Done],
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
        ),
        (
            GET,
            vec![
                head(103, &[("Link", "<a>")]),
                head(204, &[]),
                HttpTask::Done,
            ],
            "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n\
             HTTP/1.1 204 No Content\r\nConnection: keep-alive\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        ),
        (
            "GET / HTTP/1.0\r\n\r\n",
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        ),
        (
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello",
        ),
        // The body was not read, so what comes behind may be a part of it.
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            tasks(&[length]),
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        ),
    ] {
        let (mut h1, client) = asked(request).await;
        assert!(h1.respond(tasks).await.unwrap(), "{expected:?}");
        assert_eq!(h1.stays(), expected.contains("keep-alive"), "{expected:?}");
        assert_eq!(seen(h1, client).await, expected, "{request:?}");
    }
}

#[tokio::test]
async fn a_body_is_never_longer_than_declared_and_one_that_is_shorter_is_no_answer() {
    for (sent, expected) in [("hell", Err(())), ("hello", Ok(true)), ("hello!", Ok(true))] {
        let (mut h1, client) = asked(GET).await;
        let tasks = vec![head(200, &[("Content-Length", "5")]), body(sent, true)];
        let answered = h1.respond(tasks).await.map_err(|error| {
            assert_eq!(error.esource, ErrorSource::Downstream);
        });
        assert_eq!(answered, expected, "{sent}");
        assert_eq!(h1.body_bytes_sent(), sent.len().min(5));
        if expected.is_ok() {
            assert!(seen(h1, client).await.ends_with("\r\n\r\nhello"));
        }
    }
}

#[tokio::test]
async fn a_second_answer_to_one_request_is_held_back() {
    let (mut h1, client) = asked(GET).await;
    h1.respond(vec![head(200, &[("Content-Length", "2")])])
        .await
        .unwrap();
    let again = vec![head(500, &[]), body("ok", true)];
    assert!(h1.respond(again).await.unwrap());
    assert_eq!(h1.written().unwrap().status, 200);
    let seen = seen(h1, client).await;
    assert!(
        seen.ends_with("\r\n\r\nok") && !seen.contains("500"),
        "{seen}"
    );
}

#[tokio::test]
async fn a_head_waits_for_its_body_only_as_long_as_nobody_waits_for_the_client() {
    let (mut h1, mut client) = asked(GET).await;
    h1.respond(vec![head(200, &[("Content-Length", "2")])])
        .await
        .unwrap();
    let mut early = [0; 8];
    let peek = client.read(&mut early);
    tokio::pin!(peek);
    assert!(futures::poll!(&mut peek).is_pending());
    let waits = h1.body_or_departure(false);
    tokio::pin!(waits);
    assert!(futures::poll!(&mut waits).is_pending());
    assert_eq!(peek.await.unwrap(), 8);
    assert_eq!(&early, b"HTTP/1.1");
}

#[tokio::test]
async fn all_of_a_large_answer_arrives_in_order_however_slowly_it_is_taken() {
    let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    for pieces in [1, 7, 1000] {
        let (mut h1, mut client) = asked(GET).await;
        let sent = Bytes::from(data.clone());
        let size = data.len().div_ceil(pieces);
        let answer = async move {
            let length = sent.len().to_string();
            h1.respond(vec![head(200, &[("Content-Length", &length)])])
                .await
                .unwrap();
            for at in (0..sent.len()).step_by(size) {
                let end = sent.len().min(at + size);
                let piece = sent.slice(at..end);
                h1.respond(vec![HttpTask::Body(Some(piece), end == sent.len())])
                    .await
                    .unwrap();
            }
            h1
        };
        let take = async move {
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                seen.push(client.read_u8().await.unwrap());
            }
            let mut body = vec![0; 300_000];
            client.read_exact(&mut body).await.unwrap();
            body
        };
        let (_h1, body) = tokio::join!(answer, take);
        assert!(body == data, "{pieces}");
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_noticed_behind_what_it_sent_ahead() {
    let (mut h1, mut client) = asked(&format!("{GET}{GET}")).await;
    let error = {
        let waits = h1.body_or_departure(false);
        tokio::pin!(waits);
        assert!(futures::poll!(&mut waits).is_pending());
        client.write_all(GET.as_bytes()).await.unwrap();
        assert!(futures::poll!(&mut waits).is_pending());
        drop(client);
        waits.await.unwrap_err()
    };
    assert_eq!(*error.etype(), ErrorType::ConnectionClosed);
    assert_eq!(h1.ahead(), format!("{GET}{GET}").as_bytes());
    assert!(!h1.stays());
}

#[tokio::test]
async fn between_requests_nothing_is_kept() {
    let (mut h1, mut client) = asked(GET).await;
    h1.respond(vec![head(200, &[("Content-Length", "0")]), HttpTask::Done])
        .await
        .unwrap();
    h1.rest();
    assert_eq!(
        (
            h1.raw().len(),
            h1.wire.ahead.capacity(),
            h1.wire.unsent.capacity()
        ),
        (0, 0, 0)
    );
    assert!(h1.request().headers.is_empty() && h1.written().is_none());
    client.write_all(GET.as_bytes()).await.unwrap();
    assert!(h1.next(None).await.unwrap());
    assert_eq!(h1.raw(), GET);
}

#[tokio::test]
async fn the_size_of_a_chunk_is_written_as_it_is() {
    let (mut h1, _client) = connection("").await;
    let edges = (0..16).flat_map(|place| [1 << (4 * place), (1_usize << (4 * place)) - 1]);
    for size in edges.chain([usize::MAX, 0xabc, 416]) {
        h1.wire.unsent.clear();
        h1.wire.put_chunk_size(size);
        assert_eq!(h1.wire.unsent, format!("{size:X}\r\n"));
    }
}
