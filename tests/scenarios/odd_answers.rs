//! Answers of engines that are not quite HTTP, or come at an odd time. Each is read in one way or
//! refused, and none of its bytes ends up in another answer: C07, C10, C37, C39.

use crate::support::*;

/// An answer that nobody asked for.
const HIDDEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nX-Hidden: 1\r\n\r\nhidden";

const CHUNKED: &str = "Transfer-Encoding: chunked\r\n";

/// A 200 with these field lines, then `body`.
fn head(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

/// Asks for `odd`, with retries off and on, and then for answers of good form. If `odd` is taken
/// for a complete answer, then with this body.
async fn is_kept_to_itself(odd: Reply, reading: &str, case: &str) {
    for settings in ["", RETRIES] {
        let engine = ScriptedEngine::start([odd.clone(), ok("clean")]).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&req_n()).await;
        match client.try_read_response().await {
            Ok(response) if response.status == 502 => {
                assert_eq!(response.json()["error"]["code"], "engine_unreachable");
                assert_eq!(settings, "", "{case}: it was not asked again");
            }
            Ok(response) if response.complete => {
                let text = String::from_utf8_lossy(&response.body).into_owned();
                let again = !settings.is_empty() && text == "clean";
                assert!(again || text == reading, "{case}: {text:?}");
                assert!(!response.headers.has("x-hidden"), "{case}");
            }
            // Its head was good, and has gone out.
            Ok(response) => assert_eq!(settings, "", "{case}: cut: {response:?}"),
            Err(none) => panic!("{case}: {none:?}"),
        }
        assert_eq!(client.surplus(), b"", "{case}");
        // What comes while a request waits for its answer would be that, for all anyone can tell.
        tokio::time::sleep(ms(20)).await;
        for _ in 0..2 {
            let response = edge.ask(&req_n()).await;
            assert_eq!((response.status, response.text()), (200, "clean"), "{case}");
            assert_eq!(response.headers.get("content-length"), Some("5"), "{case}");
        }
        edge.wait_until_idle().await;
        let counted = edge.metric("vllm_pingora_requests_total", &[]);
        assert_eq!(counted, 3.0, "{case}");
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn c37_what_an_engine_sends_behind_an_answer_is_nobodys() {
    let complete = [
        ("length", head("Content-Length: 2\r\n", "{}"), "{}"),
        ("no body", head("Content-Length: 0\r\n", ""), ""),
        ("chunks", head(CHUNKED, "2\r\n{}\r\n0\r\n\r\n"), "{}"),
        ("204", "HTTP/1.1 204 No Content\r\n\r\n".to_owned(), ""),
        ("304", "HTTP/1.1 304 Not Modified\r\n\r\n".to_owned(), ""),
    ];
    for (case, answer, reading) in complete {
        for surplus in [HIDDEN, "x", "\r\n\r\n"] {
            let at_once = raw([&answer, surplus].concat());
            let later = raw_pieces([(ms(0), answer.as_str()), (ms(10), surplus)]);
            for (when, odd) in [("at once", at_once), ("later", later)] {
                let case = format!("{case}, {surplus:?} {when}");
                is_kept_to_itself(odd, reading, &case).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c37_surplus_is_not_the_answer_to_a_request_that_follows_at_once() {
    let odd = raw([&head("Content-Length: 2\r\n", "{}"), HIDDEN].concat());
    let engine = ScriptedEngine::start([odd, ok("clean")]).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..2 {
        client.send_request(&req_n()).await;
    }
    assert_eq!(client.read_response().await.text(), "{}");
    assert_eq!(client.read_response().await.text(), "clean");
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn c37_surplus_that_comes_while_a_connection_is_idle_is_not_the_next_answer() {
    let late = raw_pieces([
        (ms(0), head("Content-Length: 2\r\n", "{}")),
        (ms(500), HIDDEN.into()),
    ]);
    let engine = ScriptedEngine::start([late, ok("clean")]).await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "{}");
    tokio::time::sleep(secs(1)).await;
    assert_eq!(edge.ask(&req_n()).await.text(), "clean");
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn c37_an_engine_that_frames_its_body_ambiguously_is_read_in_one_way() {
    let chunks = "2\r\n{}\r\n0\r\n\r\n";
    for fields in [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \x0bchunked\r\n",
    ] {
        // Read to the end of the connection, the chunks are the body.
        for (odd, reading) in [
            (raw(head(fields, chunks)).then_close(), "{}"),
            (
                raw([&head(fields, chunks), HIDDEN].concat()).then_close(),
                "{}",
            ),
        ] {
            is_read_in_some_way(odd, &[reading, chunks], fields).await;
        }
    }
    for length in [
        "2x",
        "",
        "+2",
        "-2",
        "2, 3",
        "2, 2",
        "2.0",
        "0x2",
        "2 2",
        "18446744073709551616",
        "9223372036854775808",
        "'2'",
        "\x0b2",
    ] {
        let fields = format!("Content-Length: {length}\r\n");
        let odd = raw(head(&fields, "{}")).then_close();
        is_read_in_some_way(odd, &["{}"], &fields).await;
    }
}

/// Like [`is_kept_to_itself`], for answers with several honest readings.
async fn is_read_in_some_way(odd: Reply, readings: &[&str], case: &str) {
    let engine = ScriptedEngine::start([odd, ok("clean")]).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    // The client takes no answer with two framings.
    let response = client.ask(&req_n()).await;
    if response.status == 502 {
        assert_eq!(response.json()["error"]["code"], "engine_unreachable");
    } else if response.complete {
        let text = String::from_utf8_lossy(&response.body).into_owned();
        assert!(readings.contains(&text.as_str()), "{case:?}: {text:?}");
    }
    assert_eq!(client.surplus(), b"", "{case:?}");
    assert_eq!(edge.ask(&req_n()).await.text(), "clean", "{case:?}");
    edge.wait_until_idle().await;
    let counted = edge.metric("vllm_pingora_requests_total", &[]);
    assert_eq!(counted, 2.0, "{case:?}");
}

#[tokio::test(start_paused = true)]
async fn c39_an_engines_odd_head_is_refused_or_made_a_good_one() {
    for fields in [
        "X-Fold: a\r\n b\r\n",
        "X-Fold: a\r\n\tContent-Length: 9\r\n",
        "X-Fold:\r\n b\r\n",
        " X-First: a\r\n",
        "X Y: a\r\n",
        "X\t: a\r\n",
        "X : a\r\n",
        "(x): a\r\n",
        ": a\r\n",
        "no colon\r\n",
        "X: a\rb\r\n",
        "X: a\nb: c\n",
        "X: \x01\r\n",
        "X: \x7f\r\n",
        "X\x01: a\r\n",
        "\u{e9}: a\r\n",
        "X-\u{20ac}: a\r\n",
        "X: \u{20ac}\r\n",
    ] {
        let fields = format!("Content-Length: 2\r\n{fields}");
        let odd = raw(head(&fields, "{}"));
        is_kept_to_itself(odd, "{}", &format!("{fields:?}")).await;
    }
    for name in [&b"X\x80"[..], b"\xff\xfe", b"X\0", b"\0"] {
        let line = [name, b": a\r\n"].concat();
        let odd = [
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
            &line[..],
            b"\r\n{}",
        ]
        .concat();
        is_kept_to_itself(raw(odd), "{}", &format!("{name:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn c39_what_is_hardly_an_answer_at_all_is_no_answer() {
    for (answer, reading) in [
        ("<html>HTTP/0.9</html>\n", None),
        ("hello", None),
        ("\n", None),
        ("\r\n", None),
        ("HTTP/1.1 200 OK", None),
        ("HTTP/1.1 200 OK\r\n", None),
        ("HTTP/1.1 200 OK\r\n\r", None),
        ("HTTP/1.1\r\n\r\n", None),
        ("HTTP/1.1 \r\n\r\n", None),
        ("HTTP/1.1 2 OK\r\n\r\n", None),
        ("HTTP/1.1 0200 OK\r\n\r\n", None),
        ("HTTP/1.1 -20 OK\r\n\r\n", None),
        ("HTTP/2 200\r\n\r\n", None),
        ("HTTP/1.1 200 OK HTTP/1.1 200 OK\r\n", None),
        // A head of good form, whose body ends with the connection.
        ("HTTP/1.1 200 OK\r\n\r\n", Some("")),
        ("HTTP/1.1 200\r\n\r\n{}", Some("{}")),
        ("HTTP/1.1 200 \r\n\r\n{}", Some("{}")),
        ("HTTP/1.0 200 OK\r\n\r\n{}", Some("{}")),
    ] {
        let odd = raw(answer).then_close();
        let never = "no body is right";
        is_kept_to_itself(odd, reading.unwrap_or(never), answer).await;
    }
}

// Interim responses without end

fn hints_for_ever(gap: std::time::Duration) -> Reply {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    raw_pieces((0..20_000).map(|_| (gap, hint)))
}

#[tokio::test(start_paused = true)]
async fn interim_responses_without_end_do_not_stop_the_first_byte_clock() {
    for (settings, attempts) in [("", 1), (RETRIES, 2)] {
        let endless = ScriptedEngine::start(hints_for_ever(ms(100))).await;
        let sound = ScriptedEngine::start(ok("sound")).await;
        let settings = format!("{settings}first_byte_timeout_ms: 2000\n");
        let edge = edge(&settings).engines([&endless, &sound]).start().await;
        let response = edge.ask(&req_n()).await;
        let expected = if attempts == 1 { 504 } else { 200 };
        assert_eq!(response.status, expected);
        assert!((secs(2)..ms(2200)).contains(&response.waited()));
        let hints = &response.informational;
        assert!(hints.iter().all(|hint| hint.status == 103), "{hints:?}");
        endless.wait_for_peer_close(0).await;
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended("first_byte_timeout"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_ends_interim_responses_without_end() {
    for settings in ["", RETRIES] {
        for gap in [ms(0), ms(50)] {
            let endless = ScriptedEngine::start(hints_for_ever(gap)).await;
            let edge = edge(settings).engines([&endless]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            client.send_request(&req_n()).await;
            endless.wait_for_deliveries(1).await;
            tokio::time::sleep(ms(500)).await;
            client.close();
            edge.wait_for_requests("client_gone", 1).await;
            endless.wait_for_peer_close(0).await;
            edge.wait_until_idle().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interim_response_sent_on_does_not_stand_in_the_way_of_the_502() {
    let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    for reply in [raw(hint).then_close(), raw(hint).rst_at(Point::ResponseEnd)] {
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge("").engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["error"]["code"], "engine_unreachable");
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("own_error"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn leave_given_to_a_client_does_not_stand_in_the_way_of_another_attempt() {
    for failure in [
        rst_at(Point::Request),
        fin_at(Point::Headers),
        sse(3, ms(0)).rst_at(Point::ResponseHead),
        status(503),
    ] {
        let engine = ScriptedEngine::start([failure, ok("second")]).await;
        let dead = ScriptedEngine::refusing().await;
        let asked = edge(RETRIES).engines([&engine]).start().await;
        let refused = edge("").engines([&dead]).start().await;
        for (edge, status) in [(asked, 200), (refused, 502)] {
            let request = req_n().header("Expect", "100-continue");
            let mut client = Client::connect(edge.addr()).await;
            client.send(request.head_bytes()).await;
            let leave = b"HTTP/1.1 100 Continue\r\n\r\n";
            assert_eq!(client.read_exactly(leave.len()).await, leave);
            client.send(request.framed_body()).await;
            let response = client.read_response().await;
            assert_eq!(response.status, status);
            edge.wait_until_idle().await;
        }
        assert_eq!(engine.begun(), 2);
    }
}

// Answers that do not wait for the request

/// More than the sockets on the way hold. While so much is on its way, a busy machine looks idle at
/// times, and a paused clock would run on to the next timeout; so these scenarios run in real time.
fn large() -> Request {
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(16 << 20));
    post("/v1/chat/completions").body(body)
}

#[tokio::test]
async fn an_answer_that_comes_before_the_upload_has_ended_is_the_answer_and_leaks_into_none() {
    for settings in ["", RETRIES] {
        let early = status(400).body("early").answer_before_body();
        let early = early.read_body_slowly(4096, secs(1));
        let script = script([early, ok("next")]).forget_bodies();
        let engine = ScriptedEngine::start(script).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let response = client.ask(&large()).await;
        assert_eq!((response.status, response.text()), (400, "early"));
        // While the rest of that body is on its connection, no other request is.
        for _ in 0..2 {
            let next = edge.ask(&req_n()).await;
            assert_eq!((next.status, next.text()), (200, "next"));
        }
        let sent = [large(), req_n()].map(|request| body_hash(request.body_bytes()));
        assert!(
            engine
                .deliveries()
                .iter()
                .all(|d| sent.contains(&d.body_hash))
        );
        engine.assert_clean();
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("answered"), 3.0);
    }
}

#[tokio::test]
async fn a_503_that_comes_before_the_upload_has_ended_is_asked_again_with_the_whole_body() {
    let early = status(503).body("early").answer_before_body();
    let early = early.read_body_slowly(4096, secs(1));
    let engine = ScriptedEngine::start(script([early, ok("second")]).forget_bodies()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let request = large();
    let response = edge.ask(&request).await;
    assert_eq!((response.status, response.text()), (200, "second"));
    let delivered = engine.deliveries();
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].body_hash, body_hash(request.body_bytes()));
    engine.assert_clean();
}

#[tokio::test]
async fn an_answer_that_comes_before_the_upload_has_ended_is_not_kept_waiting_by_it() {
    for settings in ["", RETRIES] {
        let early = status(400).body("early").answer_before_body();
        let early = early.read_body_slowly(4096, secs(1));
        let engine = ScriptedEngine::start(script(early).forget_bodies()).await;
        let edge = edge(settings).engines([&engine]).start().await;
        let response = edge.ask(&large()).await;
        assert_eq!((response.status, response.text()), (400, "early"));
        // The engine would take an hour to read it all.
        assert!(response.waited() < secs(60), "{:?}", response.waited());
    }
}
