//! Where one request ends and the next begins: C37, C38, pipelining, splits.

use std::time::Duration;

use crate::support::*;

const BODY: &str = r#"{"model":"m","messages":[]}"#;

/// A well-formed request that must never be taken for one where it is hidden.
fn hidden() -> Vec<u8> {
    post("/v1/chat/completions")
        .set("X-Case", "hidden")
        .body(BODY)
        .to_bytes()
}

/// The head of a request with these field lines, then `body`.
fn with_fields(fields: &str, body: &[u8]) -> Vec<u8> {
    raw_request("POST /v1/chat/completions HTTP/1.1", fields, body)
}

fn raw_request(line: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes =
        format!("{line}\r\nHost: edge.test\r\nX-Case: outer\r\n{fields}\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A body whose chunk lines are spelled out, around [`BODY`].
fn chunk(size_line: &str, end: &str) -> Vec<u8> {
    format!("{size_line}{BODY}{end}").into_bytes()
}

fn size() -> String {
    format!("{:x}", BODY.len())
}

async fn served() -> (ScriptedEngine, TestEdge) {
    served_with("").await
}

async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge(settings).engines([&engine]).start().await;
    (engine, edge)
}

/// Reads answers until the connection ends.
async fn answers(client: &mut Client) -> Vec<Response> {
    let mut answers = Vec::new();
    while let Ok(response) = client.try_read_response().await {
        answers.push(response);
    }
    answers
}

/// Sends `bytes`, which end in a hidden request, as one segment; the answers until the close.
async fn provoke(edge: &TestEdge, bytes: &[u8]) -> Vec<Response> {
    let mut client = Client::connect(edge.addr()).await;
    client.send(bytes).await;
    answers(&mut client).await
}

// C37: heads that can be read in two ways

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

// C37: bodies in malformed chunks

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

// C37: upgrades

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

// C38: answers of our own to requests whose body has not been read

/// Requests that are answered here: the head without its framing, and the status.
fn answered_here() -> Vec<(Request, u16)> {
    let keyed = |request: Request| request.set("Authorization", "Bearer right");
    vec![
        (post("/v1/chat/completions"), 401),
        (keyed(post("/nowhere")), 404),
        (keyed(post("/v1/models")), 405),
        (keyed(Request::new("OPTIONS", "/v1/chat/completions")), 405),
        (keyed(Request::new("GET", "/v1/chat/completions")), 405),
        (Request::new("GET", "/health"), 200),
        (keyed(Request::new("DELETE", "/health")), 405),
        (keyed(Request::new("GET", "/v1/models")), 200),
    ]
}

const KEYED: &str = "api_keys: [right]\nmax_request_body_bytes: 1000\n";

async fn keyed() -> (ScriptedEngine, TestEdge) {
    let models = ok(r#"{"data":[{"id":"m"}]}"#);
    let engine = ScriptedEngine::start(script(ok("{}")).on("/v1/models", models)).await;
    let edge = edge(KEYED).engines([&engine]).start().await;
    (engine, edge)
}

/// What is left of a connection after the answer: the next request is answered, or it is closed.
async fn next_is_answered_or_closed(client: &mut Client, engine: &ScriptedEngine, what: &str) {
    let next = req_n()
        .set("X-Case", "next")
        .set("Authorization", "Bearer right");
    let sent = client.try_send(next.to_bytes()).await.is_ok();
    match client.try_read_response().await {
        Ok(response) => {
            assert!(sent);
            assert_eq!((response.status, response.text()), (200, "{}"), "{what}");
            let delivery = engine.deliveries().pop().unwrap();
            assert_eq!(delivery.case(), "next", "{what}");
        }
        Err(none) => assert_eq!(none.partial, b"", "{what}"),
    }
    for delivery in engine.deliveries() {
        assert_eq!(delivery.case(), "next", "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_sent_with_its_head_is_no_request() {
    let (engine, edge) = keyed().await;
    let hidden = hidden();
    for (request, status) in answered_here() {
        for chunked in [false, true] {
            let mut request = request.clone().body(&hidden);
            if chunked {
                request = request.chunked([hidden.len()]);
            }
            let what = format!("{status} chunked={chunked}");
            let mut client = Client::connect(edge.addr()).await;
            client.send_request(&request).await;
            assert_eq!(client.read_response().await.status, status, "{what}");
            next_is_answered_or_closed(&mut client, &engine, &what).await;
        }
    }
    engine.assert_clean();
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_sent_after_the_answer_is_no_request() {
    let (engine, edge) = keyed().await;
    let hidden = hidden();
    for pause in [ms(300), secs(10), secs(70)] {
        for (request, status) in answered_here() {
            for chunked in [false, true] {
                let mut request = request.clone().body(&hidden);
                if chunked {
                    request = request.chunked([hidden.len()]);
                }
                let what = format!("{status} after {pause:?} chunked={chunked}");
                let mut client = Client::connect(edge.addr()).await;
                client.send(request.head_bytes()).await;
                let answer = client.read_response().await;
                assert_eq!(answer.status, status, "{what}");
                tokio::time::sleep(pause).await;
                if client.try_send(request.framed_body()).await.is_ok() {
                    next_is_answered_or_closed(&mut client, &engine, &what).await;
                }
            }
        }
    }
    assert!(engine.deliveries().iter().all(|d| d.case() == "next"));
    engine.assert_clean();
    edge.wait_until_idle().await;
}

#[tokio::test]
async fn c38_a_large_body_sent_slowly_is_no_request() {
    let (engine, edge) = keyed().await;
    let mut body = hidden();
    body.resize(512 * 1024, b' ');
    for (request, status) in [
        (post("/v1/chat/completions"), 401),
        (
            post("/v1/chat/completions").set("Authorization", "Bearer right"),
            413,
        ),
    ] {
        let request = request.body(&body);
        let mut client = Client::connect(edge.addr()).await;
        client.send(request.head_bytes()).await;
        assert_eq!(client.read_response().await.status, status);
        for piece in body.chunks(32 * 1024) {
            if client.try_send(piece).await.is_err() {
                break;
            }
            tokio::time::sleep(ms(1)).await;
        }
        let (_, surplus) = client.read_to_end().await;
        assert!(surplus.is_empty(), "{}", String::from_utf8_lossy(&surplus));
    }
    assert_eq!(engine.begun(), 0);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_of_a_body_of_50_mib_no_more_is_read_than_half_a_minute_brings() {
    const SIZE: usize = 50 << 20;
    let (engine, edge) = keyed().await;
    // Small enough for the sockets to take it at once, whoever reads.
    let mut piece = hidden();
    piece.resize(32 * 1024, b'\n');
    for (key, status) in [("wrong", 401), ("right", 413)] {
        let head = post("/v1/chat/completions")
            .set("Authorization", &format!("Bearer {key}"))
            .header("Content-Length", SIZE.to_string());
        let mut client = Client::connect(edge.addr()).await;
        client.send(head.head_bytes()).await;
        let begun = tokio::time::Instant::now();
        assert_eq!(client.read_response().await.status, status);
        let mut sent = 0;
        while sent < SIZE && client.try_send(&piece).await.is_ok() {
            sent += piece.len();
            tokio::time::sleep(ms(25)).await;
        }
        assert!(sent < SIZE, "all of it was read");
        let lasted = begun.elapsed();
        assert!(lasted < secs(40), "{lasted:?}");
        let (_, surplus) = client.read_to_end().await;
        assert!(surplus.is_empty(), "{}", String::from_utf8_lossy(&surplus));
    }
    assert_eq!(engine.accepted(), 0);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_above_the_limit_is_no_request() {
    let (engine, edge) = keyed().await;
    let mut body = hidden();
    body.resize(2000, b'\n');
    body.extend(hidden());
    for chunked in [false, true] {
        let mut request = post("/v1/chat/completions")
            .set("Authorization", "Bearer right")
            .body(&body);
        if chunked {
            request = request.chunked([2000]);
        }
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&request).await;
        assert_eq!(client.read_response().await.status, 413);
        next_is_answered_or_closed(&mut client, &engine, "413").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c38_an_unroutable_body_is_no_request() {
    let (engine, edge) = served().await;
    for (body, status) in [
        (br#"{"model":"nobody"}"#.to_vec(), 404),
        (b"not json".to_vec(), 400),
        (hidden(), 400),
    ] {
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&post("/v1/chat/completions").body(body)).await;
        assert_eq!(response.status, status);
        next_is_answered_or_closed(&mut client, &engine, "unroutable").await;
    }
}

#[tokio::test(start_paused = true)]
async fn c38_a_body_left_unread_by_an_engine_is_no_request() {
    // The engine answers before it has read the body, and closes.
    let early = status(400).body("{}").answer_before_body().then_close();
    let engine = ScriptedEngine::start([early, ok("{}")]).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let mut body = BODY.as_bytes().to_vec();
    body.resize(4096, b' ');
    body.extend(hidden());
    // Not JSON as a whole, so it does not even go to an engine.
    let response = client.ask(&post("/v1/chat/completions").body(&body)).await;
    assert_eq!(response.status, 400);
    body.truncate(4096);
    let early = client
        .ask(
            &post("/v1/chat/completions")
                .set("X-Case", "next")
                .body(&body),
        )
        .await;
    assert_eq!((early.status, early.text()), (400, "{}"));
    next_is_answered_or_closed(&mut client, &engine, "early answer").await;
}

#[tokio::test]
async fn a_client_that_is_still_sending_reads_why_it_was_refused() {
    let (engine, edge) = keyed().await;
    let body = vec![b'x'; 3 * 1024 * 1024];
    for (key, status) in [("wrong", 401), ("right", 413)] {
        let request = post("/v1/chat/completions")
            .set("Authorization", &format!("Bearer {key}"))
            .body(&body);
        let mut client = Client::connect(edge.addr()).await;
        // All of it is sent before anything is read, as simple clients do.
        client.send_request(&request).await;
        let response = client.read_response().await;
        assert_eq!(response.status, status);
        assert_eq!(response.headers.get("connection"), Some("close"));
        let (close, surplus) = client.read_to_end().await;
        assert_eq!((close, surplus), (Close::Fin, vec![]));
    }
    assert_eq!(engine.begun(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closing_connection_is_not_read_for_ever() {
    let (_engine, edge) = keyed().await;
    let mut client = Client::connect(edge.addr()).await;
    let head = with_fields("Content-Length: 4, 5\r\n", b"");
    client.send(head).await;
    assert_eq!(client.read_response().await.status, 400);
    client.expect_eof().await;
    let begun = tokio::time::Instant::now();
    while client.try_send(b"x").await.is_ok() {
        tokio::time::sleep(secs(1)).await;
        assert!(begun.elapsed() < secs(120), "it reads on and on");
    }
}

// Pipelining

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

// Splits

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
