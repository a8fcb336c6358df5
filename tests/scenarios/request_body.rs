//! Request bodies: replayed whole, limited, forwarded as they came: C11, C12, C17, C18, C27.

use crate::support::*;

/// A route that takes any body, beside those that want a model.
const ANY_BODY: &str = "extra_routes: [{method: POST, path: /any, model: any, resend: always}]\n";

/// Chunk sizes with nothing even about them.
const ODD: [usize; 5] = [1, 4097, 7, 65_535, 333];

fn with_any_body(yaml: &str) -> String {
    format!("{yaml}{ANY_BODY}")
}

/// Bytes that tell where in the body they are, so that a shift, a gap or a mix shows.
fn bytes(size: usize) -> Vec<u8> {
    let word = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..size.div_ceil(8)).flat_map(word).take(size).collect()
}

/// A chat completion of exactly this many bytes.
fn prompt(size: usize) -> Vec<u8> {
    let (start, end) = (r#"{"model":"m","prompt":""#, r#""}"#);
    let filler = size - start.len() - end.len();
    // Repeated at no even distance, so that a shift by a buffer shows.
    let block: Vec<u8> = (0..65_521_u32)
        .map(|i| b'a' + (i.wrapping_mul(i) % 23) as u8)
        .collect();
    let mut body = Vec::with_capacity(size + block.len());
    body.extend_from_slice(start.as_bytes());
    while body.len() < start.len() + filler {
        body.extend_from_slice(&block);
    }
    body.truncate(start.len() + filler);
    body.extend_from_slice(end.as_bytes());
    body
}

/// Every request an engine got has this body, framed once and by its length.
#[track_caller]
fn assert_delivered(engine: &ScriptedEngine, body: &[u8], times: usize, case: &str) {
    let deliveries = engine.deliveries();
    assert_eq!(deliveries.len(), times, "{case}");
    for delivery in deliveries {
        let length = Framing::Length(body.len() as u64);
        assert_eq!(delivery.framing, length, "{case}");
        assert_eq!(delivery.body_hash, body_hash(body), "{case}");
    }
    engine.assert_clean();
}

#[derive(Clone, Copy, Debug)]
enum Failing {
    ResetAfterRequest,
    ClosedAfterHeaders,
    Status503,
    Refusing,
}

/// An engine that fails so, and how many whole requests it gets to see.
async fn failing(how: Failing) -> (ScriptedEngine, usize) {
    match how {
        Failing::ResetAfterRequest => (ScriptedEngine::start(rst_at(Point::Request)).await, 1),
        Failing::ClosedAfterHeaders => (ScriptedEngine::start(fin_at(Point::Headers)).await, 0),
        Failing::Status503 => (ScriptedEngine::start(status(503)).await, 1),
        Failing::Refusing => (ScriptedEngine::refusing().await, 0),
    }
}

/// Sends bodies of these sizes to a pair of engines of which the first fails.
async fn replays(how: Failing, sizes: &[usize], slowly: bool) {
    for &size in sizes {
        for chunks in [None, Some(ODD)] {
            let case = format!("{how:?}, {size} bytes, chunks {chunks:?}, slowly {slowly}");
            let (failing, seen) = failing(how).await;
            let healthy = ScriptedEngine::start(ok("good")).await;
            let edge = edge(&with_any_body(RETRIES));
            let edge = edge.engines([&failing, &healthy]).start().await;
            let body = bytes(size);
            let request = post("/any").body(&body);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            let mut client = Client::connect(edge.addr()).await;
            let response = if slowly {
                client.send_slowly(request.to_bytes(), 1024, ms(1)).await;
                client.read_response().await
            } else {
                client.ask(&request).await
            };
            assert_eq!((response.status, response.text()), (200, "good"), "{case}");
            let attempts = response.headers.get("x-vllm-pingora-attempts");
            assert_eq!(attempts, Some("2"), "{case}");
            assert_delivered(&failing, &body, seen, &case);
            assert_delivered(&healthy, &body, 1, &case);
            // The client's connection is still in step.
            assert_eq!(client.ask(&req_n()).await.text(), "good", "{case}");
        }
    }
}

// While a MiB is on its way, a busy machine looks idle at times, and a paused clock would run on to
// the next timeout; so scenarios with large bodies run in real time.

/// Both sides of every size at which a buffer might end.
const SIZES: [usize; 7] = [0, 1, 65_535, 65_536, 65_537, 131_073, 1 << 20];

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_reset() {
    replays(Failing::ResetAfterRequest, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_close_before_they_were_read() {
    replays(Failing::ClosedAfterHeaders, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_replayed_after_a_503() {
    replays(Failing::Status503, &SIZES, false).await;
}

#[tokio::test]
async fn c11_bodies_of_every_size_and_framing_are_sent_after_a_refused_connection() {
    replays(Failing::Refusing, &SIZES, false).await;
}

#[tokio::test(start_paused = true)]
async fn c11_bodies_that_trickle_in_are_replayed_as_well() {
    for how in [
        Failing::ResetAfterRequest,
        Failing::ClosedAfterHeaders,
        Failing::Status503,
        Failing::Refusing,
    ] {
        replays(how, &[1, 65_537, 131_073], true).await;
    }
    replays(Failing::Status503, &[1 << 20], true).await;
}

#[tokio::test]
async fn c11_a_body_of_20_mib_is_the_same_on_every_attempt() {
    let body = prompt(20 << 20);
    for chunks in [None, Some(vec![1_000_003, 17])] {
        let replies = [
            rst_at(Point::Request),
            fin_at(Point::Headers),
            status(503),
            ok("good"),
        ];
        let engine = ScriptedEngine::start(script(replies).forget_bodies()).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let request = post("/v1/chat/completions").body(&body);
        let request = match chunks {
            Some(sizes) => request.chunked(sizes),
            None => request,
        };
        let response = edge.ask(&request).await;
        assert_eq!((response.status, response.text()), (200, "good"));
        assert_eq!(engine.begun(), 4);
        assert_delivered(&engine, &body, 3, "20 MiB");
    }
}

#[tokio::test]
async fn c11_many_large_bodies_at_once_are_not_mixed_up() {
    const CLIENTS: usize = 8;
    let failing = ScriptedEngine::start(status(503)).await;
    let healthy = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&failing, &healthy]).start().await;
    let mut asking = tokio::task::JoinSet::new();
    let mut expected = Vec::new();
    for i in 0..CLIENTS {
        let body = prompt((1 << 20) + i * 4099);
        let request = post("/v1/chat/completions").body(&body);
        let request = if i % 2 == 0 {
            request.chunked(ODD)
        } else {
            request
        };
        expected.push((request.case().to_owned(), body_hash(&body)));
        let addr = edge.addr();
        asking.spawn(async move { Client::connect(addr).await.ask(&request).await });
    }
    for response in asking.join_all().await {
        assert_eq!((response.status, response.text()), (200, "good"));
    }
    let mut delivered: Vec<_> = healthy.deliveries();
    delivered.extend(failing.deliveries());
    for delivery in &delivered {
        let of_its_client = (delivery.case().to_owned(), delivery.body_hash);
        assert!(expected.contains(&of_its_client), "{}", delivery.case());
    }
    assert_eq!(healthy.seen(), CLIENTS);
    healthy.assert_clean();
    failing.assert_clean();
}

// Limits

const LIMIT: usize = 100_000;

async fn limited() -> (ScriptedEngine, TestEdge) {
    let engine = ScriptedEngine::start(ok("good")).await;
    let yaml = format!("max_request_body_bytes: {LIMIT}");
    let edge = edge(&yaml).engines([&engine]).start().await;
    (engine, edge)
}

#[tokio::test(start_paused = true)]
async fn c12_bodies_up_to_the_limit_are_forwarded_intact() {
    for size in [LIMIT - 1, LIMIT] {
        for chunks in [None, Some(ODD)] {
            let (engine, edge) = limited().await;
            let body = prompt(size);
            let request = post("/v1/chat/completions").body(&body);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            assert_eq!(edge.ask(&request).await.text(), "good");
            assert_delivered(&engine, &body, 1, &format!("{size} {chunks:?}"));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c12_larger_ones_get_a_413_that_the_client_can_read() {
    for size in [LIMIT + 1, 10 * LIMIT] {
        for chunks in [None, Some(ODD)] {
            let (engine, edge) = limited().await;
            let id = format!("c12-{size}-{}", chunks.is_some());
            let request = post("/v1/chat/completions").body(prompt(size));
            let request = request.header("X-Request-Id", &id);
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            let mut client = Client::connect(edge.addr()).await;
            // The client writes all it has before it reads.
            let response = client.ask(&request).await;
            assert_eq!(response.status, 413, "{id}");
            assert_eq!(response.json()["error"]["code"], "request_too_large");
            assert_eq!(response.headers.get("connection"), Some("close"), "{id}");
            client.expect_eof().await;
            assert_eq!((engine.begun(), engine.accepted()), (0, 0), "{id}");
            let line = edge.access_line(&id).await;
            assert!(line.contains("status=413 outcome=own_error"), "{line}");
            edge.wait_until_idle().await;
        }
    }
}

/// A length may be written twice, as long as it is one.
fn twice(length: usize, more: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {length}, {length}\r\n{more}\r\n"
    )
}

#[tokio::test(start_paused = true)]
async fn c12_a_length_that_is_written_twice_is_judged_before_the_body_comes() {
    for length in [LIMIT + 1, 100_000_000_000] {
        for more in ["", "Expect: 100-continue\r\n"] {
            let (engine, edge) = limited().await;
            let mut client = Client::connect(edge.addr()).await;
            client.send(twice(length, more)).await;
            let response = client.read_response().await;
            assert_eq!(response.status, 413, "{length} {more}");
            assert_eq!(response.headers.get("connection"), Some("close"));
            client.expect_eof().await;
            assert_eq!((engine.begun(), engine.accepted()), (0, 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn engines_get_a_length_once_and_where_the_client_wrote_it() {
    let (engine, edge) = limited().await;
    let body = prompt(60_000);
    let more = "X-Last: 1\r\n";
    for pieces in [1, 2] {
        let mut client = Client::connect(edge.addr()).await;
        let head = twice(body.len(), more);
        if pieces == 1 {
            client.send([head.as_bytes(), &body].concat()).await;
        } else {
            // So that it does not come whole with its head.
            client.send(head).await;
            client.send(body.get(..100).unwrap()).await;
            tokio::task::yield_now().await;
            client.send(body.get(100..).unwrap()).await;
        }
        let response = client.read_response().await;
        assert_eq!((response.status, response.text()), (200, "good"));
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.body, body);
        let length = body.len().to_string();
        assert_eq!(delivery.headers.all("content-length"), [length.as_str()]);
        // The connection goes on.
        assert_eq!(client.ask(&req_n()).await.text(), "good");
    }
}

#[tokio::test(start_paused = true)]
async fn c12_what_follows_a_length_that_is_too_small_is_nobodys_request() {
    let (engine, edge) = limited().await;
    let (body, surplus) = (prompt(60), "surplus that is not HTTP\r\n\r\n");
    let request = post("/v1/chat/completions")
        .header("Content-Length", "60")
        .body([&body, surplus.as_bytes()].concat());
    let mut client = Client::connect(edge.addr()).await;
    let response = client.ask(&request).await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_delivered(&engine, &body, 1, "lying");
    // At most it is answered for itself, and the connection is over.
    let after = client.read_response().await;
    assert_eq!(after.status, 400);
    client.expect_eof().await;
    assert_eq!(engine.begun(), 1);
    // The engine's connection is still in step.
    assert_eq!(edge.ask(&req_n()).await.text(), "good");
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_leave_to_send_its_body_gets_it() {
    const LEAVE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let engine = ScriptedEngine::start([status(503), ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").body(prompt(70_000));
    let request = request.header("Expect", "100-continue");
    client.send(request.head_bytes()).await;
    assert_eq!(client.read_exactly(LEAVE.len()).await, LEAVE);
    assert_eq!(engine.accepted(), 0);
    client.send(request.framed_body()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.text()), (200, "good"));
    assert_eq!(response.informational, []);
    assert_delivered(&engine, request.body_bytes(), 2, "expect");
    assert!(engine.deliveries().iter().all(|d| !d.headers.has("expect")));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_will_be_refused_is_not_asked_for() {
    let (engine, edge) = limited().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").body(prompt(LIMIT + 1));
    let request = request.header("Expect", "100-continue");
    client.send(request.head_bytes()).await;
    let response = client.read_response().await;
    assert_eq!((response.status, response.informational.len()), (413, 0));
    assert_eq!(engine.accepted(), 0);
}

// Bytes as they came

/// Valid JSON that no serialiser would write again in this form.
fn peculiar(model: &str) -> Vec<u8> {
    let text = format!(
        concat!(
            "\u{feff} {{\t\"tools\" : [ {{\"model\":\"nested\", \"b\":1,\"a\":2 , \"b\":3}} ],\r\n",
            "\"text\":\"\\u00e9 é \\/ \\ud83d\\ude00 \u{1f600}\", \"n\":12345678901234567890, ",
            "\"e\":1e400,\"z\":-0,\"f\":1.10 ,\n  \"model\" : \"{}\" , \"stream\":false }}\n"
        ),
        model
    );
    text.into_bytes()
}

#[tokio::test(start_paused = true)]
async fn c17_a_body_reaches_engines_byte_for_byte_on_every_attempt() {
    for chunks in [None, Some(vec![1, 13])] {
        let engine = ScriptedEngine::start([status(503), rst_at(Point::Request), ok("x")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let body = peculiar("m");
        let request = post("/v1/chat/completions").body(&body);
        let request = match chunks {
            Some(sizes) => request.chunked(sizes),
            None => request,
        };
        assert_eq!(edge.ask(&request).await.status, 200);
        assert_delivered(&engine, &body, 3, "no alias");
        assert_eq!(engine.deliveries()[2].body, body);
    }
}

#[tokio::test(start_paused = true)]
async fn c17_an_alias_changes_the_top_level_model_and_no_other_byte() {
    let long = "m".repeat(300);
    for (alias, model) in [("a", long.as_str()), (long.as_str(), "b"), ("same", "like")] {
        for chunks in [None, Some(vec![1, 13])] {
            let case = format!("{alias} for {model}, chunks {chunks:?}");
            let replies = [status(503), rst_at(Point::Request), ok("x")];
            let engine = ScriptedEngine::start(replies).await;
            let yaml = format!("{RETRIES}aliases: {{{alias}: {model}}}");
            let edge = edge(&yaml).engine(&engine, &[model]).start().await;
            let request = post("/v1/chat/completions").body(peculiar(alias));
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            assert_eq!(edge.ask(&request).await.status, 200, "{case}");
            assert_delivered(&engine, &peculiar(model), 3, &case);
        }
    }
}

#[tokio::test]
async fn c17_a_large_body_behind_an_alias_is_replayed_in_full() {
    let engine = ScriptedEngine::start([rst_at(Point::Request), status(503), ok("x")]).await;
    let yaml = format!("{RETRIES}aliases: {{m: a-longer-name}}");
    let edge = edge(&yaml)
        .engine(&engine, &["a-longer-name"])
        .start()
        .await;
    let body = String::from_utf8(prompt(1 << 20)).unwrap();
    let renamed = body.replacen(r#""m""#, r#""a-longer-name""#, 1);
    let request = post("/v1/chat/completions").body(body).chunked(ODD);
    assert_eq!(edge.ask(&request).await.status, 200);
    assert_delivered(&engine, renamed.as_bytes(), 3, "large");
}

#[tokio::test(start_paused = true)]
async fn c17_of_two_model_keys_the_last_one_is_routed_and_executed() {
    let (a, b) = (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge("aliases: {alias: b}")
        .engine(&a, &["a"])
        .engine(&b, &["b"]);
    let edge = edge.start().await;
    let two = |first: &str, last: &str| {
        let body = format!(r#"{{"model":"{first}","x":1,"model":"{last}"}}"#);
        post("/v1/chat/completions").body(body)
    };
    assert_eq!(edge.ask(&two("b", "a")).await.text(), "a");
    assert_eq!(edge.ask(&two("a", "b")).await.text(), "b");
    assert_eq!(edge.ask(&two("a", "alias")).await.text(), "b");
    assert_eq!(a.deliveries()[0].body, two("b", "a").body_bytes());
    assert_eq!(b.deliveries()[0].body, two("a", "b").body_bytes());
    // Read by either rule, the rewritten body names what was routed by the last key.
    assert_eq!(b.deliveries()[1].json()["model"], "b");
    assert_eq!(edge.ask(&two("a", "unknown")).await.status, 404);
    assert_eq!((a.seen(), b.seen()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn c17_response_bytes_are_not_touched() {
    let body = peculiar("m");
    for reply in [ok(&body), ok(&body).chunked(), ok(&body).until_close()] {
        let engine = ScriptedEngine::start(reply.header("X-Odd", "a,  b")).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.body, body);
        assert!(response.complete);
        assert_eq!(response.headers.get("x-odd"), Some("a,  b"));
    }
}

// Uploads that fail

/// What a client does in the middle of its upload.
enum Leaves {
    Reset,
    Close,
}

async fn leaves_mid_upload(sent: &[u8], chunked: bool, how: Leaves) {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = post("/v1/chat/completions");
    let request = if chunked {
        request.header("Transfer-Encoding", "chunked")
    } else {
        request.header("Content-Length", "1048576")
    };
    let mut client = Client::connect(edge.addr()).await;
    client.send(request.head_bytes()).await;
    client.send(sent).await;
    match how {
        Leaves::Reset => client.reset(),
        Leaves::Close => client.close(),
    }
    edge.wait_for_requests("client_gone", 1).await;
    nothing_is_left_of_it(&engine, edge).await;
}

/// No engine heard of the request, no 5xx is counted, and the router serves on.
async fn nothing_is_left_of_it(engine: &ScriptedEngine, edge: TestEdge) {
    edge.wait_until_idle().await;
    assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..100 {
        assert_eq!(client.ask(&req_n()).await.text(), "good");
    }
    client.close();
    for line in edge.exposition().lines() {
        assert!(!line.contains("status=\"5"), "{line}");
    }
    engine.assert_clean();
    let closed = edge.drain().finished();
    within(PATIENCE, || "a connection is left open".into(), closed).await;
}

#[tokio::test]
async fn c18_a_client_that_resets_its_upload_is_gone_and_nobody_failed() {
    leaves_mid_upload(&[b' '; 10_240], false, Leaves::Reset).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_in_mid_upload_is_gone_and_nobody_failed() {
    leaves_mid_upload(&[b' '; 10_240], false, Leaves::Close).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_inside_a_chunk_size_is_gone_and_nobody_failed() {
    leaves_mid_upload(b"4\r", true, Leaves::Close).await;
}

#[tokio::test]
async fn c18_a_client_that_closes_inside_a_chunk_is_gone_and_nobody_failed() {
    leaves_mid_upload(b"5\r\nab", true, Leaves::Close).await;
}

// Pingora's read timeout runs in real time, whatever tokio's clock says.
#[tokio::test]
async fn c18_an_upload_that_falls_silent_is_answered_408_when_its_time_is_up() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let yaml = format!("{RETRIES}body_timeout_ms: 100");
    let edge = edge(&yaml).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Content-Length", "1048576");
    client.send(request.head_bytes()).await;
    client.send(vec![b' '; 10_240]).await;
    let silent_from = std::time::Instant::now();
    let response = client.read_response().await;
    assert!(
        silent_from.elapsed() > ms(50),
        "{:?}",
        silent_from.elapsed()
    );
    assert_eq!(response.status, 408);
    assert_eq!(response.json()["error"]["code"], "request_timeout");
    client.expect_eof().await;
    client.close();
    nothing_is_left_of_it(&engine, edge).await;
}

#[tokio::test]
async fn c18_malformed_chunks_are_answered_400_and_the_connection_is_closed() {
    for wrong in [
        "zz\r\n",
        "-1\r\n",
        "5\r\nabcdefgh\r\n",
        "ffffffffffffffffff\r\nab",
    ] {
        let engine = ScriptedEngine::start(ok("good")).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
        client.send(request.head_bytes()).await;
        client.send(wrong).await;
        let response = client.read_response().await;
        assert_eq!(response.status, 400, "{wrong:?}");
        assert_eq!(response.json()["error"]["code"], "invalid_request");
        assert_eq!(response.headers.get("connection"), Some("close"));
        client.expect_eof().await;
        client.close();
        nothing_is_left_of_it(&engine, edge).await;
    }
}

#[tokio::test]
async fn c18_a_client_that_goes_on_sending_after_a_malformed_chunk_can_read_the_400() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    client.send(request.head_bytes()).await;
    client.send("zz\r\n").await;
    // A request of its own, were the connection taken to be in step; and far more than one read.
    client.send(req_n().to_bytes()).await;
    client.send(vec![b'x'; 1 << 20]).await;
    let response = client.read_response().await;
    assert_eq!(response.status, 400);
    client.expect_eof().await;
    client.close();
    nothing_is_left_of_it(&engine, edge).await;
}

// Chunks

const CHAT: &str = r#"{"model":"m","messages":[]}"#;

#[tokio::test(start_paused = true)]
async fn c27_trailers_and_extensions_never_become_body() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let (start, end) = CHAT.split_at(10);
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    for wire in [
        format!("a;name=value\r\n{start}\r\n11;x=\"a;b\"\r\n{end}\r\n0;last\r\n\r\n"),
        format!("a\r\n{start}\r\n11\r\n{end}\r\n0\r\nX-Trailer: 1\r\nX-Other: 2\r\n\r\n"),
        format!("000A\r\n{start}\r\n0011\r\n{end}\r\n000\r\n\r\n"),
    ] {
        client.send(request.head_bytes()).await;
        client.send(wire).await;
        assert_eq!(client.read_response().await.text(), "good");
    }
    assert_delivered(&engine, CHAT.as_bytes(), 3, "extensions and trailers");
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn c27_a_terminator_that_comes_by_itself_ends_the_body_once() {
    let engine = ScriptedEngine::start([status(503), ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let request = post("/v1/chat/completions").header("Transfer-Encoding", "chunked");
    for cuts in [0, 1, 2, 3, 4] {
        client.send(request.head_bytes()).await;
        client.send(format!("{:x}\r\n{CHAT}\r\n", CHAT.len())).await;
        tokio::time::sleep(ms(10)).await;
        let (first, second) = "0\r\n\r\n".split_at(cuts);
        client.send(first).await;
        tokio::time::sleep(ms(10)).await;
        client.send(second).await;
        assert_eq!(client.read_response().await.text(), "good");
    }
    assert_delivered(&engine, CHAT.as_bytes(), 6, "split terminator");
}

#[tokio::test(start_paused = true)]
async fn c27_two_hundred_mixed_requests_leave_every_connection_in_step() {
    let replies = vec![
        answer(|request| ok(request.case())),
        answer(|request| ok(request.case()).chunked()),
        status(503),
        answer(|request| ok(request.case())),
        sse(2, ms(5)).header("X-Stream", "1"),
        answer(|request| ok(request.case())).fin_at(Point::Headers),
    ];
    let engine = ScriptedEngine::start(script(replies).cycle()).await;
    let edge = edge(&retries(6)).engines([&engine]).start().await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(Client::connect(edge.addr()).await);
    }
    let mut bodies = std::collections::HashMap::new();
    for i in 0..200 {
        let body = prompt(60 + (i * 7919) % 70_000);
        let request = post("/v1/chat/completions").body(&body);
        let request = match i % 3 {
            0 => request,
            1 => request.chunked(ODD),
            _ => request.chunked([body.len()]),
        };
        bodies.insert(request.case().to_owned(), body_hash(&body));
        let response = clients[i % 4].ask(&request).await;
        assert_eq!(response.status, 200, "request {i}");
        let own = response.text() == request.case();
        let streamed = response.headers.has("x-stream") && response.body == sse_body(2);
        assert!(own || streamed, "request {i}: {:?}", response.text());
    }
    for delivery in engine.deliveries() {
        assert_eq!(bodies[delivery.case()], delivery.body_hash);
    }
    engine.assert_clean();
}
