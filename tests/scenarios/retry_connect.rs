//! Engines that cannot be reached, or break before they answer: C03, C04, C29.

use crate::support::*;

/// Ways to fail that leave the client nothing to see, by name.
fn failures() -> [(&'static str, Reply); 7] {
    [
        ("reset after the request", rst_at(Point::Request)),
        ("closed after the request", fin_at(Point::Request)),
        ("reset after the headers", rst_at(Point::Headers)),
        ("closed after the headers", fin_at(Point::Headers)),
        (
            "half a head",
            raw("HTTP/1.1 200 OK\r\nContent-Le").then_close(),
        ),
        ("no HTTP", raw("SSH-2.0-OpenSSH_9.7\r\n\r\n")),
        (
            "a head without end",
            raw("HTTP/1.1 200 OK\r\nA: b\r\n").then_close(),
        ),
    ]
}

fn slow_to_retry() -> String {
    RETRIES
        .replace("initial_backoff_ms: 200", "initial_backoff_ms: 3000")
        .replace("max_backoff_ms: 1000", "max_backoff_ms: 3000")
}

#[tokio::test(start_paused = true)]
async fn c03_a_broken_connection_is_failed_over_without_a_wait() {
    for (name, reply) in failures() {
        let (broken, sound) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(ok("sound")).await,
        );
        let edge = edge(&slow_to_retry())
            .engines([&broken, &sound])
            .start()
            .await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "sound"), "{name}");
        assert_eq!(response.waited().as_millis(), 0, "{name}");
        assert_eq!((broken.begun(), sound.seen()), (1, 1), "{name}");
        assert_eq!(response.attempts(), 2, "{name}");
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_on(&broken), 1.0, "{name}");

        // Nothing is held against the engine: it has its turn again.
        broken.restart(ok("mended")).await;
        let mut answers = vec![];
        for _ in 0..2 {
            answers.push(edge.ask(&req_n()).await.text().to_owned());
        }
        answers.sort();
        assert_eq!(answers, ["mended", "sound"], "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn c03_a_refused_connect_is_failed_over_without_a_wait() {
    let (dead, sound) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("sound")).await,
    );
    let edge = edge(&slow_to_retry())
        .engines([&dead, &sound])
        .start()
        .await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "sound"));
    assert_eq!((response.waited().as_millis(), response.attempts()), (0, 2));
    assert_eq!(sound.seen(), 1);
    edge.wait_until_idle().await;
    let refused = [("engine", &*dead.url()), ("outcome", "connect")];
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &refused), 1.0);
    let reason = [("reason", "connect")];
    assert_eq!(edge.metric("vllm_pingora_retries_total", &reason), 1.0);
}

#[tokio::test(start_paused = true)]
async fn c03_the_load_of_a_dead_engine_spreads_over_all_others() {
    let dead = ScriptedEngine::refusing().await;
    let (b, c) = (
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    );
    let edge = edge(&format!("{RETRIES}{NOBODY_OUT}"))
        .engines([&dead, &b, &c])
        .start()
        .await;
    for _ in 0..12 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    assert_eq!((b.seen(), c.seen()), (6, 6));
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&dead), 4.0);
}

#[tokio::test(start_paused = true)]
async fn c04_a_lone_refusing_engine_is_tried_with_growing_gaps() {
    let engine = ScriptedEngine::refusing().await;
    let edge = edge(&retries(5).replace("initial_backoff_ms: 200", "initial_backoff_ms: 100"))
        .engines([&engine])
        .start()
        .await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 502);
    assert_eq!(response.json()["error"]["code"], "engine_unreachable");
    assert_eq!(
        response.headers.get("content-type"),
        Some("application/json")
    );
    assert!(
        !response.text().contains("127.0.0.1"),
        "{}",
        response.text()
    );
    assert_eq!(
        (response.attempts(), response.waited().as_millis()),
        (5, 1500)
    );
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&engine), 5.0);
    edge.assert_backoffs(&[100, 200, 400, 800]);
}

#[tokio::test(start_paused = true)]
async fn c04_each_round_tries_every_engine_at_once_and_waits_before_the_next() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    );
    let edge = edge(&retries(10)).engines([&a, &b]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.attempts()), (502, 10));
    assert_eq!(response.waited().as_millis(), 200 + 400 + 800 + 1000);
    edge.wait_until_idle().await;
    assert_eq!([edge.attempts_on(&a), edge.attempts_on(&b)], [5.0, 5.0]);
    edge.assert_backoffs(&[200, 400, 800, 1000]);
}

#[tokio::test(start_paused = true)]
async fn c04_an_excluded_engine_is_left_alone_while_another_one_still_answers() {
    let dead = ScriptedEngine::refusing().await;
    let busy = ScriptedEngine::start([status(503), status(503), ok("done")]).await;
    let edge = edge(&retries(4)).engines([&dead, &busy]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "done"));
    assert_eq!(millis(&busy.gaps()), [200, 400]);
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&dead), 1.0);
}

#[tokio::test(start_paused = true)]
async fn c04_an_engine_that_comes_back_in_time_is_found() {
    let engine = ScriptedEngine::refusing().await;
    let edge = edge(&retries(5).replace("initial_backoff_ms: 200", "initial_backoff_ms: 100"))
        .engines([&engine])
        .start()
        .await;
    let request = req_n();
    let back = async {
        tokio::time::sleep(ms(500)).await;
        engine.listen_with(ok("back")).await;
    };
    let (response, ()) = tokio::join!(edge.ask(&request), back);
    assert_eq!((response.status, response.text()), (200, "back"));
    assert_eq!(
        (response.waited().as_millis(), response.attempts()),
        (700, 4)
    );
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn all_addresses_of_a_name_are_one_attempt() {
    let engine = ScriptedEngine::start(ok("named")).await;
    let url = format!("http://localhost:{}", engine.addr().port());
    let edge = edge(&retries(3)).url(&url, &["m"]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.text(), response.attempts()), ("named", 1));
    let host = format!("localhost:{}", engine.addr().port());
    let seen = engine.deliveries();
    assert_eq!(seen[0].headers.get("host"), Some(host.as_str()));

    engine.stop().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.attempts()), (502, 3));
    assert_eq!(response.waited().as_millis(), 600);
    edge.wait_until_idle().await;
    let refused = [("engine", &*url), ("outcome", "connect")];
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &refused), 3.0);
}

#[tokio::test(start_paused = true)]
async fn c29_an_engine_that_takes_no_connection_is_given_up_after_the_connect_timeout() {
    let full = Full::listen().await;
    let sound = ScriptedEngine::start(ok("sound")).await;
    let impatient = "connect_timeout_ms: 100\n";
    let off = edge(impatient).url(&full.url(), &["m"]).start().await;
    let response = off.ask(&req_n()).await;
    assert_eq!(response.status, 504);
    assert_eq!(response.json()["error"]["code"], "engine_timeout");
    off.wait_until_idle().await;
    assert_eq!(off.attempts_ended("connect_timeout"), 1.0);

    let on = edge(&format!("{RETRIES}{impatient}"))
        .url(&full.url(), &["m"])
        .engines([&sound])
        .start()
        .await;
    let response = on.ask(&req_n()).await;
    assert_eq!((response.text(), response.attempts()), ("sound", 2));
}
