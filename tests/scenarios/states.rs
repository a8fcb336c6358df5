//! What an engine's state tells beyond up and down: starting, and what follows from it.

use serde_json::json;

use crate::support::*;

/// A list of models as an engine gives it.
fn list(models: &[&str]) -> Reply {
    let data: Vec<_> = models.iter().map(|id| json!({"id": id})).collect();
    ok(json!({"object": "list", "data": data}).to_string())
}

/// An engine that works, and lists these models.
fn serving(text: &str, models: &[&str]) -> Script {
    script(ok(text))
        .on("/health", ok(""))
        .on("/is_sleeping", status(404))
        .on("/v1/models", list(models))
}

/// How often an engine came into this condition.
fn changes(edge: &TestEdge, engine: &ScriptedEngine, condition: &str) -> f64 {
    let labels = [("engine", &*engine.url()), ("condition", condition)];
    edge.metric("vllm_pingora_engine_condition_changes_total", &labels)
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_starts_gets_no_requests_until_a_probe_finds_it_up() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(serving("b", &[])).await,
    );
    let edge = edge("").engines([&a, &b]).start().await;
    for _ in 0..5 {
        edge.probe().await;
        assert_eq!(edge.condition(0).await, words("starting", "connect"));
        for _ in 0..4 {
            assert_eq!(edge.ask(&req_n()).await.text(), "b");
        }
        tokio::time::sleep(secs(60)).await;
    }
    let up = [("engine", &*a.url())];
    assert_eq!(edge.metric("vllm_pingora_engine_up", &up), 0.0);
    a.listen_with(serving("a", &[])).await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    assert_eq!(a.seen(), 5);
    assert_eq!(
        ["starting", "up", "down", "ejected"].map(|condition| changes(&edge, &a, condition)),
        [1.0, 1.0, 0.0, 0.0]
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_comes_up_gets_requests_within_the_time_between_two_probes() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(serving("b", &["m"])).await,
    );
    let settings = "health_check_interval_ms: 5000\nmodels_refresh_ms: 3600000\n";
    let edge = edge(settings).engine(&a, &[]).engine(&b, &[]).start().await;
    edge.keep_up();
    tokio::time::sleep(secs(120)).await;
    assert_eq!(edge.condition(0).await, words("starting", "connect"));
    a.listen_with(serving("a", &["m"])).await;
    // A tenth more, by which the time is spread.
    tokio::time::sleep(ms(5600)).await;
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    assert_eq!(a.seen(), 5);
}

#[tokio::test(start_paused = true)]
async fn before_the_first_probe_one_request_finds_out_that_an_engine_is_starting() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge("").engines([&a, &b]).start().await;
    let mut refused = 0;
    for _ in 0..10 {
        refused += usize::from(edge.ask(&req_n()).await.status == 502);
        tokio::time::sleep(secs(60)).await;
    }
    assert_eq!(refused, 1);
    assert_eq!(edge.condition(0).await, words("starting", "connect"));
}

#[tokio::test(start_paused = true)]
async fn however_many_engines_are_starting_none_of_them_is_asked() {
    let starting = [
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    ];
    let b = ScriptedEngine::start(serving("b", &[])).await;
    let edge = edge("").engines(&starting).engines([&b]).start().await;
    edge.probe().await;
    for _ in 0..20 {
        assert_eq!(edge.ask(&req_n()).await.text(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn engines_that_are_starting_are_asked_where_there_are_no_others() {
    let starting = [
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    ];
    let edge = edge("").engines(&starting).start().await;
    edge.probe().await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.status, 502);
    }
    edge.wait_until_idle().await;
    for engine in &starting {
        assert_eq!(edge.attempts_on(engine), 2.0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_has_started_gets_its_share_little_by_little() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(serving("b", &[])).await,
    );
    let settings = "slow_start_ms: 100000\n";
    let edge = edge(settings).engines([&a, &b]).start().await;
    edge.probe().await;
    a.listen_with(serving("a", &[])).await;
    edge.probe().await;
    for _ in 0..400 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    let cold = a.seen();
    assert!((3..80).contains(&cold), "a tenth of a half: {cold}");
    tokio::time::sleep(secs(100)).await;
    for _ in 0..100 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(a.seen() - cold, 50);
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_configured_models_is_asked_for_them_as_soon_as_it_is_up() {
    let a = ScriptedEngine::refusing().await;
    let edge = edge("").engine(&a, &[]).start().await;
    assert_eq!(edge.condition(0).await, words("starting", "connect"));
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    a.listen_with(serving("a", &["m"])).await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    assert_eq!(edge.ask(&req_n()).await.text(), "a");
    // Once is enough.
    edge.probe().await;
    assert_eq!(a.deliveries_to("/v1/models").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lists_no_model_is_starting() {
    let a = ScriptedEngine::start(serving("a", &[])).await;
    let edge = edge("").engine(&a, &[]).start().await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("starting", "no_models"));
    // Which model it will be nobody knows.
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    a.play(serving("a", &["m"]));
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    assert_eq!(edge.ask(&req_n()).await.text(), "a");
    // A known engine that drops its last model is not starting.
    a.play(serving("a", &[]));
    edge.look_again().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_comes_back_with_another_model_is_asked_for_it_at_once() {
    let a = ScriptedEngine::start(serving("a", &["m"])).await;
    let edge = edge("health_check_fall: 1").engine(&a, &[]).start().await;
    edge.probe().await;
    a.stop().await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("down", "probe"));
    a.listen_with(serving("a", &["x"])).await;
    edge.probe().await;
    let x = post("/v1/completions").body(r#"{"model":"x"}"#);
    assert_eq!(edge.ask(&x).await.text(), "a");
}
