//! Requests whose client chooses the engine, and requests that name no model.

use crate::support::*;

const PINS: &str = "allow_pins: true\n";

async fn pair() -> (ScriptedEngine, ScriptedEngine) {
    (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    )
}

async fn named(settings: &str, a: &ScriptedEngine, b: &ScriptedEngine) -> TestEdge {
    edge(settings)
        .engine_with(a, "id: a")
        .engine_with(b, "id: b")
        .start()
        .await
}

fn completion(target: &str) -> Request {
    post(target).body(r#"{"model":"m"}"#)
}

#[tokio::test(start_paused = true)]
async fn the_header_or_the_query_chooses_the_engine() {
    let (a, b) = pair().await;
    let edge = named(PINS, &a, &b).await;
    for _ in 0..4 {
        let by_header = completion("/v1/completions").header("x-vllm-pingora-engine", "b");
        assert_eq!(edge.ask(&by_header).await.text(), "b");
        let response = edge.ask(&completion("/v1/completions?x=%20&id=b&y")).await;
        assert_eq!(response.text(), "b");
        assert_eq!(response.headers.get("x-vllm-pingora-engine"), Some("b"));
    }
    assert_eq!(a.seen(), 0);
    // The engine does not hear of it.
    for delivery in b.deliveries() {
        assert!(!delivery.headers.has("x-vllm-pingora-engine"));
        assert!(!delivery.target.contains("id="), "{}", delivery.target);
    }
    assert_eq!(b.deliveries()[1].target, "/v1/completions?x=%20&y");
}

#[tokio::test(start_paused = true)]
async fn retries_of_a_pinned_request_stay_on_its_engine() {
    let a = ScriptedEngine::start(script([status(503), status(429), ok("a")])).await;
    let b = ScriptedEngine::start(ok("b")).await;
    let edge = named(&format!("{RETRIES}{PINS}"), &a, &b).await;
    let response = edge.ask(&completion("/v1/completions?id=a")).await;
    assert_eq!((response.text(), response.attempts()), ("a", 3));
    assert_eq!(response.waited(), ms(600));
    a.stop().await;
    let response = edge.ask(&completion("/v1/completions?id=a")).await;
    assert_eq!((response.status, response.attempts()), (502, 5));
    assert_eq!(b.seen(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_those_who_may_choose() {
    let (a, b) = pair().await;
    let settings = "api_keys: [plain]\npin_api_keys: [special]";
    let edge = named(settings, &a, &b).await;
    let ask = |key: &str, target| completion(target).set("Authorization", &format!("Bearer {key}"));
    let refused = edge.ask(&ask("plain", "/v1/completions?id=a")).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.json()["error"]["code"], "pin_not_allowed");
    let response = edge.ask(&ask("plain", "/v1/completions")).await;
    assert_eq!(response.status, 200);
    assert!(!response.headers.has("x-vllm-pingora-engine"));
    let response = edge.ask(&ask("special", "/v1/completions?id=a")).await;
    assert_eq!((response.text(), response.status), ("a", 200));
    assert_eq!(
        edge.ask(&ask("other", "/v1/completions?id=a")).await.status,
        401
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_not_there_cannot_be_chosen() {
    let (a, b) = pair().await;
    let x = ScriptedEngine::start(ok("x")).await;
    let edge = edge(PINS)
        .engine_with(&a, "id: a")
        .engine_with(&b, "id: b")
        .url(&x.url(), &["x"])
        .start()
        .await;
    let other = "/v1/completions?id=2";
    for target in ["/v1/completions?id=nobody", "/v1/completions?id=", other] {
        let response = edge.ask(&completion(target)).await;
        assert_eq!(response.status, 404, "{target}");
        assert_eq!(response.json()["error"]["code"], "engine_not_found");
    }
    for request in [
        completion("/v1/completions?id=a&id=b"),
        completion("/v1/completions?id=a").header("x-vllm-pingora-engine", "b"),
    ] {
        assert_eq!(edge.ask(&request).await.status, 400);
    }
    assert_eq!((a.seen(), b.seen(), x.seen()), (0, 0, 0));
    let own = post(other).body(r#"{"model":"x"}"#);
    assert_eq!(edge.ask(&own).await.text(), "x");
}

#[tokio::test(start_paused = true)]
async fn requests_without_a_model_go_to_the_default_one() {
    let (a, b) = pair().await;
    let settings = "default_model: usual\naliases: {usual: n}";
    let edge = edge(settings)
        .engine(&a, &["m"])
        .engine(&b, &["n"])
        .start()
        .await;
    let ask = post("/v1/completions").body(r#"{"prompt":"p"}"#);
    assert_eq!(edge.ask(&ask).await.text(), "b");
    assert_eq!(b.deliveries()[0].text(), r#"{"model":"n","prompt":"p"}"#);
    assert_eq!(edge.ask(&completion("/v1/completions")).await.text(), "a");
    let form = "--X\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\nRIFF\r\n--X--\r\n";
    let upload = post("/v1/audio/transcriptions")
        .set("Content-Type", "multipart/form-data; boundary=X")
        .body(form);
    assert_eq!(edge.ask(&upload).await.text(), "b");
    let model = "--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nn\r\n";
    assert_eq!(b.deliveries()[1].text(), format!("{model}{form}"));
    let talk = Request::new("GET", "/v1/realtime").header("Upgrade", "websocket");
    edge.ask(&talk).await;
    assert_eq!(b.deliveries()[2].path(), "/v1/realtime");
    // Nonsense is not made sense of.
    for body in ["", "[]", r#"{"model":5}"#, r#"{"model":null}"#, "{"] {
        let response = edge.ask(&post("/v1/completions").body(body)).await;
        assert_eq!(response.status, 400, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_lets_clients_choose_is_not_for_the_engines() {
    let (a, b) = pair().await;
    let edge = named("pin_api_keys: [special]", &a, &b).await;
    let ask =
        |key: &str| completion("/v1/completions").set("Authorization", &format!("Bearer {key}"));
    for (key, seen) in [
        ("special", None),
        ("engines-own", Some("Bearer engines-own")),
    ] {
        edge.ask(&ask(key)).await;
        edge.ask(&ask(key)).await;
        for engine in [&a, &b] {
            let last = engine.deliveries().pop().unwrap();
            assert_eq!(last.headers.get("authorization"), seen, "{key}");
        }
        let list = Request::new("GET", "/v1/models").set("Authorization", &format!("Bearer {key}"));
        edge.ask(&list).await;
        let asked = a.deliveries().pop().unwrap();
        assert_eq!(
            (asked.path(), asked.headers.get("authorization")),
            ("/v1/models", seen)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_query_of_an_added_route_is_its_own() {
    let (a, b) = pair().await;
    let settings = "extra_routes: [{method: GET, path: /v1/files, model: any, resend: always}]";
    let edge = named(settings, &a, &b).await;
    let response = edge.ask(&Request::new("GET", "/v1/files?id=file-1")).await;
    assert_eq!(response.status, 200);
    assert_eq!(a.deliveries()[0].target, "/v1/files?id=file-1");
}
