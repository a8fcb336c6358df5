//! Where one request ends and the next begins: heads that can be read in two ways: C37.

use crate::support::*;

pub const BODY: &str = r#"{"model":"m","messages":[]}"#;

/// A well-formed request that must never be taken for one where it is hidden.
pub fn hidden() -> Vec<u8> {
    post("/v1/chat/completions")
        .set("X-Case", "hidden")
        .body(BODY)
        .to_bytes()
}

/// The head of a request with these field lines, then `body`.
pub fn with_fields(fields: &str, body: &[u8]) -> Vec<u8> {
    raw_request("POST /v1/chat/completions HTTP/1.1", fields, body)
}

pub fn raw_request(line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("{line}\r\nHost: edge.test\r\nX-Case: outer\r\n{fields}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A body whose chunk lines are spelled out, around [`BODY`].
pub fn chunk(size_line: &str, end: &str) -> Vec<u8> {
    format!("{size_line}{BODY}{end}").into_bytes()
}

pub fn size() -> String {
    format!("{:x}", BODY.len())
}

pub async fn served() -> (ScriptedEngine, TestEdge) {
    served_with("").await
}

pub async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge(settings).engines([&engine]).start().await;
    (engine, edge)
}

/// Reads answers until the connection ends.
pub async fn answers(client: &mut Client) -> Vec<Response> {
    let mut answers = Vec::new();
    while let Ok(response) = client.try_read_response().await {
        answers.push(response);
    }
    answers
}

/// Sends `bytes`, which end in a hidden request, as one segment; the answers until the close.
pub async fn provoke(edge: &TestEdge, bytes: &[u8]) -> Vec<Response> {
    let mut client = Client::connect(edge.addr()).await;
    client.send(bytes).await;
    answers(&mut client).await
}

#[tokio::test(start_paused = true)]
async fn c37_an_ambiguous_head_is_refused_and_what_follows_it_is_not_read() {
    let (engine, edge) = served().await;
    let post = "POST /v1/chat/completions";
    let chunked = chunk(&format!("{}\r\n", size()), "\r\n0\r\n\r\n");
    let zero = b"0\r\n\r\n".to_vec();
    let plain = BODY.as_bytes().to_vec();
    let n = BODY.len();
    let mut cases: Vec<(String, Vec<u8>)> = vec![
        (
            format!("Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n"),
            chunked.clone(),
        ),
        (
            format!("Transfer-Encoding: chunked\r\nContent-Length: {n}\r\n"),
            chunked.clone(),
        ),
        (
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n".into(),
            zero.clone(),
        ),
        (
            "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n".into(),
            zero.clone(),
        ),
        (
            format!("Content-Length: {n}\r\nContent-Length: 0\r\n"),
            plain.clone(),
        ),
        (
            format!("Content-Length: 0\r\nContent-Length: {n}\r\n"),
            plain.clone(),
        ),
        (format!("Content-Length: {n}, 0\r\n"), plain.clone()),
        (format!("Content-Length: {n},\r\n"), plain.clone()),
    ];
    for length in [
        "+{}", "-{}", "0x{}", "{}\t", "{}\x0b", "{}.0", "{} 0", "'{}'", "{};", "0x1b", "",
    ] {
        let value = length.replace("{}", &n.to_string());
        cases.push((format!("Content-Length: {value}\r\n"), plain.clone()));
    }
    for length in [
        "18446744073709551616",
        "18446744073709551643",
        "99999999999999999999999999",
        "9223372036854775808",
    ] {
        cases.push((format!("Content-Length: {length}\r\n"), plain.clone()));
    }
    for coding in [
        "chunked, identity",
        "identity, chunked",
        "gzip, chunked",
        "xchunked",
        "chunkedx",
        "chunked\t",
        "\tchunked",
        "\x0bchunked",
        "chunked\x0c",
        "chunked;q=1",
        "chunked,",
        ", chunked",
        "chunked, chunked",
        "\"chunked\"",
        "identity",
        "chu nked",
        "",
    ] {
        cases.push((format!("Transfer-Encoding: {coding}\r\n"), chunked.clone()));
        // Here the length is what a reader would take that does not see the coding.
        cases.push((
            format!(
                "Transfer-Encoding: {coding}\r\nContent-Length: {}\r\n",
                chunked.len()
            ),
            chunked.clone(),
        ));
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding\t: chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\r\n\tz\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer\0-Encoding: chunked\r\n",
        "Transfer-Encoding: chun\0ked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
        "X: y\r\r\nTransfer-Encoding: chunked\r\n",
        "X: a\0b\r\nTransfer-Encoding: chunked\r\n",
        ": x\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\n",
        "Transfer-Encoding: chunked\n\n",
    ] {
        cases.push((fields.to_owned(), chunked.clone()));
    }
    let heads = cases
        .into_iter()
        .map(|(fields, body)| with_fields(&fields, &body));
    let plain = &chunked[..];
    let others = [
        raw_request(
            &format!("{post} HTTP/1.0"),
            "Transfer-Encoding: chunked\r\n",
            plain,
        ),
        raw_request(
            &format!("{post} HTTP/1.0"),
            "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
            plain,
        ),
        raw_request(
            &format!("{post} HTTP/1.0"),
            "Connection: keep-alive\r\nTransfer-Encoding: identity\r\n",
            plain,
        ),
        raw_request(&format!("{post} HTTP/0.9"), "", plain),
        raw_request(&format!("{post} HTTP/2.0"), "", plain),
        raw_request(&format!("{post} HTTP/1.1 "), "", plain),
        raw_request(&format!("{post}\tHTTP/1.1"), "", plain),
        raw_request(&format!(" {post} HTTP/1.1"), "", plain),
        raw_request(post, "", plain),
        raw_request(&format!("{post} HTTP/1.1\nX: y"), "", plain),
        raw_request(&format!("{post} http/1.1"), "", plain),
        raw_request("\r\r\nPOST /v1/chat/completions HTTP/1.1", "", plain),
        raw_request("\nPOST /v1/chat/completions HTTP/1.1", "", plain),
    ];
    for mut bytes in heads.chain(others) {
        bytes.extend(hidden());
        let answers = provoke(&edge, &bytes).await;
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(answers.len(), 1, "{shown:?}");
        assert_eq!(answers[0].status, 400, "{shown:?}");
        assert_eq!(answers[0].headers.get("connection"), Some("close"));
        assert_eq!(answers[0].json()["error"]["code"], "invalid_request");
    }
    assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 200);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c37_equal_lengths_and_other_spellings_have_one_reading() {
    let (engine, edge) = served().await;
    let n = BODY.len();
    let chunked = chunk(&format!("{}\r\n", size()), "\r\n0\r\n\r\n");
    let whole = |fields: String, body: &[u8]| with_fields(&fields, body);
    let plain = BODY.as_bytes();
    let requests = [
        whole(format!("Content-Length: {n}, {n}\r\n"), plain),
        whole(
            format!("Content-Length: {n}\r\nContent-Length: {n}\r\n"),
            plain,
        ),
        whole(format!("Content-Length: {n}   \r\n"), plain),
        whole(format!("content-length:{n}\r\n"), plain),
        whole("Transfer-Encoding: Chunked\r\n".into(), &chunked),
        whole("TRANSFER-ENCODING:  CHUNKED \r\n".into(), &chunked),
        [
            b"\r\n\r\n",
            &whole(format!("Content-Length: {n}\r\n"), plain)[..],
        ]
        .concat(),
    ];
    for bytes in requests {
        let mut client = Client::connect(edge.addr()).await;
        client.send([&bytes[..], &hidden()].concat()).await;
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        // Here the second one is no longer hidden: it comes after the end of the first.
        for case in ["outer", "hidden"] {
            assert_eq!(client.read_response().await.status, 200, "{shown:?}");
            let delivery = engine.deliveries().pop().unwrap();
            assert_eq!(
                (delivery.case(), delivery.text()),
                (case, BODY),
                "{shown:?}"
            );
            assert_eq!(delivery.framing, Framing::Length(n as u64));
        }
    }
    engine.assert_clean();
}
