//! How an engine is chosen: each logic on the real path, with retries honoured.

use crate::support::*;

async fn engines<const N: usize>(script: impl Fn(usize) -> Script) -> [ScriptedEngine; N] {
    let engines = futures::future::join_all((0..N).map(|n| ScriptedEngine::start(script(n)))).await;
    engines
        .try_into()
        .unwrap_or_else(|_| unreachable!("as many as asked for"))
}

fn named(n: usize) -> Script {
    script(ok(n.to_string()))
}

/// The engines are not asked for their load, which would be a request like any other to a script.
const UNASKED: &str = "engine_stats_interval: 0\n";

/// An exposition as vLLM writes it.
fn gauges(running: u32, waiting: u32, kv_cache: f64, started: f64) -> Reply {
    let labels = "{engine=\"0\",model_name=\"m\"}";
    ok(format!(
        "# TYPE vllm:num_requests_running gauge\n\
         vllm:num_requests_running{labels} {running}.0\n\
         vllm:num_requests_waiting{labels} {waiting}.0\n\
         vllm:kv_cache_usage_perc{labels} {kv_cache}\n\
         process_start_time_seconds {started}\n"
    ))
}

fn session(name: &str, value: &str) -> Request {
    post("/v1/chat/completions").body(format!(r#"{{"model":"m","{name}":"{value}"}}"#))
}

/// Asks, and tells which engine answered.
async fn home(edge: &TestEdge, request: &Request) -> usize {
    edge.ask(request).await.text().parse().expect("a number")
}

#[tokio::test(start_paused = true)]
async fn weights_are_shares_of_the_turn() {
    let [a, b] = engines(named).await;
    let edge = edge("")
        .engine_with(&a, "weight: 3")
        .engine(&b, &["m"])
        .start()
        .await;
    for _ in 0..5 {
        let mut hits = [0; 2];
        for _ in 0..4 {
            hits[home(&edge, &req_n()).await] += 1;
        }
        assert_eq!(hits, [3, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn leastload_leaves_the_busy_engine_alone() {
    let [a, b] = engines(|n| {
        if n == 0 {
            script([hang(), ok("0")])
        } else {
            named(n)
        }
    })
    .await;
    let edge = edge(&format!("{UNASKED}routing_logic: leastload"))
        .engines([&a])
        // An answer counts until the router has taken note of its end; it must not weigh as much as
        // the one that is held.
        .engine_with(&b, "weight: 10")
        .start()
        .await;
    let mut held = Client::connect(edge.addr()).await;
    // Whoever the first one goes to: once the first engine holds a request, the other gets all.
    while a.seen() == 0 {
        held = Client::connect(edge.addr()).await;
        held.send_request(&req_n()).await;
        tokio::select! {
            _ = a.wait_for_deliveries(1) => {}
            _ = held.read_response() => {}
        }
    }
    for _ in 0..20 {
        assert_eq!(home(&edge, &req_n()).await, 1);
    }
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn leastload_goes_by_what_the_engines_say_of_themselves() {
    let script = |n| {
        let [running, waiting] = [[3, 0], [2, 6]][n];
        named(n).on("/metrics", gauges(running, waiting, 0.1, 1.0))
    };
    let [a, b] = engines(script).await;
    let edge = edge("routing_logic: leastload")
        .engines([&a, &b])
        .start()
        .await;
    for _ in 0..10 {
        assert_eq!(home(&edge, &req_n()).await, 0);
    }
    // The tables turn.
    b.play(named(1).on("/metrics", gauges(0, 0, 0.0, 1.0)));
    edge.look_again().await;
    for _ in 0..10 {
        assert_eq!(home(&edge, &req_n()).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn gauges_that_are_too_old_are_not_gone_by() {
    let script = |n| match n {
        0 => named(n).on("/metrics", gauges(50, 50, 0.5, 1.0)),
        _ => named(n).on("/metrics", gauges(1, 0, 0.5, 1.0)),
    };
    let [a, b] = engines(script).await;
    let edge = edge("routing_logic: leastload\nengine_stats_interval: 5")
        .engines([&a, &b])
        .start()
        .await;
    assert_eq!(home(&edge, &req_n()).await, 1);
    a.play(named(0).on("/metrics", status(500)));
    for (silent_for, expected) in [(5, 1), (5, 1), (5, 0)] {
        tokio::time::sleep(secs(silent_for)).await;
        edge.look_again().await;
        assert_eq!(home(&edge, &req_n()).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn only_logics_that_weigh_loads_look_at_them() {
    let [a] = engines(named).await;
    for (settings, looks) in [
        ("", 0),
        ("routing_logic: leastload\nengine_stats_interval: 0", 0),
        ("routing_logic: leastload", 1),
    ] {
        let before = a.deliveries_to("/metrics").len();
        edge(settings).engines([&a]).start().await;
        assert_eq!(
            a.deliveries_to("/metrics").len() - before,
            looks,
            "{settings}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_keeps_its_engine_whatever_names_it() {
    let all: [_; 4] = engines(named).await;
    let settings = "routing_logic: session\nsession_key: x-user-id";
    let edge = edge(settings).engines(&all).start().await;
    let mut seen = std::collections::BTreeSet::new();
    for n in 0..24 {
        let name = format!("someone-{n}");
        let by_header = session("model_", "x").header("x-user-id", &name);
        let first = home(&edge, &by_header).await;
        seen.insert(first);
        for request in [
            by_header,
            session("x-user-id", &name),
            session("user", &name),
            session("prompt_cache_key", &name),
            session("safety_identifier", &name),
            session("user", "somebody-else").header("x-user-id", &name),
        ] {
            assert_eq!(home(&edge, &request).await, first, "{name}");
        }
    }
    // The ring depends on the ports, so a few sessions may leave one out; so many do not.
    for n in 0..200 {
        let request = session("user", &format!("another-{n}"));
        seen.insert(home(&edge, &request).await);
    }
    assert_eq!(seen.len(), 4, "everybody has some");
}

#[tokio::test(start_paused = true)]
async fn a_session_moves_while_its_engine_is_down_and_comes_back() {
    let all: [_; 3] = engines(named).await;
    let settings = format!("{RETRIES}routing_logic: session\nsession_key: user");
    let edge = edge(&settings).engines(&all).start().await;
    let request = session("user", "someone");
    let first = home(&edge, &request).await;
    all[first].stop().await;
    let second = home(&edge, &request).await;
    assert_ne!(second, first);
    assert_eq!(home(&edge, &request).await, second, "always the same one");
    all[first].restart(named(first)).await;
    assert_eq!(home(&edge, &request).await, first);
}

#[tokio::test(start_paused = true)]
async fn a_busy_session_spills_over_and_no_engine_is_far_above_the_mean() {
    let all: [_; 4] = engines(|_| script(hang())).await;
    let edge = edge(&format!("{UNASKED}routing_logic: session"))
        .engines(&all)
        .start()
        .await;
    let mut clients = Vec::new();
    for n in 1..=24usize {
        let mut client = Client::connect(edge.addr()).await;
        let seen: Vec<_> = all.iter().map(ScriptedEngine::seen).collect();
        client.send_request(&session("user", "loud")).await;
        clients.push(client);
        let next = all.iter().zip(seen);
        let next = next.map(|(engine, seen)| Box::pin(engine.wait_for_deliveries(seen + 1)));
        futures::future::select_all(next).await;
        let begun: Vec<_> = all.iter().map(ScriptedEngine::seen).collect();
        assert_eq!(begun.iter().sum::<usize>(), n);
        let bound = (5 * n).div_ceil(4 * 4);
        assert!(
            begun.iter().all(|count| *count <= bound),
            "{begun:?} of {n}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_engine_that_just_answered_a_503_is_picked_last_under_every_logic() {
    for logic in ["roundrobin", "leastload", "session", "prefixaware"] {
        for _ in 0..6 {
            let [a, b] = engines(|_| script([status(503), ok("late")])).await;
            let settings = format!("{RETRIES}{UNASKED}routing_logic: {logic}");
            let edge = edge(&settings).engines([&a, &b]).start().await;
            let response = edge.ask(&session("user", "u")).await;
            assert_eq!(
                (response.text(), response.attempts()),
                ("late", 3),
                "{logic}"
            );
            // Each once, then one of them again.
            assert!(a.seen() >= 1 && b.seen() >= 1, "{logic}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_excluded_engine_is_never_asked_again_under_any_logic() {
    for logic in ["roundrobin", "leastload", "session", "prefixaware"] {
        let dead = ScriptedEngine::refusing().await;
        let alive = ScriptedEngine::start(ok("alive")).await;
        let settings = format!("{RETRIES}{UNASKED}routing_logic: {logic}");
        let edge = edge(&settings).engines([&dead, &alive]).start().await;
        for n in 0..20 {
            let response = edge.ask(&session("user", &n.to_string())).await;
            assert_eq!(response.text(), "alive", "{logic}");
            assert!(response.attempts() <= 2, "{logic}");
            assert_eq!(response.waited(), ms(0), "{logic}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn adapters_are_models_that_some_engines_have() {
    let [base, tuned] = engines(named).await;
    let edge = edge(RETRIES)
        .engine(&base, &["m"])
        .engine(&tuned, &["m", "m-lora"])
        .start()
        .await;
    let ask = |model: &str| post("/v1/completions").body(format!(r#"{{"model":"{model}"}}"#));
    for _ in 0..6 {
        assert_eq!(home(&edge, &ask("m-lora")).await, 1);
    }
    let both: std::collections::BTreeSet<_> =
        [home(&edge, &ask("m")).await, home(&edge, &ask("m")).await].into();
    assert_eq!(both.len(), 2);
    // All attempts of a request stay among those that have its model.
    tuned.stop().await;
    let response = edge.ask(&ask("m-lora")).await;
    assert_eq!((response.status, response.attempts()), (502, 5));
    assert_eq!(base.seen(), 1);
}
