//! The response head waits for the first body byte while an attempt may follow: C07.

use crate::support::*;

const NO_BYTES: [(std::time::Duration, &str); 0] = [];

#[tokio::test(start_paused = true)]
async fn c07_an_engine_that_dies_after_its_head_is_failed_over_unseen() {
    let after_head = Point::ResponseHead;
    let variants = [
        ("reset", 0, sse(3, ms(0)).rst_at(after_head)),
        ("closed", 0, sse(3, ms(0)).fin_at(after_head)),
        (
            "reset 2 s later",
            2000,
            sse(3, ms(0)).rst_at(after_head).cut_after(secs(2)),
        ),
        (
            "closed in a body of known length",
            0,
            ok("x".repeat(100)).fin_at(after_head),
        ),
    ];
    for (name, wait, reply) in variants {
        let (dying, sound) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(sse(3, ms(50))).await,
        );
        let edge = edge(RETRIES).engines([&dying, &sound]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.complete), (200, true), "{name}");
        assert_eq!(response.body, sse_body(3), "{name}");
        assert_eq!(response.waited().as_millis(), wait, "{name}");
        assert_eq!((dying.seen(), sound.seen()), (1, 1), "{name}");
        assert_eq!(response.attempts(), 2, "{name}");
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended("closed_after_head"), 1.0);
        assert_eq!(edge.requests("answered"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn c07_a_well_formed_empty_answer_is_an_answer() {
    for reply in [chunks(NO_BYTES), ok(""), status(204), ok("").until_close()] {
        let engine = ScriptedEngine::start(reply).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert!(matches!(response.status, 200 | 204));
        assert_eq!((response.complete, response.text()), (true, ""));
        assert_eq!((engine.seen(), response.attempts()), (1, 1));
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("answered"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn c07_a_break_after_the_first_byte_is_shown_and_not_repeated() {
    let one_byte = || chunks([(ms(0), "x"), (ms(50), "yz")]);
    let cuts = [
        one_byte().rst_at(Point::BodyBytes(1)).cut_after(ms(10)),
        one_byte().fin_at(Point::Pieces(1)).cut_after(ms(10)),
        sse(3, ms(20)).fin_at(Point::BodyEnd).cut_after(ms(10)),
    ];
    for reply in cuts {
        let (dying, other) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(ok("other")).await,
        );
        let edge = edge(RETRIES).engines([&dying, &other]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.complete), (200, false));
        assert!(!response.body.is_empty());
        assert!(!response.raw.ends_with(b"0\r\n\r\n"), "an invented end");
        assert_eq!((dying.seen(), other.seen()), (1, 0));
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("cut"), 1.0);
        let cut = [("engine", &*dying.url()), ("outcome", "cut")];
        assert_eq!(edge.metric("vllm_pingora_attempts_total", &cut), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_head_comes_with_the_first_byte_when_retries_are_on_and_at_once_when_off() {
    let late = chunks([(secs(5), "data: {}\n\n")]).header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(late).await;
    for (settings, head_after) in [(RETRIES, 5000), ("", 0)] {
        let edge = edge(settings).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!(response.waited().as_millis(), head_after);
        assert_eq!(response.text(), "data: {}\n\n");
        let arrived = response.events()[0].at - response.asked_at.unwrap();
        assert_eq!(arrived.as_millis(), 5000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_flows_event_by_event() {
    let engine = ScriptedEngine::start(sse(5, ms(300))).await;
    for settings in [RETRIES, ""] {
        let edge = edge(settings).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        let start = response.asked_at.unwrap();
        let events = response.events().into_iter();
        let times: Vec<u128> = events.map(|e| (e.at - start).as_millis()).collect();
        assert_eq!(times, [0, 300, 600, 900, 1200, 1200]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_a_first_byte_in_time_is_failed_over() {
    let silent = [
        ("hangs", hang()),
        ("sends its head only", chunks([(secs(3600), "late")])),
        (
            "sends the start of an error only",
            chunks([(ms(0), "data: {\"err"), (secs(3600), "late")])
                .header("Content-Type", "text/event-stream"),
        ),
    ];
    for (name, reply) in silent {
        let (slow, sound) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(ok("sound")).await,
        );
        let settings = format!("{RETRIES}first_byte_timeout_ms: 2000\n");
        let edge = edge(&settings).engines([&slow, &sound]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "sound"), "{name}");
        assert_eq!(response.waited().as_millis(), 2000, "{name}");
        assert_eq!((slow.seen(), sound.seen()), (1, 1), "{name}");
        // It must not go on generating for nobody.
        slow.wait_for_peer_close(0).await;
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended("first_byte_timeout"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lone_engine_without_a_first_byte_ends_in_a_504() {
    let engine = ScriptedEngine::start(hang()).await;
    let timeout = "first_byte_timeout_ms: 2000\n";
    for (settings, waited, attempts) in [
        (timeout.to_owned(), 2000, 1),
        (format!("{}{timeout}", retries(2)), 2000 + 200 + 2000, 2),
    ] {
        let before = engine.seen();
        let edge = edge(&settings).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 504);
        assert_eq!(response.json()["error"]["code"], "engine_timeout");
        assert_eq!(response.waited().as_millis(), waited);
        assert_eq!(engine.seen() - before, attempts);
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("own_error"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_byte_timeout_ends_with_the_first_byte() {
    let engine = ScriptedEngine::start(sse(3, secs(60)).delay(ms(1900))).await;
    let settings = format!("{RETRIES}first_byte_timeout_ms: 2000\n");
    let edge = edge(&settings).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!((response.complete, response.body), (true, sse_body(3)));
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_the_whole_first_byte_timeout() {
    let engine = ScriptedEngine::start([
        status(503).delay(ms(1900)),
        status(503).delay(ms(1900)),
        ok("third").delay(ms(1900)),
    ])
    .await;
    let settings = format!("{RETRIES}first_byte_timeout_ms: 2000\n");
    let edge = edge(&settings).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "third"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_is_cut_and_not_repeated() {
    for settings in [RETRIES, ""] {
        let engine = ScriptedEngine::start(sse(3, secs(30))).await;
        let settings = format!("{settings}stream_idle_timeout_ms: 1000\n");
        let edge = edge(&settings).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!((response.status, response.complete), (200, false));
        assert_eq!(response.body, event(0));
        let lasted = response.ended_at.unwrap() - response.asked_at.unwrap();
        assert_eq!(lasted.as_millis(), 1000);
        let (_, closed) = engine.wait_for_peer_close(0).await;
        assert_eq!((closed - engine.deliveries()[0].at).as_millis(), 1000);
        edge.wait_until_idle().await;
        assert_eq!((engine.seen(), edge.requests("cut")), (1, 1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_but_steady_stream_is_not_cut() {
    let engine = ScriptedEngine::start(sse(6, ms(990))).await;
    let settings = format!("{RETRIES}stream_idle_timeout_ms: 1000\n");
    let edge = edge(&settings).engines([&engine]).start().await;
    let response = edge.ask(&req_s()).await;
    assert_eq!((response.complete, response.body), (true, sse_body(6)));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_is_not_taken_for_a_silent_engine() {
    const TOTAL: usize = 24 << 20;
    let engine = ScriptedEngine::start(flood(TOTAL)).await;
    let settings = format!("{RETRIES}stream_idle_timeout_ms: 1000\nfirst_byte_timeout_ms: 1000\n");
    let edge = edge(&settings).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    tokio::time::sleep(secs(60)).await;
    let sent = engine.connections()[0].bytes_sent;
    assert!(sent < TOTAL as u64, "nothing held the engine up: {sent}");
    client.finish(&mut response).await;
    assert_eq!(
        (response.complete, response.body_len()),
        (true, TOTAL as u64)
    );
}
