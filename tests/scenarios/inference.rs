//! Engines that are made to work now and then, since one that is frozen says that it is well.

use crate::support::*;

const ON: &str = "static_backend_health_checks: true\n";

/// An engine that says that it is well, and plays `reply` for whatever is work.
fn seemingly_well(reply: Reply) -> Script {
    script(reply)
        .on("/health", ok(""))
        .on("/is_sleeping", status(404))
}

/// As a vLLM server does: the head comes, and then nothing.
fn frozen() -> Script {
    seemingly_well(chunks([(secs(3600), "never")]))
}

#[tokio::test(start_paused = true)]
async fn a_frozen_engine_that_nobody_asks_is_found_and_is_back_when_it_works() {
    let a = ScriptedEngine::start(frozen()).await;
    let b = ScriptedEngine::start(seemingly_well(ok("b"))).await;
    let edge = edge(ON).engines([&a, &b]).start().await;
    edge.probe().await;
    edge.probe_inference(0).await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    edge.probe_inference(1).await;
    assert_eq!(edge.condition(0).await, words("down", "inference"));
    assert_eq!(edge.condition(1).await, words("up", "answers"));
    a.play(seemingly_well(ok("a")));
    edge.probe().await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.text(), "b");
    }
    edge.probe_inference(2).await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    let before = a.seen();
    for _ in 0..4 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(a.seen() - before, 2);
}

#[tokio::test(start_paused = true)]
async fn engines_are_made_to_work_as_often_as_the_settings_say() {
    let a = ScriptedEngine::start(frozen()).await;
    let b = ScriptedEngine::start(seemingly_well(ok("b"))).await;
    let edge = edge(ON).engines([&a, &b]).start().await;
    edge.keep_up();
    // The first comes within a minute, each gives up after ten seconds, and the next follows a
    // minute later, give or take a tenth.
    tokio::time::sleep(secs(60 + 10 + 66 + 10 + 1)).await;
    assert_eq!(edge.condition(0).await, words("down", "inference"));
    tokio::time::sleep(secs(453)).await;
    let made = b.seen();
    assert!((9..=12).contains(&made), "in ten minutes: {made}");
}

#[tokio::test(start_paused = true)]
async fn each_type_of_model_has_work_of_its_own() {
    for (kind, path, word) in [
        ("chat", "/v1/chat/completions", r#""max_tokens":1"#),
        ("completion", "/v1/completions", r#""max_tokens":1"#),
        ("embeddings", "/v1/embeddings", r#""input":"#),
        ("rerank", "/v1/rerank", r#""documents":["#),
        ("score", "/v1/score", r#""text_1":"#),
        ("transcription", "/v1/audio/transcriptions", "RIFF"),
        ("vision", "/v1/chat/completions", "data:image/png;base64,"),
        ("messages", "/v1/messages", r#""max_tokens":1"#),
    ] {
        let a = ScriptedEngine::start(ok("{}")).await;
        let edge = edge(&format!("{ON}engine_api_key: sk-engines\n"))
            .engine_with(&a, &format!("type: {kind}"))
            .start()
            .await;
        edge.probe_inference(0).await;
        let delivery = a.deliveries().pop().expect("it was asked");
        assert_eq!((&*delivery.method, &*delivery.target), ("POST", path));
        let body = String::from_utf8_lossy(&delivery.body).into_owned();
        assert!(body.contains(word), "{kind}: {body}");
        let field = |name| delivery.headers.get(name).unwrap_or_default();
        assert_eq!(field("authorization"), "Bearer sk-engines");
        let is_form = field("content-type").starts_with("multipart/form-data");
        assert_eq!(is_form, kind == "transcription");
        a.assert_clean();
    }
}

#[tokio::test(start_paused = true)]
async fn each_model_of_an_engine_has_its_turn() {
    let a = ScriptedEngine::start(ok("{}")).await;
    let edge = edge(ON).engine(&a, &["m", "lora"]).start().await;
    for turn in 0..3 {
        edge.probe_inference(turn).await;
    }
    let deliveries = a.deliveries();
    let models: Vec<_> = deliveries
        .iter()
        .map(|d| d.json()["model"].clone())
        .collect();
    assert_eq!(models, ["m", "lora", "m"]);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_goes_on_answering_may_be_slow_to_work_for_probes() {
    let busy = script(sse(100, secs(1)))
        .on("/health", hang())
        .on("/v1/completions", hang());
    let a = ScriptedEngine::start(busy).await;
    let settings = format!("{ON}health_check_fall: 1\nstatic_backend_health_check_fall: 1\n");
    let edge = edge(&settings).engines([&a]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    let probed = async {
        a.wait_for_deliveries(1).await;
        for turn in 0..5 {
            // One answer that goes on for long is as good as many.
            edge.probe_inference(turn).await;
            edge.probe().await;
            assert_eq!(edge.condition(0).await, words("up", "answers"));
        }
    };
    let request = req_s();
    let (response, ()) = tokio::join!(client.ask(&request), probed);
    assert!(response.complete);
    edge.probe_inference(6).await;
    assert_eq!(edge.condition(0).await, words("down", "inference"));
}

#[tokio::test(start_paused = true)]
async fn what_a_frozen_engine_refuses_by_itself_is_no_sign_of_life() {
    let refuses = || seemingly_well(status(400)).on("/v1/completions", hang());
    let a = ScriptedEngine::start(refuses()).await;
    let edge = edge(ON).engines([&a]).start().await;
    for turn in 0..2 {
        let asked = async {
            a.wait_for_deliveries_to("/v1/completions", turn + 1).await;
            assert_eq!(edge.ask(&req_n()).await.status, 400);
        };
        tokio::join!(edge.probe_inference(turn), asked);
    }
    assert_eq!(edge.condition(0).await, words("down", "inference"));
    assert_eq!(edge.ask(&req_n()).await.status, 400);
    assert_eq!(edge.condition(0).await, words("down", "inference"));
}

#[tokio::test(start_paused = true)]
async fn being_busy_or_asked_for_the_wrong_thing_says_nothing() {
    for code in [503, 429, 400, 404] {
        let a = ScriptedEngine::start(seemingly_well(status(code))).await;
        let edge = edge(ON).engines([&a]).start().await;
        for turn in 0..4 {
            edge.probe_inference(turn).await;
        }
        assert_eq!(a.seen(), 4);
        assert_eq!(edge.condition(0).await, words("up", "answers"), "{code}");
    }
    let a = ScriptedEngine::start(seemingly_well(status(500))).await;
    let edge = edge(ON).engines([&a]).start().await;
    for turn in 0..2 {
        edge.probe_inference(turn).await;
    }
    assert_eq!(edge.condition(0).await, words("down", "inference"));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_made_to_work_unasked_or_when_it_cannot() {
    let awake = ScriptedEngine::start(seemingly_well(ok("{}"))).await;
    let asleep = script(ok("{}"))
        .on("/health", ok(""))
        .on("/is_sleeping", ok(r#"{"is_sleeping":true}"#));
    let asleep = ScriptedEngine::start(asleep).await;
    let edge_off = edge("").engines([&awake]).start().await;
    edge_off.probe_inference(0).await;
    assert_eq!(awake.accepted(), 0);
    let edge_on = edge(ON).engines([&asleep]).start().await;
    edge_on.probe().await;
    edge_on.probe_inference(0).await;
    assert_eq!(asleep.seen(), 0);
}
