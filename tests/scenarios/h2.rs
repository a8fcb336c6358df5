//! HTTP/2 with prior knowledge, on the port that speaks HTTP/1.1 too: C11, C19, C21, C27.

use std::time::Duration;

use ::h2::client::{ResponseFuture, SendRequest};
use ::h2::{Reason, RecvStream, SendStream};
use bytes::Bytes;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::*;

pub const H2C: &str = "h2c: true\n";
const CHAT: &str = "/v1/chat/completions";
const CHAT_BODY: &[u8] = br#"{"model":"m","messages":[],"stream":true}"#;
const ANY_BODY: &str = "extra_routes: [{method: POST, path: /any, model: any, resend: always}]\n";

pub fn h2_and_retries() -> String {
    format!("{H2C}{RETRIES}{ANY_BODY}")
}

/// One connection.
pub struct H2Client {
    pub send: SendRequest<Bytes>,
    /// Ends with the connection.
    driver: JoinHandle<()>,
}

/// A request whose response has not been read.
pub struct Asked {
    pub response: ResponseFuture,
    pub body: SendStream<Bytes>,
}

/// A response, or as much of it as came.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
    /// Why the stream was reset, if it was.
    pub reset: Option<Reason>,
    arrivals: Vec<(Instant, Bytes)>,
}

impl Answer {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl H2Client {
    pub async fn connect(edge: &TestEdge) -> Self {
        let stream = TcpStream::connect(edge.addr()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (send, connection) = ::h2::client::handshake(stream).await.unwrap();
        let driver = tokio::spawn(async move {
            // How it ends is seen by its streams.
            let _ = connection.await;
        });
        Self { send, driver }
    }

    /// Sends a request head; its body is to follow, unless it `ends` here.
    pub async fn begin(&mut self, path: &str, length: Option<usize>, ends: bool) -> Asked {
        let mut request = head(path);
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        self.begin_with(request, ends).await
    }

    async fn begin_with(&mut self, request: http::request::Builder, ends: bool) -> Asked {
        let mut send = ready(&self.send).await;
        let (response, body) = send.send_request(request.body(()).unwrap(), ends).unwrap();
        Asked { response, body }
    }

    /// Sends a request whole; the end comes with the last byte, or in a frame of its own.
    pub async fn send(
        &mut self,
        path: &str,
        body: &[u8],
        declared: bool,
        end_apart: bool,
    ) -> Asked {
        let length = declared.then_some(body.len());
        let bare = body.is_empty() && !end_apart;
        let mut asked = self.begin(path, length, bare).await;
        if !bare {
            let body = Bytes::copy_from_slice(body);
            asked.body.send_data(body, !end_apart).unwrap();
            if end_apart {
                asked.body.send_data(Bytes::new(), true).unwrap();
            }
        }
        asked
    }

    /// The standard request, streaming or not.
    pub async fn chat(&mut self) -> Asked {
        self.send(CHAT, CHAT_BODY, true, false).await
    }

    /// The standard request under this id.
    pub async fn chat_as(&mut self, id: &str) -> Asked {
        let request = head(CHAT).header("x-request-id", id);
        let mut asked = self.begin_with(request, false).await;
        let body = Bytes::from_static(CHAT_BODY);
        asked.body.send_data(body, true).unwrap();
        asked
    }

    /// Closes the connection, as the end of a process does.
    pub fn leave(self) {
        self.driver.abort();
    }
}

fn head(path: &str) -> http::request::Builder {
    http::Request::post(format!("http://edge.test{path}"))
        .version(http::Version::HTTP_2)
        .header("content-type", "application/json")
}

pub async fn ready(send: &SendRequest<Bytes>) -> SendRequest<Bytes> {
    let complaint = || "the connection takes no stream".to_owned();
    within(PATIENCE, complaint, send.clone().ready())
        .await
        .unwrap()
}

impl Asked {
    pub async fn head(self) -> (http::response::Parts, RecvStream, SendStream<Bytes>) {
        let complaint = || "no response head came".to_owned();
        let response = within(PATIENCE, complaint, self.response).await;
        let (head, stream) = response.unwrap().into_parts();
        (head, stream, self.body)
    }

    pub async fn answer(self) -> Answer {
        let (head, mut stream, _body) = self.head().await;
        let mut answer = Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: vec![],
            reset: None,
            arrivals: vec![],
        };
        while let Some(piece) = next(&mut stream).await {
            match piece {
                Ok(piece) => {
                    answer.body.extend_from_slice(&piece);
                    answer.arrivals.push((Instant::now(), piece));
                }
                Err(error) => {
                    assert!(error.is_reset(), "{error}");
                    answer.reset = error.reason();
                    break;
                }
            }
        }
        answer
    }
}

pub async fn next(stream: &mut RecvStream) -> Option<Result<Bytes, ::h2::Error>> {
    let complaint = || "the client waited for more of the stream".to_owned();
    let piece = within(PATIENCE, complaint, stream.data()).await;
    if let Some(Ok(piece)) = &piece {
        stream.flow_control().release_capacity(piece.len()).unwrap();
    }
    piece
}

fn bytes(size: usize) -> Vec<u8> {
    let word = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..size.div_ceil(8)).flat_map(word).take(size).collect()
}

// Answers

#[tokio::test(start_paused = true)]
async fn h2_answers_are_those_of_http_1() {
    let engine =
        ScriptedEngine::start([ok("{}").header("X-Odd", "a"), status(404).body("no")]).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let answer = client.chat().await.answer().await;
    assert_eq!(
        (answer.status, answer.text(), answer.reset),
        (200, "{}", None)
    );
    assert_eq!(answer.headers["x-odd"], "a");
    assert_eq!(answer.headers["content-length"], "2");
    assert_eq!(answer.headers["x-vllm-pingora-attempts"], "1");
    assert!(!answer.headers.contains_key("connection"));
    let answer = client.chat().await.answer().await;
    assert_eq!((answer.status, answer.text()), (404, "no"));
    let unknown = client.send("/nowhere", b"{}", true, false).await;
    assert_eq!(unknown.answer().await.status, 404);
    let delivery = &engine.deliveries()[0];
    assert_eq!(delivery.version, "HTTP/1.1");
    assert_eq!(
        delivery.headers.get("host"),
        Some(&*engine.addr().to_string())
    );
    assert_eq!(delivery.headers.get("x-forwarded-host"), Some("edge.test"));
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn h2_streams_pass_each_event_at_once() {
    for yaml in [H2C.to_owned(), h2_and_retries()] {
        let engine = ScriptedEngine::start(sse(10, ms(200))).await;
        let edge = edge(&yaml).engines([&engine]).start().await;
        let mut client = H2Client::connect(&edge).await;
        let answer = client.chat().await.answer().await;
        assert_eq!((answer.status, answer.reset), (200, None));
        assert_eq!(answer.body, sse_body(10));
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        assert!(!answer.headers.contains_key("transfer-encoding"));
        let sent_from = engine.deliveries()[0].at;
        for (i, (at, piece)) in answer.arrivals[..9].iter().enumerate() {
            assert_eq!(
                (*at - sent_from, &piece[..]),
                (ms(200) * i as u32, &event(i)[..])
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c11_h2_bodies_of_every_size_are_the_same_on_every_attempt() {
    for size in [0, 1, 65_535, 65_537, 70_000, 1 << 20] {
        for declared in [true, false] {
            for end_apart in [false, true] {
                let case = format!("{size} bytes, declared {declared}, end apart {end_apart}");
                let replies = [
                    rst_at(Point::Request),
                    fin_at(Point::Headers),
                    status(503),
                    ok("good"),
                ];
                let engine = ScriptedEngine::start(replies).await;
                let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
                let mut client = H2Client::connect(&edge).await;
                let body = bytes(size);
                let asked = client.send("/any", &body, declared, end_apart).await;
                let answer = asked.answer().await;
                assert_eq!((answer.status, answer.text()), (200, "good"), "{case}");
                assert_eq!(answer.headers["x-vllm-pingora-attempts"], "4", "{case}");
                let deliveries = engine.deliveries();
                assert_eq!((engine.begun(), deliveries.len()), (4, 3), "{case}");
                for delivery in deliveries {
                    assert_eq!(delivery.framing, Framing::Length(size as u64), "{case}");
                    assert!(delivery.body == body, "{case}: another body");
                }
                engine.assert_clean();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c12_h2_bodies_above_the_limit_get_a_413() {
    for declared in [true, false] {
        let engine = ScriptedEngine::start(ok("good")).await;
        let yaml = format!("{}max_request_body_bytes: 100000", h2_and_retries());
        let edge = edge(&yaml).engines([&engine]).start().await;
        let mut client = H2Client::connect(&edge).await;
        let within_limit = client.send("/any", &bytes(100_000), declared, false).await;
        assert_eq!(within_limit.answer().await.status, 200);
        let above = client.send("/any", &bytes(100_001), declared, false).await;
        let answer = above.answer().await;
        assert_eq!(answer.status, 413, "declared {declared}");
        assert!(answer.text().contains("request_too_large"));
        // Only the stream is over.
        assert_eq!(client.chat().await.answer().await.text(), "good");
        assert_eq!(engine.seen(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn c27_h2_bodies_that_end_in_an_empty_frame_leave_engine_connections_in_step() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut h2 = H2Client::connect(&edge).await;
    let mut h1 = Client::connect(edge.addr()).await;
    for i in 0..40 {
        let body = format!(r#"{{"model":"m","n":{i}}}"#);
        let path = "/v1/chat/completions";
        let asked = h2.send(path, body.as_bytes(), i % 3 == 0, i % 2 == 0).await;
        assert_eq!(asked.answer().await.text(), "good");
        assert_eq!(engine.deliveries().last().unwrap().text(), body);
        assert_eq!(h1.ask(&req_n()).await.text(), "good");
    }
    assert_eq!(engine.accepted(), 1);
    engine.assert_clean();
}

// Failures

#[tokio::test(start_paused = true)]
async fn the_head_is_held_for_h2_too_so_that_a_dead_engine_is_replaced() {
    let dead =
        ScriptedEngine::start(sse(3, ms(10)).fin_at(Point::ResponseHead).cut_after(ms(50))).await;
    let healthy = ScriptedEngine::start(sse(2, ms(10)).header("X-Engine", "healthy")).await;
    let edge = edge(&h2_and_retries())
        .engines([&dead, &healthy])
        .start()
        .await;
    let mut client = H2Client::connect(&edge).await;
    let answer = client.chat().await.answer().await;
    assert_eq!((answer.status, answer.reset), (200, None));
    assert_eq!(answer.body, sse_body(2));
    assert_eq!(answer.headers["x-engine"], "healthy");
    assert_eq!((dead.seen(), healthy.seen()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn with_retries_off_h2_heads_do_not_wait() {
    let late = chunks([(secs(5), event(0))]).header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(late).await;
    for (yaml, waited) in [
        (H2C.to_owned(), Duration::ZERO),
        (h2_and_retries(), secs(5)),
    ] {
        let edge = edge(&yaml).engines([&engine]).start().await;
        let mut client = H2Client::connect(&edge).await;
        let asked = client.chat().await;
        let asked_at = Instant::now();
        let (head, ..) = asked.head().await;
        assert_eq!((head.status.as_u16(), asked_at.elapsed()), (200, waited));
    }
}

#[tokio::test(start_paused = true)]
async fn c19_a_stream_cut_in_the_middle_is_reset_and_does_not_look_complete() {
    for yaml in [H2C.to_owned(), h2_and_retries()] {
        for cut in [
            sse(3, ms(10)).fin_at(Point::Pieces(3)),
            sse(3, ms(10)).rst_at(Point::Pieces(3)),
            sse(3, ms(10)).fin_at(Point::InsideChunk),
            sse(3, ms(10)).fin_at(Point::BeforeFinalCrlf),
            ok(sse_body(9)).fin_at(Point::BodyBytes(40)),
        ] {
            let cutting = ScriptedEngine::start(cut.cut_after(ms(10))).await;
            let other = ScriptedEngine::start(ok("another answer")).await;
            let edge = edge(&yaml).engines([&cutting, &other]).start().await;
            let mut client = H2Client::connect(&edge).await;
            let answer = client.chat().await.answer().await;
            assert_eq!(answer.status, 200);
            assert!(answer.reset.is_some(), "it ended as if complete");
            let whole = [sse_body(3), sse_body(9)];
            assert!(whole.iter().any(|whole| whole.starts_with(&answer.body)));
            assert!(answer.body.len() >= 40.min(sse_body(3).len() - 14));
            edge.wait_for_requests("cut", 1).await;
            assert_eq!(other.seen(), 0);
            // The connection is still good.
            assert_eq!(client.chat().await.answer().await.text(), "another answer");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c19_what_came_with_a_cut_leaves_before_the_reset() {
    let whole = sse_body(9);
    let part = &whole[..40];
    for yaml in [H2C.to_owned(), h2_and_retries()] {
        let cutting = ok(sse_body(9)).fin_at(Point::BodyBytes(part.len()));
        let cutting = ScriptedEngine::start(script(cutting).cycle()).await;
        let edge = edge(&format!("{yaml}{NOBODY_OUT}"));
        let edge = edge.engines([&cutting]).start().await;
        let mut client = H2Client::connect(&edge).await;
        for _ in 0..20 {
            let answer = client.chat().await.answer().await;
            assert_eq!((answer.status, &answer.body[..]), (200, part));
            assert!(answer.reset.is_some(), "it ended as if complete");
        }
    }
}

// Clients that leave

/// Connection `i` of the engine ends within a second of `left`, which is nobody's failure.
async fn is_let_go(edge: &TestEdge, engine: &ScriptedEngine, i: usize, left: Instant) {
    let (_, at) = engine.wait_for_peer_close(i).await;
    assert!(at - left < secs(1), "noticed after {:?}", at - left);
    edge.wait_for_requests("client_gone", 1).await;
    edge.wait_until_idle().await;
    for outcome in ["answered", "exhausted", "cut", "own_error"] {
        assert_eq!(edge.requests(outcome), 0.0, "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_stream_reset_while_it_waits_ends_the_engines_work() {
    for yaml in [H2C.to_owned(), h2_and_retries()] {
        let busy = ScriptedEngine::start(ok("late").delay(secs(10))).await;
        let edge = edge(&yaml).engines([&busy]).start().await;
        let mut client = H2Client::connect(&edge).await;
        let mut asked = client.chat().await;
        busy.wait_for_deliveries(1).await;
        tokio::time::sleep(secs(1)).await;
        asked.body.send_reset(Reason::CANCEL);
        let left = Instant::now();
        is_let_go(&edge, &busy, 0, left).await;
        busy.play(ok("next"));
        assert_eq!(client.chat().await.answer().await.text(), "next");
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_stream_reset_in_the_middle_ends_the_engines_work() {
    for yaml in [H2C.to_owned(), h2_and_retries()] {
        for pauses in [ms(100), secs(600)] {
            let pieces = (0..50).map(|i| (if i == 0 { ms(0) } else { pauses }, event(i)));
            let reply = chunks(pieces).header("Content-Type", "text/event-stream");
            let busy = ScriptedEngine::start(reply).await;
            let edge = edge(&yaml).engines([&busy]).start().await;
            let mut client = H2Client::connect(&edge).await;
            let (_, mut stream, mut body) = client.chat().await.head().await;
            assert_eq!(next(&mut stream).await.unwrap().unwrap(), event(0));
            body.send_reset(Reason::CANCEL);
            let left = Instant::now();
            is_let_go(&edge, &busy, 0, left).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_stream_reset_during_a_backoff_is_not_asked_for_again() {
    let engine = ScriptedEngine::start([status(503), ok("late")]).await;
    let yaml = format!("{H2C}enable_retries: true\ninitial_backoff_ms: 20000\njitter_factor: 0");
    let edge = edge(&yaml).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let mut asked = client.chat().await;
    engine.wait_for_answered(1).await;
    tokio::time::sleep(secs(1)).await;
    asked.body.send_reset(Reason::CANCEL);
    let left = Instant::now();
    edge.wait_for_requests("client_gone", 1).await;
    assert!(
        left.elapsed() < secs(1),
        "noticed after {:?}",
        left.elapsed()
    );
    edge.wait_until_idle().await;
    tokio::time::sleep(secs(60)).await;
    assert_eq!((engine.begun(), engine.accepted()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn c21_a_connection_that_ends_takes_all_its_streams_along() {
    let busy = ScriptedEngine::start(sse(100, ms(100))).await;
    let edge = edge(&h2_and_retries()).engines([&busy]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let _asked = [client.chat().await, client.chat().await];
    busy.wait_for_deliveries(2).await;
    tokio::time::sleep(ms(350)).await;
    client.driver.abort();
    let left = Instant::now();
    for i in [0, 1] {
        let (_, at) = busy.wait_for_peer_close(i).await;
        assert!(at - left < secs(1), "noticed after {:?}", at - left);
    }
    edge.wait_for_requests("client_gone", 2).await;
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("cut"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn c18_an_h2_upload_that_is_reset_reaches_no_engine() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    for length in [Some(1 << 20), None] {
        let mut asked = client.begin("/any", length, false).await;
        asked.body.send_data(bytes(10_240).into(), false).unwrap();
        tokio::time::sleep(ms(100)).await;
        asked.body.send_reset(Reason::CANCEL);
    }
    edge.wait_for_requests("client_gone", 2).await;
    edge.wait_until_idle().await;
    assert_eq!(engine.accepted(), 0);
    assert_eq!(client.chat().await.answer().await.text(), "good");
}

// Streams beside each other

#[tokio::test(start_paused = true)]
async fn streams_of_one_connection_do_not_disturb_each_other() {
    let script = script([
        sse(20, ms(100)),
        sse(5, ms(100)).fin_at(Point::Pieces(2)),
        status(503),
        ok("late").delay(secs(1)),
    ]);
    let engine = ScriptedEngine::start(script).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let steady = client.chat().await;
    engine.wait_for_begun(1).await;
    let cut = client.chat().await;
    engine.wait_for_begun(2).await;
    let retried = client.chat().await;
    let (steady, cut, retried) = tokio::join!(steady.answer(), cut.answer(), retried.answer());
    assert_eq!((steady.body, steady.reset), (sse_body(20), None));
    assert_eq!(cut.body, [event(0), event(1)].concat());
    assert!(cut.reset.is_some());
    assert_eq!((retried.text(), retried.reset), ("late", None));
    assert_eq!(retried.headers["x-vllm-pingora-attempts"], "2");
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c24_a_stream_that_is_not_read_holds_its_engine_back_and_no_other_stream() {
    const TOTAL: usize = 32 << 20;
    let engine = ScriptedEngine::start([flood(TOTAL), ok("quick")]).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = H2Client::connect(&edge).await;
    let (_, mut stream, _body) = client.chat().await.head().await;
    tokio::time::sleep(secs(15)).await;
    let sent = engine.connections()[0].bytes_sent;
    assert!(
        sent < 16 << 20,
        "the engine could send {sent} bytes to nobody"
    );
    // The window of the connection is the streams' in common; a stream's own is as large here,
    // so an empty answer is what fits beside it.
    let mut second = H2Client::connect(&edge).await;
    assert_eq!(second.chat().await.answer().await.text(), "quick");
    let mut received = 0;
    while let Some(piece) = next(&mut stream).await {
        received += piece.unwrap().len();
    }
    assert_eq!(received, TOTAL);
}

// One port for both

#[tokio::test(start_paused = true)]
async fn an_http_1_client_is_served_on_the_same_port() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..3 {
        assert_eq!(client.ask(&req_n()).await.text(), "good");
    }
    // Byte by byte, so that no read tells at once which protocol it is.
    let mut slow = Client::connect(edge.addr()).await;
    slow.send_slowly(req_n().to_bytes(), 1, ms(1)).await;
    assert_eq!(slow.read_response().await.text(), "good");
    // `P` and `PR` could still become the preface.
    let mut put = Client::connect(edge.addr()).await;
    let request = Request::new("PRI", "/v1/chat/completions").to_bytes();
    put.send_slowly(request, 1, ms(1)).await;
    assert_eq!(put.read_response().await.status, 405);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_http_1_0_request_is_answered_at_once() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(&h2_and_retries()).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let asked_at = Instant::now();
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let response = client.read_response().await;
    assert_eq!((response.status, asked_at.elapsed()), (404, Duration::ZERO));
    client.expect_eof().await;
}

#[tokio::test(start_paused = true)]
async fn without_h2c_the_preface_is_a_bad_request() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client
        .send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await;
    let response = client.read_response().await;
    assert_eq!(response.status, 400);
    assert_eq!(response.headers.get("connection"), Some("close"));
    client.expect_eof().await;
}
