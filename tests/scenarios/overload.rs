//! Engines with too much to do: C28, C43.

use tokio::time::Instant;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn c43_waiting_requests_come_back_spread_out_after_an_overload() {
    const CLIENTS: usize = 100;
    let recovery = Instant::now() + secs(2);
    let engine = ScriptedEngine::start(answer(move |_| {
        let recovered = Instant::now() >= recovery;
        if recovered { ok("ok") } else { status(429) }
    }))
    .await;
    let edge = edge("enable_retries: true\nmax_retries: 12\n")
        .engines([&engine])
        .start()
        .await;
    let request = req_n();
    let ask = async || {
        // Each waits until all are served, which takes a busy machine a while.
        let client = Client::connect(edge.addr()).await;
        client.patient(secs(60)).ask(&request).await
    };
    let asked = futures::future::join_all((0..CLIENTS).map(|_| ask())).await;
    assert!(asked.iter().all(|response| response.status == 200));
    assert!(engine.seen() <= CLIENTS * 12);
    // The longest way there is: every backoff 20 % over.
    let longest = asked.iter().map(Response::waited).max().unwrap();
    assert!(longest < ms(5200), "{longest:?}");

    let mut buckets = std::collections::BTreeMap::<u128, usize>::new();
    for delivery in engine.deliveries() {
        if let Some(after) = delivery.at.checked_duration_since(recovery) {
            *buckets.entry(after.as_millis() / 20).or_default() += 1;
        }
    }
    assert_eq!(buckets.values().sum::<usize>(), CLIENTS);
    let busiest = buckets.values().max().unwrap();
    assert!(busiest * 4 < CLIENTS, "{buckets:?}");
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), CLIENTS as f64);
}

#[tokio::test(start_paused = true)]
async fn c43_a_lasting_overload_costs_no_more_than_the_budget() {
    let engine = ScriptedEngine::start(status(429)).await;
    let edge = edge("enable_retries: true\n")
        .engines([&engine])
        .start()
        .await;
    let request = req_n();
    let asked = futures::future::join_all((0..50).map(|_| edge.ask(&request))).await;
    assert!(asked.iter().all(|response| response.status == 429));
    assert_eq!(engine.seen(), 50 * 5);
    // No request is held longer than the sum of its backoffs.
    let longest = asked.iter().map(Response::waited).max().unwrap();
    assert!(longest <= ms(492), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn c43_a_client_that_asks_again_itself_multiplies_the_budget_and_no_more() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&retries(4)).engines([&engine]).start().await;
    for _ in 0..3 {
        assert_eq!(edge.ask(&req_n()).await.status, 503);
    }
    assert_eq!(engine.seen(), 3 * 4);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("exhausted"), 3.0);
    assert_eq!(edge.requests("answered"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn c43_no_retry_after_makes_a_wait_longer_than_the_longest_backoff() {
    let soon = std::time::SystemTime::now() + secs(2);
    for value in [
        &*httpdate::fmt_http_date(soon),
        "0",
        "1",
        "3600",
        "-5",
        "1e9",
        "NaN",
        "Fri, 31 Dec 1999 23:59:59 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "soon",
        "",
    ] {
        let busy = status(429)
            .header("Retry-After", value)
            .header("retry-after-ms", "300");
        let engine = ScriptedEngine::start([busy.clone(), ok("done")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.text(), "done", "{value}");
        assert!(response.waited() <= secs(1), "{value}");

        engine.play(busy);
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.headers.get("retry-after"), Some(value));
        assert_eq!(response.headers.get("retry-after-ms"), Some("300"));
    }
}

#[tokio::test(start_paused = true)]
async fn c28_bad_requests_do_not_take_an_engine_away_from_good_ones() {
    for code in [400, 429, 503] {
        let engine = ScriptedEngine::start(status(code)).await;
        let edge = edge(&retries(2)).engines([&engine]).start().await;
        for _ in 0..50 {
            assert_eq!(edge.ask(&req_n()).await.status, code);
        }
        engine.play(ok("good"));
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.text(), response.attempts()), ("good", 1));
        assert_eq!(response.waited().as_millis(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c28_a_dead_engine_costs_each_request_one_attempt_at_most() {
    let (dead, sound) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("sound")).await,
    );
    let edge = edge(&format!("{RETRIES}{NOBODY_OUT}"))
        .engines([&dead, &sound])
        .start()
        .await;
    let mut client = Client::connect(edge.addr()).await;
    for _ in 0..200 {
        let response = client.ask(&req_n()).await;
        assert_eq!((response.status, response.waited().as_millis()), (200, 0));
        assert!(response.attempts() <= 2);
    }
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&dead), 100.0);
    dead.listen_with(ok("back")).await;
    client.ask(&req_n()).await;
    client.ask(&req_n()).await;
    assert_eq!(dead.seen(), 1);
}
