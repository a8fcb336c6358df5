//! An engine that denies a model which it was thought to serve: what it serves was asked a while
//! ago, and is asked again.

use serde_json::json;

use crate::support::*;

/// How a vLLM server denies a model.
fn denied(model: &str) -> Reply {
    let message = format!("The model `{model}` does not exist. Valid aliases: other.");
    let error = json!({"message": message, "type": "NotFoundError", "param": "model", "code": 404});
    status(404).body(json!({ "error": error }).to_string())
}

fn list(models: &[&str]) -> Reply {
    let data: Vec<_> = models.iter().map(|id| json!({"id": id})).collect();
    ok(json!({"object": "list", "data": data}).to_string())
}

/// Plays `reply`, and says that it serves `m`: at first, or always.
fn listing(reply: Reply, lists: impl Into<Script>) -> Script {
    script(reply).on("/v1/models", lists)
}

fn always() -> Reply {
    list(&["m"])
}

fn at_first() -> [Reply; 2] {
    [list(&["m", "other"]), list(&["other"])]
}

fn retried(edge: &TestEdge) -> f64 {
    let labels = [("reason", "model_not_found")];
    edge.metric("vllm_pingora_retries_total", &labels)
}

#[tokio::test(start_paused = true)]
async fn a_denied_model_is_asked_for_at_another_engine_at_once() {
    for request in [req_n(), req_s()] {
        let a = ScriptedEngine::start(listing(denied("m"), at_first())).await;
        let b = ScriptedEngine::start(listing(ok("b"), always())).await;
        let edge = edge(RETRIES).engine(&a, &[]).engine(&b, &[]).start().await;
        let response = edge.ask(&request).await;
        assert_eq!((response.status, response.text()), (200, "b"));
        assert_eq!((response.attempts(), response.waited().as_millis()), (2, 0));
        // It is nobody's failure, and known from then on.
        a.wait_for_deliveries_to("/v1/models", 2).await;
        for _ in 0..5 {
            let response = edge.ask(&request).await;
            assert_eq!((response.text(), response.attempts()), ("b", 1));
        }
        edge.wait_until_idle().await;
        assert_eq!((a.seen(), retried(&edge)), (1, 1.0));
        assert_eq!(edge.attempts_ended("model_not_found"), 1.0);
        assert_eq!(edge.condition(0).await, words("up", "answers"));
        assert_eq!(a.deliveries()[0].body, b.deliveries()[0].body);
    }
}

#[tokio::test(start_paused = true)]
async fn with_no_other_engine_the_denial_is_the_answer() {
    for settings in ["", RETRIES] {
        let a = ScriptedEngine::start(listing(denied("m"), at_first())).await;
        let edge = edge(settings).engine(&a, &[]).start().await;
        let response = edge.ask(&req_n().header("X-Request-Id", "denied")).await;
        assert_eq!(response.status, 404);
        assert_eq!(response.json()["error"]["type"], "NotFoundError");
        assert!(
            edge.access_line("denied")
                .await
                .contains(" reason=answered ")
        );
        // The next request finds that nobody serves it any more.
        a.wait_for_deliveries_to("/v1/models", 2).await;
        let known = async {
            while edge.ask(&req_n()).await.status != 503 {
                tokio::time::sleep(ms(1)).await;
            }
        };
        within(PATIENCE, || "the model is still served".to_owned(), known).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_retries_off_the_denial_passes_and_the_engine_is_asked_again() {
    let a = ScriptedEngine::start(listing(denied("m"), at_first())).await;
    let b = ScriptedEngine::start(listing(ok("b"), always())).await;
    let edge = edge("").engine(&a, &[]).engine(&b, &[]).start().await;
    assert_eq!(edge.ask(&req_n()).await.status, 404);
    a.wait_for_deliveries_to("/v1/models", 2).await;
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.text(), "b");
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_goes_on_denying_is_asked_once_a_second() {
    let a = ScriptedEngine::start(listing(denied("m"), always())).await;
    let edge = edge("").engine(&a, &[]).start().await;
    for asked in 2..5 {
        for _ in 0..10 {
            assert_eq!(edge.ask(&req_n()).await.status, 404);
        }
        a.wait_for_deliveries_to("/v1/models", asked).await;
        tokio::time::sleep(secs(1)).await;
        assert_eq!(a.deliveries_to("/v1/models").len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn denials_cost_attempts_like_all_others() {
    let denying = || listing(denied("m"), always());
    let a = ScriptedEngine::start(denying()).await;
    let b = ScriptedEngine::start(denying()).await;
    let c = ScriptedEngine::start(listing(ok("c"), always())).await;
    for (budget, status) in [(2, 404), (3, 200)] {
        let edge = edge(&retries(budget))
            .engine(&a, &[])
            .engine(&b, &[])
            .engine(&c, &[])
            .start()
            .await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(
            (response.status, response.attempts()),
            (status, budget as usize)
        );
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("exhausted"), f64::from(3 - budget));
    }
}

#[tokio::test(start_paused = true)]
async fn the_models_that_are_configured_are_not_doubted() {
    let a = ScriptedEngine::start(listing(denied("m"), always())).await;
    let b = ScriptedEngine::start(listing(ok("b"), always())).await;
    let edge = edge(RETRIES).engines([&a, &b]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.attempts()), (404, 1));
    assert_eq!(a.deliveries_to("/v1/models").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_other_404_passes_byte_for_byte() {
    let long = format!("{{\"x\":\"{}\"}}", "}".repeat(40_000));
    let pieces = long.as_bytes().chunks(1000).map(|piece| (ms(1), piece));
    let others = [
        status(404).body(r#"{"detail":"Not Found"}"#),
        denied("other"),
        status(404).body("The model `m` does not exist."),
        status(404),
        denied("m").header("Content-Type", "text/plain"),
        denied("m").header("Content-Encoding", "identity"),
        denied("m").with_status(400),
        chunks(pieces).with_status(404),
        status(404).body(&long),
    ];
    for settings in ["", RETRIES] {
        for other in &others {
            let direct = ScriptedEngine::start(other.clone()).await;
            let direct = Client::connect(direct.addr()).await.ask(&req_n()).await;
            let a = ScriptedEngine::start(listing(other.clone(), always())).await;
            let b = ScriptedEngine::start(listing(ok("b"), always())).await;
            let edge = edge(settings).engine(&a, &[]).engine(&b, &[]).start().await;
            let response = edge.ask(&req_n()).await;
            assert_eq!(response.status, direct.status);
            assert!(response.body == direct.body && response.complete);
            assert_eq!((a.seen(), b.seen()), (1, 0));
            assert_eq!(a.deliveries_to("/v1/models").len(), 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_in_pieces_is_one_and_a_broken_one_is_a_failure() {
    let whole = json!({"error": {"message": "The model `m` does not exist."}}).to_string();
    let pieces = || whole.as_bytes().chunks(7).map(|piece| (ms(10), piece));
    let denial = chunks(pieces()).with_status(404);
    for (reply, outcome) in [
        (denial.clone(), "model_not_found"),
        (denial.rst_at(Point::Pieces(3)), "closed_after_head"),
    ] {
        let a = ScriptedEngine::start(listing(reply, always())).await;
        let b = ScriptedEngine::start(listing(ok("b"), always())).await;
        let edge = edge(RETRIES).engine(&a, &[]).engine(&b, &[]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.text()), (200, "b"));
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended(outcome), 1.0, "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alias_is_denied_by_the_name_engines_know() {
    let a = ScriptedEngine::start(listing(denied("m"), always())).await;
    let b = ScriptedEngine::start(listing(ok("b"), always())).await;
    let edge = edge(&format!("{RETRIES}aliases: {{gpt: m}}\n"))
        .engine(&a, &[])
        .engine(&b, &[])
        .start()
        .await;
    let request = post("/v1/completions").body(r#"{"model":"gpt"}"#);
    assert_eq!(edge.ask(&request).await.text(), "b");
    assert_eq!(b.deliveries()[0].text(), r#"{"model":"m"}"#);
}
