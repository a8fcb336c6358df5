//! Bodies in chunks that are malformed, or that others would read otherwise: C37.

use crate::framing::{BODY, chunk, hidden, provoke, served, served_with, size, with_fields};
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn c37_a_malformed_chunk_ends_the_connection_and_reaches_no_engine() {
    let (engine, edge) = served_with("body_timeout_ms: 100\n").await;
    let size = size();
    let mut bodies: Vec<Vec<u8>> = [
        format!("0x{size}\r\n"),
        format!("+{size}\r\n"),
        format!("-{size}\r\n"),
        format!(" {size}\r\n"),
        format!("{size}\n"),
        format!("{size}\r"),
        format!("{size}\r\r\n"),
        format!("{size};ext\n"),
        format!("{size}; a\rb\r\n"),
        format!("{size}g\r\n"),
        format!("{size},{size}\r\n"),
        format!("10000000000000000{size}\r\n"),
        "fffffffffffffffff\r\n".to_owned(),
        "ffffffffffffffff\r\n".to_owned(),
        "8000000000000000\r\n".to_owned(),
        "0_1\r\n".to_owned(),
        format!("{size}\0\r\n"),
        format!("{size}\u{e9}\r\n"),
    ]
    .iter()
    .map(|line| chunk(line, "\r\n0\r\n\r\n"))
    .collect();
    let good = format!("{size}\r\n");
    for end in [
        "0\r\n\r\n",
        "\n0\r\n\r\n",
        "\r0\r\n\r\n",
        "xx0\r\n\r\n",
        "\r\n0\n\n",
        "\r\n0\r\n\n",
        "\r\n00x\r\n\r\n",
        "\r\n0\r\nX: a\nY: b\r\n\r\n",
    ] {
        bodies.push(chunk(&good, end));
    }
    let mut lenient = Vec::new();
    for body in bodies {
        let bytes = [
            &with_fields("Transfer-Encoding: chunked\r\n", &body)[..],
            &hidden(),
        ]
        .concat();
        let before = engine.begun();
        let shown = String::from_utf8_lossy(&body).into_owned();
        let answers = provoke(&edge, &bytes).await;
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        // What looks unfinished is waited for.
        let refused = matches!(statuses[..], [400 | 408]) && engine.begun() == before;
        if !refused {
            lenient.push((shown, statuses));
        }
    }
    assert!(lenient.is_empty(), "{lenient:#?}");
    engine.assert_clean();
    assert_eq!(engine.begun(), 0);
    edge.wait_until_idle().await;
}

// A server in front that reads these otherwise would see other requests than we do.
#[tokio::test(start_paused = true)]
async fn c37_a_chunk_that_others_read_otherwise_ends_the_connection() {
    let (engine, edge) = served_with("body_timeout_ms: 100\n").await;
    let size = size();
    let good = "\r\n0\r\n\r\n";
    let mut read_on = Vec::new();
    for body in [
        chunk(&format!("{size} \r\n"), good),
        chunk(&format!("{size}\t\r\n"), good),
        chunk(&format!("{size};a=\"b\nc\"\r\n"), good),
        chunk(&format!("{size};a\n\r\n"), good),
        chunk("\r\n", good),
        chunk(";ext\r\n", good),
        chunk(&format!("{size}\r\n"), "\r\n0\r\nBad Trailer\r\n\r\n"),
        chunk(&format!("{size}\r\n"), "\r\n0\r\nX : y\r\n\r\n"),
    ] {
        let bytes = [
            &with_fields("Transfer-Encoding: chunked\r\n", &body)[..],
            &hidden(),
        ]
        .concat();
        let mut client = Client::connect(edge.addr()).await;
        client.send(&bytes).await;
        client.read_response().await;
        if client.try_read_response().await.is_ok() {
            read_on.push(String::from_utf8_lossy(&body).into_owned());
        }
    }
    assert!(read_on.is_empty(), "{read_on:#?}");
    assert!(engine.deliveries().iter().all(|d| d.case() == "outer"));
}

#[tokio::test(start_paused = true)]
async fn c37_extensions_and_trailers_of_a_good_body_end_here() {
    let (engine, edge) = served().await;
    let size = size();
    for body in [
        chunk(&format!("{size};name=value\r\n"), "\r\n0\r\n\r\n"),
        chunk(
            &format!("{};n=\"v;w\"\r\n", size.to_uppercase()),
            "\r\n0;last\r\n\r\n",
        ),
        chunk(&format!("000{size}\r\n"), "\r\n000\r\n\r\n"),
        chunk(
            &format!("{size}\r\n"),
            "\r\n0\r\nX-Case: trailer\r\nTransfer-Encoding: x\r\n\r\n",
        ),
    ] {
        let bytes = with_fields("Transfer-Encoding: chunked\r\n", &body);
        let mut client = Client::connect(edge.addr()).await;
        client.send(&bytes).await;
        assert_eq!(
            client.read_response().await.status,
            200,
            "{}",
            String::from_utf8_lossy(&body)
        );
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!((delivery.case(), delivery.text()), ("outer", BODY));
        assert!(delivery.trailers.is_empty() && delivery.chunk_extensions.is_empty());
    }
    engine.assert_clean();
}
