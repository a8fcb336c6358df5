//! Clients that leave: noticed at once, wherever the request is, and nobody's failure: C21.

use tokio::time::Instant;

use crate::support::*;

#[derive(Clone, Copy, Debug)]
enum Leaves {
    Reset,
    Close,
}

const BOTH: [Leaves; 2] = [Leaves::Reset, Leaves::Close];

fn leave(client: Client, how: Leaves) -> Instant {
    match how {
        Leaves::Reset => client.reset(),
        Leaves::Close => client.close(),
    }
    Instant::now()
}

/// Connection `i` of the engine ends within a second of `left`.
async fn is_let_go(engine: &ScriptedEngine, i: usize, left: Instant) {
    let (_, at) = engine.wait_for_peer_close(i).await;
    assert!(at - left < secs(1), "noticed after {:?}", at - left);
}

/// The request is counted as one whose client left, and as nothing else.
async fn is_nobodys_failure(edge: &TestEdge, id: &str) {
    edge.wait_for_requests("client_gone", 1).await;
    edge.wait_until_idle().await;
    let line = edge.access_line(id).await;
    assert!(
        line.contains("outcome=client_gone reason=client_gone"),
        "{line}"
    );
    for outcome in ["answered", "exhausted", "cut", "own_error"] {
        assert_eq!(edge.requests(outcome), 0.0, "{outcome}");
    }
    for line in edge.exposition().lines() {
        assert!(!line.contains("status=\"5"), "{line}");
    }
}

/// The engine is asked by the next client as if nothing had happened.
async fn is_asked_next(edge: &TestEdge, engine: &ScriptedEngine) {
    let before = engine.begun();
    engine.play(ok("next"));
    let failures = || {
        [
            "connect",
            "connect_timeout",
            "closed",
            "malformed",
            "closed_after_head",
            "cut",
        ]
        .map(|outcome| edge.metric("vllm_pingora_attempts_total", &[("outcome", outcome)]))
    };
    assert_eq!(failures(), [0.0; 6]);
    let mut asked = 0;
    while engine.begun() == before && asked < 2 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
        asked += 1;
    }
    assert_eq!(engine.begun(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_while_it_waits_ends_the_engines_work() {
    for (yaml, retries) in [("", "off"), (RETRIES, "on")] {
        for how in BOTH {
            let busy = ScriptedEngine::start(ok("late").delay(secs(10))).await;
            let other = ScriptedEngine::start(ok("other")).await;
            let edge = edge(yaml).engines([&busy, &other]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            let id = format!("c21-waiting-{retries}-{how:?}");
            client
                .send_request(&req_n().header("X-Request-Id", &id))
                .await;
            busy.wait_for_deliveries(1).await;
            tokio::time::sleep(secs(1)).await;
            let left = leave(client, how);
            is_let_go(&busy, 0, left).await;
            is_nobodys_failure(&edge, &id).await;
            assert_eq!((busy.seen(), other.accepted()), (1, 0));
            is_asked_next(&edge, &busy).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_between_head_and_first_event_ends_the_engines_work() {
    for how in BOTH {
        let late = chunks([(secs(60), event(0))]).header("Content-Type", "text/event-stream");
        let busy = ScriptedEngine::start(late).await;
        let other = ScriptedEngine::start(ok("other")).await;
        let edge = edge(RETRIES).engines([&busy, &other]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let id = format!("c21-held-{how:?}");
        client
            .send_request(&req_s().header("X-Request-Id", &id))
            .await;
        busy.wait_for_deliveries(1).await;
        tokio::time::sleep(secs(1)).await;
        let left = leave(client, how);
        is_let_go(&busy, 0, left).await;
        is_nobodys_failure(&edge, &id).await;
        assert_eq!(other.accepted(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_in_mid_stream_ends_the_engines_work() {
    for (yaml, retries) in [("", "off"), (RETRIES, "on")] {
        for how in BOTH {
            let busy = ScriptedEngine::start(sse(100, ms(100))).await;
            let other = ScriptedEngine::start(ok("other")).await;
            let edge = edge(yaml).engines([&busy, &other]).start().await;
            let mut client = Client::connect(edge.addr()).await;
            let id = format!("c21-stream-{retries}-{how:?}");
            client
                .send_request(&req_s().header("X-Request-Id", &id))
                .await;
            let mut response = client.read_head().await;
            client.read_events(&mut response, 5).await;
            let left = leave(client, how);
            is_let_go(&busy, 0, left).await;
            is_nobodys_failure(&edge, &id).await;
            assert_eq!((busy.seen(), other.accepted()), (1, 0));
            is_asked_next(&edge, &busy).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_a_silent_stream_is_noticed_without_the_engines_help() {
    let pauses = [ms(0), secs(600)];
    let pieces = pauses.iter().enumerate().map(|(i, p)| (*p, event(i)));
    let stalled = chunks(pieces).header("Content-Type", "text/event-stream");
    let engine = ScriptedEngine::start(stalled).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client
        .send_request(&req_s().header("X-Request-Id", "c21-silent"))
        .await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 1).await;
    let left = leave(client, Leaves::Close);
    is_let_go(&engine, 0, left).await;
    is_nobodys_failure(&edge, "c21-silent").await;
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_during_a_backoff_is_not_asked_for_again() {
    for how in BOTH {
        let engine = ScriptedEngine::start([status(503), ok("late")]).await;
        let yaml = "enable_retries: true\ninitial_backoff_ms: 20000\njitter_factor: 0";
        let edge = edge(yaml).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let id = format!("c21-backoff-{how:?}");
        client
            .send_request(&req_n().header("X-Request-Id", &id))
            .await;
        engine.wait_for_answered(1).await;
        tokio::time::sleep(secs(1)).await;
        let left = leave(client, how);
        is_nobodys_failure(&edge, &id).await;
        assert!(
            left.elapsed() < secs(1),
            "noticed after {:?}",
            left.elapsed()
        );
        tokio::time::sleep(secs(60)).await;
        assert_eq!((engine.begun(), engine.accepted()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_while_its_body_goes_to_the_engine_ends_that() {
    for how in BOTH {
        let slow = ok("late").read_body_slowly(64 * 1024, secs(1));
        let busy = ScriptedEngine::start(script(slow).forget_bodies()).await;
        let other = ScriptedEngine::start(ok("other")).await;
        let edge = edge(RETRIES).engines([&busy, &other]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let id = format!("c21-body-{how:?}");
        let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(16 << 20));
        let request = post("/v1/chat/completions").body(body);
        client
            .send_request(&request.header("X-Request-Id", &id))
            .await;
        busy.wait_for_begun(1).await;
        let left = leave(client, how);
        is_nobodys_failure(&edge, &id).await;
        assert!(
            left.elapsed() < secs(1),
            "noticed after {:?}",
            left.elapsed()
        );
        assert_eq!((busy.seen(), other.accepted()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_leaves_in_its_upload_reaches_no_engine() {
    for how in BOTH {
        let engine = ScriptedEngine::start(ok("good")).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let mut client = Client::connect(edge.addr()).await;
        let id = format!("c21-upload-{how:?}");
        let request = post("/v1/chat/completions").body(vec![b' '; 100_000]);
        client
            .send(request.header("X-Request-Id", &id).head_bytes())
            .await;
        client.send(vec![b' '; 50_000]).await;
        leave(client, how);
        is_nobodys_failure(&edge, &id).await;
        assert_eq!(engine.accepted(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_only_stops_reading_is_not_gone() {
    const TOTAL: usize = 40 << 20;
    let engine = ScriptedEngine::start(flood(TOTAL)).await;
    let edge = edge(&format!("{RETRIES}client_send_timeout_ms: 0\n"))
        .engines([&engine])
        .start()
        .await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    tokio::time::sleep(secs(300)).await;
    let connection = &engine.connections()[0];
    assert_eq!(
        (connection.peer_close, connection.engine_close),
        (None, None)
    );
    client.finish(&mut response).await;
    assert!(response.complete);
    assert_eq!(response.body_len(), TOTAL as u64);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn c21_a_client_that_stops_reading_and_then_leaves_is_noticed() {
    let engine = ScriptedEngine::start(flood(40 << 20)).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await.forgetting_bodies();
    let request = req_s().header("X-Request-Id", "c21-stalled");
    client.send_request(&request).await;
    let _ = client.read_head().await;
    tokio::time::sleep(secs(15)).await;
    let left = leave(client, Leaves::Reset);
    is_let_go(&engine, 0, left).await;
    is_nobodys_failure(&edge, "c21-stalled").await;
}

#[tokio::test(start_paused = true)]
async fn a_next_request_sent_early_does_not_look_like_leaving() {
    let engine = ScriptedEngine::start([ok("one").delay(secs(5)), ok("two")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_n()).await;
    engine.wait_for_deliveries(1).await;
    client.send_request(&req_n()).await;
    assert_eq!(client.read_response().await.text(), "one");
    assert_eq!(client.read_response().await.text(), "two");
}
