//! A configuration that changes while the router runs, and engines that come and go with it.

use crate::support::*;

fn id(name: &str) -> String {
    format!("id: {name}")
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_gone_gets_nothing_new_and_finishes_what_runs() {
    let [a, b] = [
        ScriptedEngine::start(script(sse(10, secs(1)))).await,
        ScriptedEngine::start(ok("b")).await,
    ];
    let with = |engines: &[(&ScriptedEngine, &str)]| {
        let add = |edge: EdgeBuilder, (engine, name): &(&ScriptedEngine, &str)| {
            edge.engine_with(engine, &id(name))
        };
        engines.iter().fold(edge(RETRIES), add)
    };
    let edge = with(&[(&a, "a")]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 1).await;

    assert!(edge.reload(&with(&[(&b, "b")])));
    let listed = edge.admin("/engines").await.json();
    let condition = |place: usize| listed["engines"][place]["condition"].clone();
    assert_eq!(
        (condition(0), condition(1)),
        ("up".into(), "leaving".into())
    );
    assert_eq!(
        edge.metric(
            "vllm_pingora_engine_requests_in_flight",
            &[("engine", &a.url())]
        ),
        1.0
    );
    for _ in 0..5 {
        assert_eq!(edge.ask(&req_n()).await.text(), "b");
    }
    client.finish(&mut response).await;
    assert_eq!((response.complete, response.body), (true, sse_body(10)));
    edge.wait_until_idle().await;
    assert_eq!((a.seen(), b.seen()), (1, 5));
    // With its last request it is out of sight.
    let listed = edge.admin("/engines").await.json();
    assert_eq!(listed["engines"].as_array().unwrap().len(), 1);
    assert!(
        !edge
            .exposition()
            .contains(&format!("engine_up{{engine=\"{}\"}}", a.url()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_pooled_connection_to_an_engine_that_is_gone_is_not_used() {
    let [a, b] = [
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    ];
    let before = edge(RETRIES)
        .engine_with(&a, "id: a")
        .engine_with(&b, "id: b");
    let edge_ = before.start().await;
    for _ in 0..4 {
        edge_.ask(&req_n()).await;
    }
    assert!(edge_.reload(&edge(RETRIES).engine_with(&b, "id: b")));
    for _ in 0..4 {
        assert_eq!(edge_.ask(&req_n()).await.text(), "b");
    }
    assert_eq!((a.seen(), b.seen()), (2, 6));
    // Another process at its place is another engine, with connections of its own.
    let connections = a.accepted();
    assert!(edge_.reload(&edge(RETRIES).engine_with(&a, "id: other")));
    assert_eq!(edge_.ask(&req_n()).await.text(), "a");
    assert_eq!(a.accepted(), connections + 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_in_its_backoff_goes_on_with_the_engines_there_are_then() {
    let [failing, healthy] = [
        ScriptedEngine::start(status(503)).await,
        ScriptedEngine::start(ok("new")).await,
    ];
    let edge_ = edge(RETRIES).engine_with(&failing, "id: a").start().await;
    let request = req_n();
    let change = async {
        tokio::time::sleep(ms(100)).await;
        assert!(edge_.reload(&edge(RETRIES).engine_with(&healthy, "id: b")));
    };
    let (response, ()) = tokio::join!(edge_.ask(&request), change);
    assert_eq!((response.status, response.text()), (200, "new"));
    assert_eq!(response.waited().as_millis(), 200);
    assert_eq!((failing.seen(), healthy.seen()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_no_engine_is_left_for_is_not_counted() {
    let failing = ScriptedEngine::start(status(503)).await;
    let other = ScriptedEngine::start(ok("other")).await;
    let edge_ = edge(RETRIES).engine_with(&failing, "id: a").start().await;
    let request = req_n();
    let change = async {
        tokio::time::sleep(ms(100)).await;
        assert!(edge_.reload(&edge(RETRIES).engine(&other, &["q"])));
    };
    let (response, ()) = tokio::join!(edge_.ask(&request), change);
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
    edge_.wait_until_idle().await;
    assert_eq!(edge_.metric("vllm_pingora_retries_total", &[]), 0.0);
    edge_.assert_backoffs(&[]);
}

#[tokio::test(start_paused = true)]
async fn turns_counters_and_connections_survive_a_reload() {
    let engines = [
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let with = |settings: &str| {
        let add = |edge: EdgeBuilder, (engine, name)| edge.engine_with(engine, &id(name));
        engines
            .iter()
            .zip(["a", "b", "c"])
            .fold(edge(settings), add)
    };
    let edge = with(RETRIES).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let mut answers = Vec::new();
    for round in 0..6 {
        answers.push(client.ask(&req_n()).await.text().to_owned());
        let settings = format!("{RETRIES}max_retries: {}\n", 2 + round);
        assert!(edge.reload(&with(&settings)));
    }
    assert_eq!(answers, ["a", "b", "c", "a", "b", "c"]);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("answered"), 6.0);
    assert_eq!(edge.open(), 1, "the client keeps its connection");
    // So do the engines: a connection each.
    assert_eq!(engines.each_ref().map(ScriptedEngine::accepted), [1, 1, 1]);
    assert_eq!(
        edge.metric(
            "vllm_pingora_config_reloads_total",
            &[("result", "adopted")]
        ),
        6.0
    );
}

#[tokio::test(start_paused = true)]
async fn an_ejected_engine_stays_out_over_a_reload() {
    let dead = ScriptedEngine::start(ok("alive")).await;
    let [b, c] = [
        ScriptedEngine::start(ok("b")).await,
        ScriptedEngine::start(ok("c")).await,
    ];
    let with = |settings: &str| {
        edge(&format!("{RETRIES}eject_pause_ms: 60000\n{settings}"))
            .engine_with(&dead, "id: dead")
            .engine_with(&b, "id: b")
            .engine_with(&c, "id: c")
    };
    let edge = with("").start().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "alive");
    dead.stop().await;
    for _ in 0..12 {
        edge.ask(&req_n()).await;
    }
    assert!(edge.reload(&with("slow_start_ms: 1000\n")));
    for _ in 0..12 {
        edge.ask(&req_n()).await;
    }
    edge.wait_until_idle().await;
    assert_eq!(edge.attempts_on(&dead), 4.0);
}

#[tokio::test(start_paused = true)]
async fn settings_take_effect_with_the_next_request() {
    let engine = ScriptedEngine::start(script([status(503), status(503), ok("ok")])).await;
    let with = |settings: &str| edge(settings).engine_with(&engine, "id: a");
    let edge = with("").start().await;
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    assert!(edge.reload(&with(&format!(
        "{RETRIES}aliases: {{gpt: m}}\napi_keys: [secret]\n"
    ))));
    assert_eq!(edge.ask(&req_n()).await.status, 401);
    let request = post("/v1/chat/completions")
        .set("Authorization", "Bearer secret")
        .body(r#"{"model":"gpt"}"#);
    let response = edge.ask(&request).await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.attempts(), 2);
    assert_eq!(engine.deliveries()[2].json()["model"], "m");
    assert!(
        edge.admin("/config")
            .await
            .text()
            .contains("enable_retries: true")
    );
}

#[tokio::test(start_paused = true)]
async fn a_file_with_a_mistake_changes_nothing_and_the_next_good_one_is_taken() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let with = |settings: &str| edge(settings).engine_with(&engine, "id: a");
    let edge = with("aliases: {old: m}\n").start().await;
    let successful = || edge.metric("vllm_pingora_config_last_reload_successful", &[]);
    assert_eq!(successful(), 1.0);
    for broken in [
        "port: no-number-here",
        "engines: [",
        "",
        "engines: []",
        "max_retry: 3",
    ] {
        assert!(!edge.reload_text(broken), "{broken}");
        assert_eq!(successful(), 0.0);
        let request = post("/v1/completions").body(r#"{"model":"old"}"#);
        assert_eq!(edge.ask(&request).await.text(), "ok", "{broken}");
    }
    assert!(!lines_with("router.yaml:1: port: no-number-here").is_empty());
    assert!(edge.reload(&with("aliases: {new: m}\n")));
    assert_eq!(successful(), 1.0);
    let ask = async |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        edge.ask(&post("/v1/completions").body(body)).await.status
    };
    assert_eq!((ask("new").await, ask("old").await), (200, 404));
    assert_eq!(
        edge.metric(
            "vllm_pingora_config_reloads_total",
            &[("result", "refused")]
        ),
        5.0
    );
}
