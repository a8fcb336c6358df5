//! Connections to engines: kept while they are good, never the reason for a failed answer: C25.

use std::time::Duration;

use crate::support::*;

/// Both, since a stale connection is replaced whether or not failures are retried.
const OFF_AND_ON: [&str; 2] = ["", RETRIES];

fn stale(edge: &TestEdge) -> f64 {
    edge.metric("vllm_pingora_stale_connections_total", &[])
}

/// The second request of a connection gets `second`, and is answered all the same.
async fn second_on_a_connection(second: &Reply, case: &str) {
    for yaml in OFF_AND_ON {
        let script = connections([vec![ok("one"), second.clone()], vec![ok("two")]]);
        let engine = ScriptedEngine::start(script).await;
        let other = ScriptedEngine::start(ok("other")).await;
        let edge = edge(yaml)
            .engine(&engine, &["m"])
            .engine(&other, &["m", "o"]);
        let edge = edge.start().await;
        assert_eq!(edge.ask(&req_n()).await.text(), "one", "{case}");
        assert_eq!(edge.ask(&req_n()).await.text(), "other", "{case}");
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "two"), "{case}");
        assert_eq!(response.waited(), Duration::ZERO, "{case}");
        if !yaml.is_empty() {
            let attempts = response.headers.get("x-vllm-pingora-attempts");
            assert_eq!(attempts, Some("1"), "{case}");
        }
        edge.wait_until_idle().await;
        assert_eq!(stale(&edge), 1.0, "{case}");
        assert_eq!(edge.attempts_on(&engine), 2.0, "{case}");
        assert_eq!(
            edge.metric("vllm_pingora_retries_total", &[]),
            0.0,
            "{case}"
        );
        assert_eq!(edge.requests("answered"), 3.0, "{case}");
        assert_eq!(engine.accepted(), 2, "{case}");
        let answered = engine.deliveries().iter().filter(|d| d.answered).count();
        assert_eq!(answered, 2, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn c25_a_pooled_connection_that_is_reset_on_its_next_byte_is_replaced() {
    for yaml in OFF_AND_ON {
        let replies = [ok("one").then_rst_on_next_byte(), ok("two")];
        let engine = ScriptedEngine::start(replies).await;
        let edge = edge(yaml).engines([&engine]).start().await;
        assert_eq!(edge.ask(&req_n()).await.text(), "one");
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "two"));
        edge.wait_until_idle().await;
        assert_eq!((stale(&edge), edge.attempts_on(&engine)), (1.0, 2.0));
        assert_eq!((engine.accepted(), engine.seen()), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn c25_a_pooled_connection_that_is_reset_after_the_request_is_replaced() {
    second_on_a_connection(&rst_at(Point::Request), "reset after the request").await;
}

#[tokio::test(start_paused = true)]
async fn c25_a_pooled_connection_that_is_closed_after_the_request_is_replaced() {
    second_on_a_connection(&fin_at(Point::Request), "closed after the request").await;
}

#[tokio::test(start_paused = true)]
async fn c25_a_pooled_connection_that_is_closed_during_the_request_is_replaced() {
    second_on_a_connection(&fin_at(Point::Headers), "closed at the headers").await;
    second_on_a_connection(&rst_at(Point::Headers), "reset at the headers").await;
}

#[tokio::test(start_paused = true)]
async fn c25_a_connection_the_engine_has_closed_is_not_used_again() {
    for yaml in OFF_AND_ON {
        for first in [
            ok("one").then_close(),
            ok("one").then_half_close(),
            ok("one").close(),
        ] {
            let engine = ScriptedEngine::start([first, ok("two")]).await;
            let edge = edge(yaml).engines([&engine]).start().await;
            assert_eq!(edge.ask(&req_n()).await.text(), "one");
            let response = edge.ask(&req_n()).await;
            assert_eq!((response.status, response.text()), (200, "two"));
            edge.wait_until_idle().await;
            assert_eq!(edge.requests("answered"), 2.0);
            assert_eq!(edge.attempts_on(&engine), 2.0);
            let answered = engine.deliveries().iter().filter(|d| d.answered).count();
            assert_eq!((answered, engine.accepted()), (2, 2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c25_a_large_body_is_sent_whole_on_the_fresh_connection() {
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(200_000));
    let request = post("/v1/chat/completions").body(&body);
    for yaml in OFF_AND_ON {
        for second in [
            rst_at(Point::Request),
            fin_at(Point::Headers),
            rst_at(Point::Headers),
        ] {
            let script = connections([vec![ok("one"), second], vec![ok("two")]]);
            let engine = ScriptedEngine::start(script).await;
            let edge = edge(yaml).engines([&engine]).start().await;
            assert_eq!(edge.ask(&req_n()).await.text(), "one");
            assert_eq!(edge.ask(&request).await.text(), "two");
            assert_eq!(engine.deliveries().last().unwrap().body, body);
            assert_eq!(stale(&edge), 1.0);
            engine.assert_clean();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_of_a_megabyte_gets_a_connection_of_its_own() {
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(1 << 20));
    let request = post("/v1/chat/completions").body(&body);
    for yaml in OFF_AND_ON {
        let engine = ScriptedEngine::start(ok("fine")).await;
        let edge = edge(yaml).engines([&engine]).start().await;
        for request in [&req_n(), &request, &req_n(), &request] {
            assert_eq!(edge.ask(request).await.text(), "fine");
        }
        let connections: Vec<_> = engine.deliveries().iter().map(|d| d.connection).collect();
        assert_eq!(connections, [0, 1, 0, 2]);
        engine.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn c25_every_pooled_connection_may_be_stale_and_the_request_is_sent_once_more_only() {
    let stale_one = vec![ok("one").delay(secs(1)), rst_at(Point::Request)];
    let lists = [
        stale_one.clone(),
        stale_one.clone(),
        stale_one,
        vec![ok("fresh")],
    ];
    let engine = ScriptedEngine::start(connections(lists)).await;
    let edge = edge("").engines([&engine]).start().await;
    let mut filling = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let addr = edge.addr();
        filling.spawn(async move { Client::connect(addr).await.ask(&req_n()).await });
    }
    for response in filling.join_all().await {
        assert_eq!(response.text(), "one");
    }
    assert_eq!(engine.accepted(), 3);
    assert_eq!(edge.ask(&req_n()).await.text(), "fresh");
    assert_eq!((engine.seen(), stale(&edge)), (5, 1.0));
}

#[tokio::test(start_paused = true)]
async fn c25_a_fresh_connection_closed_without_an_answer_is_not_replaced() {
    for reply in [
        fin_at(Point::Request),
        rst_at(Point::Request),
        fin_at(Point::Headers),
        rst_at(Point::Headers),
    ] {
        let engine = ScriptedEngine::start([reply, ok("two")]).await;
        let edge = edge("").engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["error"]["code"], "engine_unreachable");
        edge.wait_until_idle().await;
        assert_eq!((engine.begun(), engine.accepted()), (1, 1));
        assert_eq!((stale(&edge), edge.attempts_on(&engine)), (0.0, 1.0));
    }
}

#[tokio::test(start_paused = true)]
async fn c25_the_connection_that_replaces_a_stale_one_is_not_replaced_again() {
    let lists = [
        vec![ok("one"), fin_at(Point::Request)],
        vec![fin_at(Point::Request)],
    ];
    let engine = ScriptedEngine::start(connections(lists)).await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "one");
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    edge.wait_until_idle().await;
    assert_eq!((engine.seen(), engine.accepted()), (3, 2));
    assert_eq!((stale(&edge), edge.attempts_on(&engine)), (1.0, 2.0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_changes_state_is_never_sent_twice_for_a_stale_connection() {
    for yaml in OFF_AND_ON {
        let lists = [vec![ok("one"), fin_at(Point::Request)], vec![ok("asleep")]];
        let engine = ScriptedEngine::start(connections(lists)).await;
        let yaml = format!("{yaml}\nextra_routes: [{{method: POST, path: /sleep}}]");
        let edge = edge(&yaml).engines([&engine]).start().await;
        assert_eq!(edge.ask(&req_n()).await.text(), "one");
        // The pooled connection would swallow it.
        assert_eq!(edge.ask(&post("/sleep")).await.text(), "asleep");
        assert_eq!(engine.deliveries_to("/sleep").len(), 1);
        assert_eq!((engine.accepted(), stale(&edge)), (2, 0.0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_changes_state_and_is_not_answered_is_not_repeated() {
    for yaml in OFF_AND_ON {
        for reply in [
            fin_at(Point::Request),
            rst_at(Point::Request),
            fin_at(Point::Headers),
        ] {
            let engine = ScriptedEngine::start([reply, ok("asleep")]).await;
            let yaml = format!("{yaml}\nextra_routes: [{{method: POST, path: /sleep}}]");
            let edge = edge(&yaml).engines([&engine]).start().await;
            let response = edge.ask(&post("/sleep")).await;
            assert_eq!((response.status, engine.begun()), (502, 1));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c25_half_an_answer_on_a_pooled_connection_is_a_failure() {
    let half = raw("HTTP/1.1 200 OK\r\nContent-Le").then_close();
    let script = connections([vec![ok("one"), half], vec![ok("two")]]);
    let engine = ScriptedEngine::start(script).await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "one");
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    assert_eq!((engine.seen(), stale(&edge)), (2, 0.0));
}

/// Pingora's idle timers run in real time, on a thread of their own; so does this test. The
/// gaps are all waited for at once.
#[tokio::test]
async fn c25_requests_around_the_moment_the_engine_closes_are_all_answered() {
    const KEPT: Duration = secs(5);
    let mut asking = tokio::task::JoinSet::new();
    for step in 0..41 {
        // By default connections are given up in good time; kept for longer, they do get stale.
        for yaml in ["", "engine_keepalive_ms: 60000"] {
            asking.spawn(async move {
                let gap = ms(4900 + 5 * step);
                let script = script(answer(|request| ok(request.case()))).idle_close(KEPT);
                let engine = ScriptedEngine::start(script).await;
                let edge = edge(yaml).engines([&engine]).start().await;
                let mut client = Client::connect(edge.addr()).await;
                for last in [false, true] {
                    let request = req_n();
                    let response = client.ask(&request).await;
                    assert_eq!(response.status, 200, "{gap:?} {yaml:?}");
                    assert_eq!(response.text(), request.case(), "{gap:?} {yaml:?}");
                    if !last {
                        tokio::time::sleep(gap).await;
                    }
                }
                assert_eq!(engine.seen(), 2, "{gap:?} {yaml:?}");
                if yaml.is_empty() {
                    assert_eq!((engine.accepted(), stale(&edge)), (2, 0.0), "{gap:?}");
                }
            });
        }
    }
    asking.join_all().await;
}

/// In real time, for the same reason.
#[tokio::test]
async fn an_idle_connection_is_closed_when_its_time_is_up() {
    let engine = ScriptedEngine::start(ok("good")).await;
    let edge = edge("engine_keepalive_ms: 300")
        .engines([&engine])
        .start()
        .await;
    edge.ask(&req_n()).await;
    engine.wait_for_peer_close(0).await;
    assert_eq!(edge.ask(&req_n()).await.status, 200);
    assert_eq!(engine.accepted(), 2);
}

#[tokio::test(start_paused = true)]
async fn one_connection_serves_many_requests_in_turn() {
    let replies = vec![
        ok("a"),
        ok("b").chunked(),
        sse(2, ms(1)),
        status(404).body("{}"),
    ];
    let engine = ScriptedEngine::start(script(replies).cycle()).await;
    for yaml in OFF_AND_ON {
        let before = engine.accepted();
        let edge = edge(yaml).engines([&engine]).start().await;
        for _ in 0..40 {
            assert!(edge.ask(&req_n()).await.complete);
        }
        assert_eq!(engine.accepted() - before, 1);
        assert_eq!(stale(&edge), 0.0);
    }
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_discarded_answer_releases_its_connection_and_leaks_into_none() {
    let discarded = "discarded".repeat(20_000);
    let replies = vec![
        status(503).body(&discarded),
        ok("good"),
        status(429).body(&discarded).chunked(),
        ok("good"),
    ];
    let engine = ScriptedEngine::start(script(replies).cycle()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..20 {
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "good"));
    }
    edge.wait_until_idle().await;
    // Every connection but the one that is kept has ended.
    let accepted = engine.accepted();
    let mut open = 0;
    for i in 0..accepted - 1 {
        engine.wait_for_connection_end(i).await;
    }
    for connection in engine.connections() {
        open += usize::from(connection.peer_close.is_none() && connection.engine_close.is_none());
    }
    assert_eq!(open, 1);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn a_discarded_answer_that_never_ends_releases_its_connection_at_once() {
    let endless = chunks([(secs(0), "x"), (secs(3600), "y")]).with_status(503);
    let engine = ScriptedEngine::start([endless, ok("good")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.text(), response.waited()), ("good", ms(200)));
    let (_, closed_at) = engine.wait_for_peer_close(0).await;
    assert!(closed_at - engine.deliveries()[0].at < secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_body_framed_by_the_end_of_its_connection_is_whole_and_the_connection_is_not_kept() {
    let engine = ScriptedEngine::start(ok("until the end").until_close()).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..3 {
        let response = client.ask(&req_n()).await;
        assert_eq!(
            (response.text(), response.complete),
            ("until the end", true)
        );
    }
    assert_eq!((engine.accepted(), stale(&edge)), (3, 0.0));
}

#[tokio::test]
async fn a_process_that_begins_with_a_connection_it_does_not_keep_does_not_panic() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let router = Process::start(&engine, &[], &[]).await;
    let body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(300_000));
    let mut client = Client::connect(router.addr).await;
    let response = client.ask(&post("/v1/completions").body(body)).await;
    assert_eq!(response.status, 200);
    engine.wait_for_peer_close(0).await;
    let (_, log) = router.terminate().await;
    assert_eq!(log.iter().find(|line| line.contains("panicked")), None);
}
