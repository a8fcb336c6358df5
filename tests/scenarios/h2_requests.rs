//! What HTTP/2 clients may ask for: keys, ids, limits and odd requests, as over HTTP/1.1: C12,
//! C34, C35, C37, C38, C39, C44.

use bytes::Bytes;

use crate::h2::{Answer, Asked, H2C, H2Client, ready};
use crate::support::*;

const KEY: &str = "sk-h2-5b90e1";
const CHAT: &str = "/v1/chat/completions";
const BODY: &[u8] = br#"{"model":"m","messages":[]}"#;

async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let models = ok(r#"{"data":[{"id":"m"}]}"#);
    let engine = ScriptedEngine::start(script(ok("{}")).on("/v1/models", models)).await;
    let edge = edge(&format!("{H2C}{settings}"))
        .engines([&engine])
        .start()
        .await;
    (engine, edge)
}

/// Sends a request with these fields and this body, whole.
async fn send(
    client: &mut H2Client,
    method: &str,
    path: &str,
    fields: &[(&str, &[u8])],
    body: &[u8],
) -> Asked {
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("http://edge.test{path}"))
        .version(http::Version::HTTP_2);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let mut send = ready(&client.send).await;
    let (response, mut stream) = send
        .send_request(request.body(()).unwrap(), body.is_empty())
        .unwrap();
    if !body.is_empty() {
        stream
            .send_data(Bytes::copy_from_slice(body), true)
            .unwrap();
    }
    Asked {
        response,
        body: stream,
    }
}

async fn ask(
    client: &mut H2Client,
    method: &str,
    path: &str,
    fields: &[(&str, &[u8])],
    body: &[u8],
) -> Answer {
    send(client, method, path, fields, body)
        .await
        .answer()
        .await
}

#[tokio::test(start_paused = true)]
async fn c44_a_tunnel_over_h2_is_refused_as_everything_else_is() {
    let (engine, edge) = served_with("").await;
    let mut client = H2Client::connect(&edge).await;
    for (nth, ends) in [(1.0, true), (2.0, false)] {
        let request = http::Request::connect("edge.test:443")
            .version(http::Version::HTTP_2)
            .body(())
            .unwrap();
        let mut send = ready(&client.send).await;
        let (response, body) = send.send_request(request, ends).unwrap();
        let answer = Asked { response, body }.answer().await;
        assert_eq!(
            (answer.status, &*code(&answer)),
            (405, "method_not_allowed")
        );
        let field = |name| answer.headers[name].to_str().unwrap();
        assert_eq!(field("allow"), "GET, HEAD, POST");
        assert_eq!(field("content-type"), "application/json");
        assert!(!answer.headers.contains_key("server"));
        let line = edge.access_line(field("x-request-id")).await;
        assert!(line.contains(" status=405 "), "{line}");
        assert_eq!(edge.requests("own_error"), nth);
    }
    assert_eq!(ask(&mut client, "POST", CHAT, &[], BODY).await.status, 200);
    assert_eq!(engine.seen(), 1);
}

fn code(answer: &Answer) -> String {
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    body["error"]["code"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn c44_over_h2_only_the_listed_paths_and_methods_reach_an_engine() {
    let (engine, edge) = served_with(&format!("api_keys: [{KEY}]\n")).await;
    let mut client = H2Client::connect(&edge).await;
    let right = format!("Bearer {KEY}");
    for (method, path, status) in [
        ("POST", "/sleep", 404),
        ("POST", "/abort_requests", 404),
        ("GET", "/invocations", 405),
        ("GET", "/metrics", 404),
        ("GET", "/docs", 404),
        ("POST", "//v1/chat/completions", 404),
        ("POST", "/v1/../sleep", 404),
        ("POST", "/v1/%2e%2e/sleep", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1/chat/completions%00", 404),
        ("GET", "/V1/models", 404),
        ("GET", "/health/../sleep", 404),
        ("GET", "/", 404),
        ("GET", CHAT, 405),
        ("OPTIONS", CHAT, 405),
        ("TRACE", "/v1/models", 405),
        ("DELETE", "/health", 405),
    ] {
        for (key, expected) in [(&*right, status), ("Bearer wrong", 401), ("", 401)] {
            let fields = [("authorization", key.as_bytes())];
            let fields = if key.is_empty() { &[][..] } else { &fields };
            let answer = ask(&mut client, method, path, fields, b"").await;
            // Health asks nobody for a key.
            let expected = if path == "/health" { 405 } else { expected };
            assert_eq!(answer.status, expected, "{method} {path} {key}");
            assert_eq!(answer.reset, None);
            code(&answer);
        }
    }
    assert_eq!(engine.accepted(), 0);
    let health = ask(&mut client, "GET", "/health", &[], b"").await;
    assert_eq!((health.status, health.text()), (200, ""));
}

#[tokio::test(start_paused = true)]
async fn c35_over_h2_the_key_is_checked_and_replaced_as_ever() {
    let keys = format!("{RETRIES}api_keys: [{KEY}]\nengine_api_key: sk-of-engines\n");
    let (engine, edge) = served_with(&keys).await;
    engine.play([status(503), ok("{}")]);
    let mut client = H2Client::connect(&edge).await;
    let right = format!("Bearer {KEY}");
    for wrong in ["Bearer wrong", "Basic x", KEY, ""] {
        let fields = [("authorization", wrong.as_bytes())];
        let answer = ask(&mut client, "POST", CHAT, &fields, BODY).await;
        assert_eq!((answer.status, &*code(&answer)), (401, "invalid_api_key"));
    }
    let twice = [("authorization", right.as_bytes()); 2];
    assert_eq!(
        ask(&mut client, "POST", CHAT, &twice, BODY).await.status,
        401
    );
    assert_eq!(engine.accepted(), 0);

    let answer = ask(&mut client, "POST", CHAT, &twice[..1], BODY).await;
    assert_eq!(answer.status, 200);
    assert_eq!(engine.seen(), 2);
    for delivery in engine.deliveries() {
        let seen = delivery.headers.get("authorization");
        assert_eq!(seen, Some("Bearer sk-of-engines"));
        assert!(!String::from_utf8_lossy(&delivery.head).contains(KEY));
    }
}

#[tokio::test(start_paused = true)]
async fn c38_over_h2_a_refused_stream_leaves_the_others_alone() {
    let settings = format!("api_keys: [{KEY}]\nmax_request_body_bytes: 100000\n");
    let (engine, edge) = served_with(&settings).await;
    let mut client = H2Client::connect(&edge).await;
    let right = format!("Bearer {KEY}");
    let right = [("authorization", right.as_bytes())];
    let large = vec![b'x'; 1 << 20];
    for _ in 0..5 {
        // Neither body is read: what was sent of it is dropped, and its window given back.
        for (path, fields, status) in [
            (CHAT, &[][..], 401),
            ("/nowhere", &right, 404),
            ("/v1/models", &right, 405),
            (CHAT, &right, 413),
        ] {
            let asked = send(&mut client, "POST", path, fields, &large).await;
            let answer = asked.answer().await;
            assert_eq!(answer.status, status, "{path}");
            code(&answer);
        }
        let answer = ask(&mut client, "POST", CHAT, &right, BODY).await;
        assert_eq!((answer.status, answer.text()), (200, "{}"));
    }
    assert!(engine.deliveries().iter().all(|d| d.body == BODY));
    assert_eq!(engine.seen(), 5);
    engine.assert_clean();
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn c35_over_h2_one_id_names_a_request_everywhere() {
    let (engine, edge) = served_with(RETRIES).await;
    let mut client = H2Client::connect(&edge).await;
    let long = "y".repeat(129);
    for (given, kept) in [
        (&[&b"trace-7/a:b"[..]][..], true),
        (&[], false),
        (&[b"a b"], false),
        (&[b"caf\xc3\xa9"], false),
        (&[long.as_bytes()], false),
        (&[b"a", b"a"], false),
    ] {
        engine.play([status(503), ok("{}")]);
        let before = engine.seen();
        let fields: Vec<_> = given.iter().map(|id| ("x-request-id", *id)).collect();
        let answer = ask(&mut client, "POST", CHAT, &fields, BODY).await;
        assert_eq!(answer.status, 200);
        let id = answer.headers["x-request-id"].to_str().unwrap();
        assert_eq!(answer.headers.get_all("x-request-id").iter().count(), 1);
        let was_kept = given.first() == Some(&id.as_bytes());
        assert_eq!((was_kept, id.is_empty()), (kept, false), "{id}");
        let attempts = &engine.deliveries()[before..];
        assert_eq!(attempts.len(), 2);
        for attempt in attempts {
            assert_eq!(attempt.headers.get("x-request-id"), Some(id));
        }
        assert!(edge.access_line(id).await.contains("status=200"));
    }
}

#[tokio::test(start_paused = true)]
async fn c34_over_h2_fields_arrive_as_they_were_sent_and_the_peer_is_added() {
    let (engine, edge) = served_with("").await;
    let mut client = H2Client::connect(&edge).await;
    let fields: [(&str, &[u8]); 8] = [
        ("x-twice", b"one"),
        ("x-twice", b"two"),
        ("x-latin", b"caf\xe9"),
        ("te", b"trailers"),
        ("cookie", b"a=b"),
        ("cookie", b"c=d"),
        ("x-forwarded-for", b"1.2.3.4"),
        ("accept-encoding", b"gzip, br"),
    ];
    assert_eq!(
        ask(&mut client, "POST", CHAT, &fields, BODY).await.status,
        200
    );
    let delivery = engine.deliveries().pop().unwrap();
    let get = |name| delivery.headers.get(name);
    assert_eq!(delivery.headers.all("x-twice"), ["one", "two"]);
    let latin = delivery.headers.iter().find(|(name, _)| *name == "x-latin");
    assert_eq!(latin.unwrap().1, b"caf\xe9");
    assert_eq!(get("accept-encoding"), Some("gzip, br"));
    assert_eq!(get("x-forwarded-for"), Some("1.2.3.4, 127.0.0.1"));
    assert_eq!(get("x-forwarded-host"), Some("edge.test"));
    // Two lines of cookies are two cookies, or one in one line.
    assert_eq!(delivery.headers.all("cookie").join("; "), "a=b; c=d");
    assert!(!delivery.headers.has("te") && !delivery.headers.has("connection"));
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c39_over_h2_large_heads_pass_up_to_the_limit_and_no_further() {
    let (engine, edge) = served_with("").await;
    for (count, size, passes) in [
        (1, 8 * 1024, true),
        (100, 80, true),
        (1, 256 * 1024, false),
        (1024, 256, false),
        (20_000, 100, false),
        (1, 2 * 1024 * 1024, false),
    ] {
        let mut client = H2Client::connect(&edge).await;
        let value = "v".repeat(size);
        let names: Vec<String> = (0..count).map(|i| format!("x-f{i}")).collect();
        let fields: Vec<(&str, &[u8])> = names
            .iter()
            .map(|name| (name.as_str(), value.as_bytes()))
            .collect();
        let before = engine.seen();
        let asked = send(&mut client, "POST", CHAT, &fields, BODY).await;
        let complaint = || format!("{count} fields of {size} bytes are not answered");
        let status = within(PATIENCE, complaint, asked.response).await;
        match status {
            Ok(response) if passes => assert_eq!(response.status(), 200),
            Ok(response) => assert_eq!(response.status(), 431, "{count} of {size}"),
            // The stream was reset, or the connection is over.
            Err(error) => assert!(!passes, "{count} of {size}: {error}"),
        }
        assert_eq!(engine.seen() - before, usize::from(passes));
        let mut other = H2Client::connect(&edge).await;
        assert_eq!(other.chat().await.answer().await.status, 200);
    }
    edge.wait_until_idle().await;
}

// Pingora times the reads of a body, on the real clock.
#[tokio::test]
async fn c39_over_h2_an_upload_that_stops_is_given_up() {
    let (engine, edge) = served_with("body_timeout_ms: 150\n").await;
    let mut client = H2Client::connect(&edge).await;
    for length in [Some(1000), None] {
        let mut asked = client.begin(CHAT, length, false).await;
        asked
            .body
            .send_data(Bytes::from_static(b"{\"mod"), false)
            .unwrap();
        let begun = std::time::Instant::now();
        let answer = asked.answer().await;
        assert!(begun.elapsed() >= ms(140), "{:?}", begun.elapsed());
        assert_eq!((answer.status, &*code(&answer)), (408, "request_timeout"));
        // Only the stream is over.
        assert_eq!(client.chat().await.answer().await.status, 200);
    }
    assert_eq!(engine.seen(), 2);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("own_error"), 2.0);
}

// Requests that no client library would send, frame by frame

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const GOAWAY: u8 = 7;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as literals, in the order given.
pub fn fields(fields: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        assert!(name.len() < 127 && value.len() < 127);
        block.push(0);
        block.push(name.len() as u8);
        block.extend(*name);
        block.push(value.len() as u8);
        block.extend(*value);
    }
    block
}

/// How the first stream of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Answered200,
    AnsweredOtherwise,
    Refused,
}

async fn provoke(edge: &TestEdge, frames: &[Vec<u8>]) -> Ended {
    let mut client = Client::connect(edge.addr()).await;
    let mut wire = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    wire.extend(frame(SETTINGS, 0, 0, b""));
    wire.extend(frames.concat());
    // What is refused may be so while it is being sent.
    let _ = client.try_send(wire).await;
    let mut received = Vec::new();
    loop {
        while let Some(rest) = received.get(9..) {
            let header: [u8; 9] = received[..9].try_into().unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let Some(payload) = rest.get(..length) else {
                break;
            };
            match header[3] {
                // A status of 200 has a byte of its own.
                HEADERS if payload.first() == Some(&0x88) => return Ended::Answered200,
                HEADERS => return Ended::AnsweredOtherwise,
                RST_STREAM | GOAWAY => return Ended::Refused,
                _ => {}
            }
            received.drain(..9 + length);
        }
        let more = client.read_some().await;
        if more.is_empty() {
            return Ended::Refused;
        }
        received.extend(more);
    }
}

type Field = (&'static [u8], &'static [u8]);

/// The fields of a good request.
const GOOD: [Field; 5] = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"edge.test"),
    (b":path", b"/v1/chat/completions"),
    (b"content-type", b"application/json"),
];

/// A good request with this field given another value.
fn with(name: &'static [u8], value: &'static [u8]) -> Vec<Field> {
    let other = |field: Field| {
        if field.0 == name {
            (name, value)
        } else {
            field
        }
    };
    GOOD.map(other).to_vec()
}

fn without(name: &[u8]) -> Vec<Field> {
    GOOD.into_iter().filter(|field| field.0 != name).collect()
}

fn and(more: &[Field]) -> Vec<Field> {
    [&GOOD[..], more].concat()
}

#[tokio::test(start_paused = true)]
async fn c37_over_h2_malformed_requests_reach_no_engine() {
    let (engine, edge) = served_with("").await;
    let body = frame(DATA, END_STREAM, 1, BODY);
    let request = |block: &[Field]| {
        let head = frame(HEADERS, END_HEADERS, 1, &fields(block));
        [head, body.clone()]
    };
    assert_eq!(provoke(&edge, &request(&GOOD)).await, Ended::Answered200);
    assert_eq!(engine.seen(), 1);
    let mut heads = vec![
        without(b":method"),
        without(b":path"),
        with(b":path", b""),
        with(b":path", b"v1/chat/completions"),
        with(b":path", b"*"),
        with(
            b":path",
            b"/v1/chat/completions HTTP/1.1\r\nX-Injected: 1\r\n\r\n",
        ),
        with(b":path", b"/v1/chat/completions HTTP/1.1"),
        with(b":path", b"/v1/chat/completions\0"),
        with(b":method", b""),
        with(b":method", b"POST /sleep HTTP/1.1\r\nX:"),
        with(b":method", b"CONNECT"),
        with(b":authority", b"edge.test\r\nX-Injected: 1"),
        with(b":authority", b"user@edge.test"),
        with(b":authority", b""),
        without(b":authority"),
        [&GOOD[4..], &GOOD[..4]].concat(),
    ];
    heads.extend(
        [
            (&b":method"[..], &b"POST"[..]),
            (b":path", b"/sleep"),
            (b":authority", b"other.test"),
            (b":unknown", b"x"),
            (b":status", b"200"),
            (b"host", b"other.test"),
            (b"X-Upper", b"x"),
            (b"connection", b"close"),
            (b"connection", b"x-forwarded-for"),
            (b"transfer-encoding", b"chunked"),
            (b"upgrade", b"websocket"),
            (b"te", b"gzip"),
            (b"content-length", b"+27"),
            (b"content-length", b"26"),
            (b"content-length", b"28"),
            (b"content-length", b"27, 27"),
            (b"content-length", b""),
            (b"x-injected", b"a\r\nX-Other: 1"),
            (b"x-injected", b"a\nX-Other: 1"),
            (b"x-injected", b"a\0b"),
            (b"x-injected", b"\x01"),
            (b"x injected", b"1"),
            (b"x-injected: 1\r\nx-other", b"1"),
            (b"x:injected", b"1"),
            (b"", b"1"),
            (b"\xff", b"1"),
        ]
        .map(|field| and(&[field])),
    );
    heads.push(and(&[
        (b"content-length", b"27"),
        (b"content-length", b"26"),
    ]));
    for head in heads {
        let ended = provoke(&edge, &request(&head)).await;
        let shown: Vec<_> = head
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        let seen = engine.deliveries().pop().map(|delivery| delivery.head);
        assert_ne!(ended, Ended::Answered200, "{shown:#?} became {seen:?}");
        assert_eq!(engine.begun(), 1, "{shown:#?} became {seen:?}");
    }
    engine.assert_clean();
    let mut client = H2Client::connect(&edge).await;
    assert_eq!(client.chat().await.answer().await.status, 200);
    edge.wait_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_h2_ends_the_connection_and_no_other() {
    let (engine, edge) = served_with("").await;
    let good = frame(HEADERS, END_HEADERS, 1, &fields(&GOOD));
    let mut huge = frame(DATA, 0, 1, b"");
    huge[..3].copy_from_slice(&[0xff, 0xff, 0xff]);
    for frames in [
        vec![frame(DATA, END_STREAM, 1, BODY)],
        vec![frame(HEADERS, END_HEADERS, 0, &fields(&GOOD))],
        vec![frame(HEADERS, END_HEADERS, 2, &fields(&GOOD))],
        vec![frame(HEADERS, END_HEADERS, 1, &[0xff; 64])],
        vec![
            frame(HEADERS, 0, 1, &fields(&GOOD)),
            frame(DATA, 0, 1, BODY),
        ],
        vec![good.clone(), frame(SETTINGS, 0, 1, b"")],
        vec![good.clone(), frame(SETTINGS, 0, 0, b"12345")],
        vec![good.clone(), huge],
        vec![good.clone(), frame(8, 0, 0, &[0, 0, 0, 0])],
        vec![good, frame(9, END_HEADERS, 1, b"")],
        vec![b"GET / HTTP/1.1\r\nHost: edge.test\r\n\r\n".to_vec()],
    ] {
        let shown = format!("{:?}", frames.concat().escape_ascii().to_string());
        assert_eq!(provoke(&edge, &frames).await, Ended::Refused, "{shown}");
    }
    assert_eq!(engine.begun(), 0);
    let mut client = H2Client::connect(&edge).await;
    assert_eq!(client.chat().await.answer().await.status, 200);
    edge.wait_until_idle().await;
}
