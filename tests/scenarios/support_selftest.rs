//! The scripted engine and the client, proved against each other with no proxy between them.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::support::*;

async fn client(engine: &ScriptedEngine) -> Client {
    Client::connect(engine.addr()).await
}

/// Asks one engine that plays one reply.
async fn answer_of(reply: Reply) -> Response {
    let engine = ScriptedEngine::start(reply).await;
    let response = client(&engine).await.ask(&req_n()).await;
    engine.assert_clean();
    response
}

// Replies

#[tokio::test]
async fn replies_come_in_script_order_across_connections_and_the_last_repeats() {
    let engine = ScriptedEngine::start([status(503), status(429), ok("yes")]).await;
    let mut first = client(&engine).await;
    assert_eq!(first.ask(&req_n()).await.status, 503);
    assert_eq!(client(&engine).await.ask(&req_n()).await.status, 429);
    assert_eq!(first.ask(&req_n()).await.text(), "yes");
    assert_eq!(first.ask(&req_n()).await.text(), "yes");
    assert_eq!((engine.seen(), engine.accepted()), (4, 2));
    let places: Vec<_> = engine
        .deliveries()
        .iter()
        .map(|d| (d.connection, d.nth))
        .collect();
    assert_eq!(places, [(0, 0), (1, 0), (0, 1), (0, 2)]);
    engine.assert_clean();
}

#[tokio::test]
async fn a_cycled_script_starts_again() {
    let engine = ScriptedEngine::start(script([status(500), ok("")]).cycle()).await;
    let mut client = client(&engine).await;
    for expected in [500, 200, 500, 200] {
        assert_eq!(client.ask(&req_n()).await.status, expected);
    }
}

#[tokio::test]
async fn each_connection_plays_its_own_list() {
    let lists = [vec![ok("a1"), ok("a2")], vec![ok("b1"), ok("b2")]];
    let engine = ScriptedEngine::start(connections(lists)).await;
    let (mut a, mut b, mut c) = (
        client(&engine).await,
        client(&engine).await,
        client(&engine).await,
    );
    assert_eq!(a.ask(&req_n()).await.text(), "a1");
    assert_eq!(b.ask(&req_n()).await.text(), "b1");
    assert_eq!(c.ask(&req_n()).await.text(), "b1");
    assert_eq!(a.ask(&req_n()).await.text(), "a2");
    assert_eq!(b.ask(&req_n()).await.text(), "b2");
}

#[tokio::test]
async fn a_routed_path_leaves_the_script_alone() {
    let script = script([ok("1"), ok("2")]).on("/health", [status(503), ok("")]);
    let engine = ScriptedEngine::start(script).await;
    let mut client = client(&engine).await;
    let probe = Request::new("GET", "/health?verbose");
    assert_eq!(client.ask(&probe).await.status, 503);
    assert_eq!(client.ask(&req_n()).await.text(), "1");
    assert_eq!(client.ask(&probe).await.status, 200);
    assert_eq!(client.ask(&req_n()).await.text(), "2");
    assert_eq!((engine.seen(), engine.begun()), (2, 2));
    assert_eq!(engine.deliveries_to("/health").len(), 2);
}

#[tokio::test]
async fn response_headers_keep_their_order_case_and_duplicates() {
    let reply = status(429)
        .header("Set-Cookie", "a=1")
        .header("retry-after-ms", "6500")
        .header("Set-Cookie", "b=2")
        .body("{}");
    let response = answer_of(reply).await;
    let expected = [
        "Content-Type",
        "Set-Cookie",
        "retry-after-ms",
        "Set-Cookie",
        "Content-Length",
    ];
    assert_eq!(response.headers.names(), expected);
    assert_eq!(response.headers.all("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.reason, "Too Many Requests");
    assert_eq!(
        (response.text(), response.complete, response.cut),
        ("{}", true, None)
    );
}

#[tokio::test]
async fn raw_bytes_are_sent_as_they_are() {
    let wire = b"HTTP/1.1 200 Fine\r\nTransfer-Encoding: chunked\r\n\r\n\
        2;why=not\r\nhi\r\n1\r\n!\r\n0\r\nX-Sum: 3\r\n\r\n";
    let response = answer_of(raw(wire)).await;
    assert_eq!(response.raw, wire);
    assert_eq!(
        (response.text(), response.framing),
        ("hi!", Framing::Chunked)
    );
    assert_eq!(response.chunk_sizes, [2, 1]);
    assert_eq!(response.trailers.get("x-sum"), Some("3"));
    assert!(response.complete);
}

#[tokio::test]
async fn answers_without_a_body_are_read_as_such() {
    let engine = ScriptedEngine::start([status(204), status(304), ok("for GET only")]).await;
    let mut client = client(&engine).await;
    assert_eq!(client.ask(&req_n()).await.framing, Framing::Empty);
    assert_eq!(client.ask(&req_n()).await.framing, Framing::Empty);
    let head = client.ask(&Request::new("HEAD", "/health")).await;
    assert_eq!(
        (head.headers.get("content-length"), head.body_len()),
        (Some("12"), 0)
    );
    assert!(head.complete);
    assert_eq!(client.ask(&req_n()).await.text(), "for GET only");
}

#[tokio::test]
async fn informational_responses_are_kept_apart() {
    let response = answer_of(ok("x").informational(103, "Early Hints")).await;
    assert_eq!(response.informational.len(), 1);
    assert_eq!(response.informational[0].status, 103);
    assert_eq!((response.status, response.text()), (200, "x"));
}

#[tokio::test]
async fn an_expected_continue_is_sent_before_the_body_is_read() {
    let engine = ScriptedEngine::start(ok("done")).await;
    let mut client = client(&engine).await;
    let request = req_n().header("Expect", "100-continue");
    client.send(request.head_bytes()).await;
    engine.wait_for_begun(1).await;
    client.send(request.framed_body()).await;
    let response = client.read_response().await;
    assert_eq!(
        (response.informational[0].status, response.text()),
        (100, "done")
    );
}

#[tokio::test]
async fn an_announced_close_and_a_silent_one_both_end_in_eof() {
    for (reply, announced) in [
        (ok("x").close(), Some("close")),
        (ok("x").then_close(), None),
    ] {
        let engine = ScriptedEngine::start(reply).await;
        let mut client = client(&engine).await;
        let response = client.ask(&req_n()).await;
        assert_eq!(response.headers.get("connection"), announced);
        assert!(response.complete);
        client.expect_eof().await;
    }
}

#[tokio::test]
async fn a_body_until_close_is_complete_after_fin_and_cut_after_rst() {
    let whole = answer_of(ok("all of it").until_close()).await;
    assert_eq!((whole.text(), whole.complete), ("all of it", true));
    assert_eq!(
        (whole.framing, whole.cut),
        (Framing::UntilClose, Some(Close::Fin))
    );
    let cut = answer_of(ok("all of it").until_close().rst_at(Point::BodyEnd)).await;
    assert_eq!((cut.text(), cut.complete), ("all of it", false));
    assert_eq!(cut.cut, Some(Close::Reset));
}

#[tokio::test]
async fn an_answer_can_depend_on_the_request() {
    let engine = ScriptedEngine::start(answer(|d| ok(&d.body).header("X-Was", d.case()))).await;
    let request = req_s();
    let response = client(&engine).await.ask(&request).await;
    assert_eq!(response.body, request.body_bytes());
    assert_eq!(response.headers.get("x-was"), Some(request.case()));
}

// Cuts

#[tokio::test]
async fn before_any_response_byte_fin_is_eof_and_rst_is_a_reset() {
    for point in [Point::Headers, Point::Request] {
        for (reply, close) in [(fin_at(point), Close::Fin), (rst_at(point), Close::Reset)] {
            let engine = ScriptedEngine::start([reply, ok("next")]).await;
            let mut client = client(&engine).await;
            let body = vec![b'x'; 100_000];
            // The reset may come while the body is being sent.
            let _ = client.try_send(req_n().body(body).to_bytes()).await;
            let none = client.try_read_response().await.unwrap_err();
            assert_eq!((none.close, none.partial.len()), (close, 0), "{point:?}");
            let delivered = usize::from(point == Point::Request);
            assert_eq!((engine.seen(), engine.begun()), (delivered, 1), "{point:?}");
            let ended = engine
                .wait_for_connection_end(0)
                .await
                .engine_close
                .unwrap();
            assert_eq!(ended.0, close);
        }
    }
}

#[tokio::test]
async fn a_chunked_stream_can_be_cut_anywhere() {
    let (event, whole) = (event(0).len(), sse_body(3));
    let cases = [
        (Point::ResponseHead, 0),
        (Point::BodyBytes(0), 0),
        (Point::BodyBytes(1), 1),
        (Point::BodyBytes(event + 2), event + 2),
        (Point::Pieces(3), 3 * event),
        (Point::InsideChunk, 3 * event + 7),
        (Point::BodyEnd, whole.len()),
        (Point::BeforeFinalCrlf, whole.len()),
    ];
    for (point, arriving) in cases {
        for (reply, close) in [
            (sse(3, Duration::ZERO).fin_at(point), Close::Fin),
            (sse(3, Duration::ZERO).rst_at(point), Close::Reset),
        ] {
            let response = answer_of(reply).await;
            assert_eq!(response.status, 200);
            assert_eq!(response.body, whole[..arriving], "{point:?}");
            assert_eq!(
                (response.complete, response.cut),
                (false, Some(close)),
                "{point:?}"
            );
        }
    }
    let whole_answer = answer_of(sse(3, Duration::ZERO).fin_at(Point::ResponseEnd)).await;
    assert!(whole_answer.complete);
}

#[tokio::test]
async fn the_end_inside_the_terminator_shows_on_the_wire() {
    let response = answer_of(sse(1, Duration::ZERO).fin_at(Point::BeforeFinalCrlf)).await;
    assert!(response.raw.ends_with(b"[DONE]\n\n\r\n0\r\n"));
    let inside = answer_of(chunks([(ms(0), "abcd")]).fin_at(Point::InsideChunk)).await;
    assert!(inside.raw.ends_with(b"\r\n\r\n4\r\nab"));
}

#[tokio::test]
async fn a_counted_body_can_be_cut() {
    let response = answer_of(ok([b'x'; 1000]).fin_at(Point::BodyBytes(400))).await;
    assert_eq!(response.headers.get("content-length"), Some("1000"));
    assert_eq!((response.body_len(), response.complete), (400, false));
    assert_eq!(response.cut, Some(Close::Fin));
}

#[tokio::test(start_paused = true)]
async fn a_cut_can_wait_at_its_point() {
    let reply = sse(3, ms(50))
        .rst_at(Point::ResponseHead)
        .cut_after(secs(2));
    let engine = ScriptedEngine::start(reply).await;
    let mut client = client(&engine).await;
    let response = client.ask(&req_s()).await;
    assert_eq!(
        (response.complete, response.cut),
        (false, Some(Close::Reset))
    );
    let silence = response.ended_at.unwrap() - response.head_at;
    assert_eq!(silence.as_secs(), 2);
}

// Requests

#[tokio::test]
async fn request_bytes_are_recorded_exactly() {
    let engine = ScriptedEngine::start(ok("")).await;
    let mut client = client(&engine).await;
    let request = req_n().header("X-Twice", "1").header("x-twice", "2");
    client.ask(&request).await;
    let wire = request.to_bytes();
    let [delivery] = engine.deliveries().try_into().unwrap();
    assert_eq!([&delivery.head[..], &delivery.body[..]].concat(), wire);
    assert_eq!(delivery.headers.all("X-TWICE"), ["1", "2"]);
    let expected = [
        "Host",
        "Authorization",
        "X-Case",
        "Content-Type",
        "X-Twice",
        "x-twice",
        "Content-Length",
    ];
    assert_eq!(delivery.headers.names(), expected);
    assert_eq!(delivery.json()["model"], "m");
    assert!(delivery.answered);
    let connection = &engine.connections()[0];
    assert_eq!(connection.received, wire);
    assert!(req_n().case() != req_n().case());
}

#[tokio::test]
async fn large_and_chunked_bodies_arrive_whole() {
    let body: Vec<u8> = (0..1 << 20).map(|i: u32| (i % 251) as u8).collect();
    for forget in [false, true] {
        let mut replies = script(ok(""));
        if forget {
            replies = replies.forget_bodies();
        }
        let engine = ScriptedEngine::start(replies).await;
        let mut client = client(&engine).await;
        client.ask(&post("/a").body(&body)).await;
        client
            .ask(&post("/b").body(&body).chunked([1, 65_537, 7]))
            .await;
        client.ask(&post("/c").chunked([1])).await;
        for (delivery, framing) in engine
            .deliveries()
            .iter()
            .zip([Framing::Length(1 << 20), Framing::Chunked])
        {
            assert_eq!(delivery.framing, framing);
            assert_eq!(
                (delivery.body_len, delivery.body_hash),
                (1 << 20, body_hash(&body))
            );
            assert_eq!(delivery.body == body, !forget);
        }
        assert_eq!(engine.deliveries()[1].chunk_sizes[..4], [1, 65_537, 7, 1]);
        assert_eq!((engine.deliveries()[2].body_len, engine.seen()), (0, 3));
        assert_eq!(engine.connections()[0].received.is_empty(), forget);
        engine.assert_clean();
    }
}

#[tokio::test]
async fn trailers_and_chunk_extensions_are_recorded() {
    let engine = ScriptedEngine::start(ok("")).await;
    let mut client = client(&engine).await;
    let request = post("/").header("Transfer-Encoding", "chunked");
    client.send(request.head_bytes()).await;
    client
        .send_slowly("3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", 1, Duration::ZERO)
        .await;
    client.read_response().await;
    let delivery = &engine.deliveries()[0];
    assert_eq!(
        (delivery.text(), &delivery.chunk_extensions[..]),
        ("abc", &["a=b".to_owned()][..])
    );
    assert_eq!(delivery.trailers.get("x-t"), Some("1"));
    engine.assert_clean();
}

#[tokio::test]
async fn bad_requests_are_refused_and_recorded() {
    let post = "POST / HTTP/1.1\r\nHost: h\r\n";
    let cases = [
        (
            format!("{post}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "ambiguous",
        ),
        (
            format!("{post}Content-Length: 1\r\nContent-Length: 1\r\n\r\n"),
            "ambiguous",
        ),
        (format!("{post}Content-Length: +1\r\n\r\n"), "ambiguous"),
        (
            format!("{post}Transfer-Encoding: chunked, identity\r\n\r\n"),
            "ambiguous",
        ),
        (
            format!("{post}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            "malformed chunk",
        ),
        (
            format!("{post}Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n"),
            "chunk should end",
        ),
        (format!("{post}X: a\r\n b\r\n\r\n"), "folded"),
        (format!("{post}X : a\r\n\r\n"), "no token"),
        (format!("{post}X: a\n\r\n"), "bare LF"),
        (format!("{post}X: a\0\r\n\r\n"), "control character"),
        ("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n".into(), "empty line"),
        ("GET /  HTTP/1.1\r\nHost: h\r\n\r\n".into(), "request line"),
        ("GET / HTTP/1.1\r\n\r\n".into(), "0 Host lines"),
    ];
    for (wire, complaint) in cases {
        let engine = ScriptedEngine::start(ok("")).await;
        let mut client = client(&engine).await;
        client.send(&wire).await;
        assert_eq!(client.read_response().await.status, 400, "{wire:?}");
        assert_eq!(engine.seen(), 0);
        let [error] = engine.protocol_errors().try_into().unwrap();
        assert!(error.contains(complaint), "{wire:?}: {error}");
    }
}

#[tokio::test]
#[should_panic(expected = "was sent bad HTTP")]
async fn a_second_chunk_terminator_is_not_clean() {
    let engine = ScriptedEngine::start(ok("")).await;
    let mut client = client(&engine).await;
    let mut wire = req_n().chunked([10]).to_bytes();
    wire.extend_from_slice(b"0\r\n\r\n");
    client.send(wire).await;
    assert_eq!(client.read_response().await.status, 200);
    assert_eq!(client.read_response().await.status, 400);
    engine.assert_clean();
}

#[tokio::test]
async fn a_request_sent_before_the_answer_is_served_but_not_clean() {
    let engine = ScriptedEngine::start([ok("1"), ok("2")]).await;
    let mut client = client(&engine).await;
    client
        .send([req_n().to_bytes(), req_n().to_bytes()].concat())
        .await;
    assert_eq!(client.read_response().await.text(), "1");
    assert_eq!(client.read_response().await.text(), "2");
    assert!(engine.protocol_errors()[0].contains("before its answer"));
}

#[tokio::test]
async fn a_request_cut_by_the_client_is_no_delivery() {
    for (reset, close) in [(false, Close::Fin), (true, Close::Reset)] {
        let engine = ScriptedEngine::start(ok("")).await;
        let mut client = client(&engine).await;
        client
            .send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
            .await;
        engine.wait_for_begun(1).await;
        if reset {
            client.reset();
        } else {
            client.close();
        }
        assert_eq!(engine.wait_for_peer_close(0).await.0, close);
        assert_eq!(
            (engine.seen(), engine.connections()[0].cut_request),
            (0, true)
        );
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_before_the_body_does_not_wait_for_it() {
    let engine = ScriptedEngine::start([status(413).answer_before_body(), ok("next")]).await;
    let mut client = client(&engine).await;
    let request = req_n();
    client.send(request.head_bytes()).await;
    assert_eq!(client.read_response().await.status, 413);
    assert_eq!((engine.begun(), engine.seen()), (1, 0));
    client.send(request.framed_body()).await;
    assert_eq!(client.ask(&req_n()).await.text(), "next");
    assert_eq!(engine.seen(), 2);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_slowly_read_body_takes_its_time() {
    let reply = ok("").read_body_slowly(100, secs(1));
    let engine = ScriptedEngine::start(reply).await;
    let response = client(&engine).await.ask(&req_n().body([b'x'; 1000])).await;
    assert!(response.waited() >= secs(9), "{:?}", response.waited());
    assert_eq!(engine.deliveries()[0].body_len, 1000);
}

// Time

#[tokio::test(start_paused = true)]
async fn a_paused_clock_measures_delays_exactly() {
    let engine = ScriptedEngine::start(ok("late").delay(secs(130))).await;
    let response = client(&engine).await.ask(&req_n()).await;
    assert_eq!(
        (response.text(), response.waited().as_secs()),
        ("late", 130)
    );
}

#[tokio::test(start_paused = true)]
async fn events_carry_their_time_of_arrival() {
    let engine = ScriptedEngine::start(sse(4, ms(200))).await;
    let mut client = client(&engine).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    assert_eq!(
        response.headers.get("content-type"),
        Some("text/event-stream")
    );
    let first = client.read_events(&mut response, 2).await;
    assert_eq!(
        (first.len(), &*first[1].data, response.complete),
        (2, r#"{"n":1}"#, false)
    );
    client.finish(&mut response).await;
    let events = response.events();
    assert_eq!(events.len(), 5);
    assert!(events[4].is_done() && response.complete);
    assert_eq!(response.body, sse_body(4));
    for pair in events[..4].windows(2) {
        let gap = pair[1].at - pair[0].at;
        assert!((ms(199)..=ms(201)).contains(&gap), "{gap:?}");
    }
}

#[tokio::test]
async fn the_real_clock_works_as_well() {
    let engine = ScriptedEngine::start(sse(2, ms(30))).await;
    let began = Instant::now();
    let events = client(&engine).await.ask(&req_s()).await.events();
    assert!(events[1].at - began >= ms(30));
    assert_eq!(engine.deliveries().len(), 1);
    assert!(engine.deliveries()[0].at >= began);
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_a_flood() {
    const TOTAL: usize = 64 << 20;
    let engine = ScriptedEngine::start(flood(TOTAL)).await;
    let mut client = client(&engine).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    engine.wait_for_deliveries(1).await;
    sleep(ms(50)).await;
    assert!(engine.connections()[0].bytes_sent < TOTAL as u64);
    client.finish(&mut response).await;
    assert!(response.complete);
    assert_eq!(
        (response.body_len(), response.body.len()),
        (TOTAL as u64, 0)
    );
}

// Connections

#[tokio::test]
async fn a_hanging_engine_sees_its_client_leave() {
    for (reset, close) in [(false, Close::Fin), (true, Close::Reset)] {
        let engine = ScriptedEngine::start(hang()).await;
        let mut client = client(&engine).await;
        client.send_request(&req_n()).await;
        assert!(!engine.wait_for_deliveries(1).await[0].answered);
        if reset {
            client.reset();
        } else {
            client.shutdown_write().await;
        }
        let ended = engine.wait_for_connection_end(0).await;
        assert_eq!(ended.peer_close.unwrap().0, close);
        assert!(!ended.cut_request);
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_engine_sees_its_client_leave_at_once() {
    let engine = ScriptedEngine::start(sse(100, secs(10))).await;
    let mut client = client(&engine).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 5).await;
    let left = Instant::now();
    client.close();
    let (close, at) = engine.wait_for_peer_close(0).await;
    assert_eq!(close, Close::Fin);
    assert!(at - left < secs(10), "{:?}", at - left);
    assert!(!engine.deliveries()[0].answered);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_in_time() {
    let engine = ScriptedEngine::start(script(ok("")).idle_close(secs(5))).await;
    let mut client = client(&engine).await;
    let response = client.ask(&req_n()).await;
    sleep(secs(3)).await;
    client.ask(&req_n()).await;
    client.expect_eof().await;
    let (close, at) = engine
        .wait_for_connection_end(0)
        .await
        .engine_close
        .unwrap();
    assert_eq!((close, (at - response.head_at).as_secs()), (Close::Fin, 8));
}

#[tokio::test]
async fn a_stale_connection_resets_on_the_next_byte() {
    let lists = [vec![ok("1").then_rst_on_next_byte()], vec![ok("2")]];
    let engine = ScriptedEngine::start(connections(lists)).await;
    let mut stale = client(&engine).await;
    assert_eq!(stale.ask(&req_n()).await.text(), "1");
    stale.send("P").await;
    stale.expect_reset().await;
    assert_eq!(client(&engine).await.ask(&req_n()).await.text(), "2");
    assert_eq!((engine.seen(), engine.begun()), (2, 2));
}

#[tokio::test]
async fn a_half_closed_connection_takes_a_request_and_never_answers_it() {
    let engine = ScriptedEngine::start([ok("1").then_half_close(), ok("2")]).await;
    let mut stale = client(&engine).await;
    assert_eq!(stale.ask(&req_n()).await.text(), "1");
    engine.wait_for_connection_end(0).await;
    stale.send(req_n().to_bytes()).await;
    let deliveries = engine.wait_for_deliveries(2).await;
    assert_eq!(
        (deliveries[0].answered, deliveries[1].answered),
        (true, false)
    );
    stale.expect_eof().await;
    assert_eq!(client(&engine).await.ask(&req_n()).await.text(), "2");
    assert_eq!(engine.wait_for_answered(2).await.len(), 2);
}

#[tokio::test]
async fn a_refusing_port_refuses_until_it_listens_and_again_once_stopped() {
    let refused = async |engine: &ScriptedEngine| {
        Client::try_connect(engine.addr())
            .await
            .err()
            .map(|e| e.kind())
    };
    let engine = ScriptedEngine::refusing().await;
    assert_eq!(
        engine.url(),
        format!("http://127.0.0.1:{}", engine.addr().port())
    );
    for _ in 0..3 {
        assert_eq!(refused(&engine).await, Some(ErrorKind::ConnectionRefused));
        engine.listen_with(ok("up")).await;
        let mut client = client(&engine).await;
        assert_eq!(client.ask(&req_n()).await.text(), "up");
        engine.stop().await;
        client.expect_eof().await;
    }
    assert_eq!(refused(&engine).await, Some(ErrorKind::ConnectionRefused));
    assert_eq!((engine.seen(), engine.accepted()), (3, 3));
    assert!(
        engine
            .connections()
            .iter()
            .all(|c| c.engine_close.is_some())
    );
}

#[tokio::test]
async fn a_restarted_engine_plays_its_new_script_on_the_same_port() {
    let engine = ScriptedEngine::start(hang()).await;
    let mut hanging = client(&engine).await;
    hanging.send_request(&req_n()).await;
    engine.wait_for_deliveries(1).await;
    engine.restart(ok("again")).await;
    hanging.expect_eof().await;
    assert_eq!(client(&engine).await.ask(&req_n()).await.text(), "again");
    engine.play(ok("third"));
    assert_eq!(client(&engine).await.ask(&req_n()).await.text(), "third");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "waited for 2 deliveries, but has 1 connections, 1 requests begun")]
async fn a_wait_without_end_is_a_panic_that_tells_what_is_missing() {
    let engine = ScriptedEngine::start(ok("")).await;
    client(&engine).await.ask(&req_n()).await;
    engine.set_patience(ms(50));
    engine.wait_for_deliveries(2).await;
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the client waited for more bytes")]
async fn a_client_does_not_wait_for_ever() {
    let engine = ScriptedEngine::start(hang()).await;
    client(&engine).await.patient(ms(50)).ask(&req_n()).await;
}
