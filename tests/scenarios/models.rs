//! Which models there are, and what becomes of requests for others: C33.

use crate::support::*;

/// What an engine says it serves.
fn list<const N: usize>(models: [&str; N]) -> Reply {
    let data: Vec<_> = models
        .iter()
        .map(|id| serde_json::json!({"id": id, "object": "model", "max_model_len": 2048}))
        .collect();
    ok(serde_json::json!({"object": "list", "data": data}).to_string())
}

async fn serving<const N: usize>(models: [&str; N]) -> ScriptedEngine {
    ScriptedEngine::start(script(ok("ok")).on("/v1/models", list(models))).await
}

fn completion(body: impl AsRef<[u8]>) -> Request {
    post("/v1/chat/completions").body(body)
}

fn ids(response: &Response) -> Vec<String> {
    let list = response.json();
    assert_eq!(list["object"], "list");
    let data = list["data"].as_array().unwrap();
    data.iter()
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect()
}

async fn models(edge: &TestEdge) -> Response {
    edge.ask(&Request::new("GET", "/v1/models")).await
}

#[tokio::test(start_paused = true)]
async fn c33_an_unknown_model_is_a_404_without_an_attempt() {
    let engine = ScriptedEngine::start(ok("m")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for name in ["nope", "M", "m ", "", "m\\u0000", "\\u00fc"] {
        let response = edge
            .ask(&completion(format!(r#"{{"model":"{name}"}}"#)))
            .await;
        assert_eq!(response.status, 404, "{name:?}");
        let error = &response.json()["error"];
        assert_eq!(error["code"], "model_not_found");
        assert_eq!(error["type"], "invalid_request_error");
        assert!(error["param"].is_null());
        assert_eq!(response.waited().as_millis(), 0);
    }
    assert_eq!(engine.accepted(), 0);
    edge.wait_until_idle().await;
    assert_eq!(edge.requests("own_error"), 6.0);
    assert_eq!(edge.metric("vllm_pingora_attempts_total", &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn c33_a_body_without_a_usable_model_is_a_400() {
    let engine = ScriptedEngine::start(ok("m")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let deep = format!(
        "{{\"model\":{}{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for body in [
        &*deep,
        r#"{"model":5}"#,
        r#"{"model":1.5}"#,
        r#"{"model":true}"#,
        r#"{"model":null}"#,
        r#"{"model":nul}"#,
        r#"{"model":'m'}"#,
        r#"{"model":"m",}"#,
        r#"{"model":"m\ud800"}"#,
        r#"{"model" "m"}"#,
        r#"{model:"m"}"#,
        r#"{"Model":"m"}"#,
        r#"{"params":{"model":"m"}}"#,
        "{\"model\":\"m\n\"}",
        "null",
        " \r\n",
        "\u{feff}",
        r#"{"model":["m"]}"#,
        r#"{"model":{}}"#,
        r#"{"messages":[]}"#,
        "",
        "{",
        r#"{"model":"m""#,
        r#"{"model":"m"}x"#,
        "[]",
        "\"m\"",
        "5",
        r#"[{"model":"m"}]"#,
    ] {
        let response = edge.ask(&completion(body)).await;
        let shown: String = body.chars().take(40).collect();
        assert_eq!(response.status, 400, "{shown}");
        assert_eq!(
            response.json()["error"]["code"],
            "invalid_request",
            "{shown}"
        );
    }
    for body in [&b"{\"model\":\"m\xff\"}"[..], b"\0", b"{\"model\":\"m\"}\0"] {
        assert_eq!(edge.ask(&completion(body)).await.status, 400, "{body:?}");
    }
    let chunked = completion("").chunked([1]);
    assert_eq!(edge.ask(&chunked).await.status, 400);
    assert_eq!(engine.accepted(), 0);
    assert_eq!(edge.ask(&req_n()).await.text(), "m");
}

#[tokio::test(start_paused = true)]
async fn c33_nesting_of_any_depth_is_the_engines_to_judge() {
    let engine = ScriptedEngine::start(status(400)).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let brackets = ["[", "]"].map(|bracket| bracket.repeat(100_000));
    let valid = format!(r#"{{"x":{}{},"model":"m"}}"#, brackets[0], brackets[1]);
    assert_eq!(edge.ask(&completion(&valid)).await.status, 400);
    assert!(engine.deliveries()[0].body == valid.as_bytes());
    // Unbalanced, it is not JSON, and no engine hears of it.
    let cut = format!(r#"{{"x":{}"#, brackets[0]);
    assert_eq!(edge.ask(&completion(&cut)).await.status, 400);
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn c33_a_model_whose_engines_are_down_is_never_unknown() {
    let (a, b) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::refusing().await,
    );
    for (settings, attempts) in [("", 1.0), (RETRIES, 5.0)] {
        let edge = edge(settings).engines([&a, &b]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["error"]["code"], "engine_unreachable");
        edge.wait_until_idle().await;
        assert_eq!(edge.attempts_ended("connect"), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn c33_a_model_may_belong_to_an_engine_that_has_not_been_heard_yet() {
    let silent = ScriptedEngine::refusing().await;
    let edge = edge(RETRIES).engine(&silent, &[]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
    assert_eq!(response.headers.get("retry-after"), Some("1"));
    assert_eq!(response.waited().as_millis(), 0);

    silent
        .listen_with(script(ok("heard")).on("/v1/models", list(["m"])))
        .await;
    edge.look_again().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "heard");
    let response = edge.ask(&completion(r#"{"model":"nope"}"#)).await;
    assert_eq!(response.status, 404);
}

#[tokio::test(start_paused = true)]
async fn engines_without_configured_models_are_asked_again() {
    let engine = serving(["old", "both"]).await;
    let edge = edge(RETRIES).engine(&engine, &[]).start().await;
    let ask = async |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        edge.ask(&completion(body)).await.status
    };
    assert_eq!([ask("old").await, ask("both").await], [200, 200]);
    assert_eq!(ask("new").await, 404);

    engine.play(script(ok("ok")).on("/v1/models", list(["both", "new"])));
    edge.look_again().await;
    assert_eq!([ask("both").await, ask("new").await], [200, 200]);
    // It was served a moment ago, so it may come back.
    assert_eq!(ask("old").await, 503);

    // An engine that cannot be asked keeps what it had.
    engine.play(script(ok("ok")).on("/v1/models", status(500)));
    edge.look_again().await;
    assert_eq!([ask("both").await, ask("new").await], [200, 200]);
}

#[tokio::test(start_paused = true)]
async fn c33_models_are_the_union_over_the_engines_that_answer() {
    let down = ScriptedEngine::refusing().await;
    let (b, c) = (serving(["m", "x"]).await, serving(["m"]).await);
    let edge = edge(RETRIES)
        .engine(&down, &["m", "lost"])
        .engine(&b, &["m", "x"])
        .engine(&c, &["m"])
        .start()
        .await;
    let response = models(&edge).await;
    assert_eq!(
        (response.status, ids(&response)),
        (200, vec!["m".into(), "x".into()])
    );
    // The rest of an entry is the engine's.
    assert_eq!(response.json()["data"][0]["max_model_len"], 2048);

    let head = edge.ask(&Request::new("HEAD", "/v1/models")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn c33_an_engine_that_cannot_list_its_models_does_not_hide_the_others() {
    let broken = [status(500), ok("no json"), ok("{}"), rst_at(Point::Request)];
    for reply in broken {
        let bad = ScriptedEngine::start(script(ok("ok")).on("/v1/models", reply)).await;
        let good = serving(["m"]).await;
        let edge = edge("").engines([&bad, &good]).start().await;
        assert_eq!(ids(&models(&edge).await), ["m"]);
    }
}

#[tokio::test(start_paused = true)]
async fn c33_without_any_engine_the_models_are_a_503() {
    let down = ScriptedEngine::refusing().await;
    let edge = edge("").engines([&down]).start().await;
    let response = models(&edge).await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
    assert_eq!(response.headers.get("retry-after"), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn only_models_an_engine_is_configured_for_are_listed() {
    let engine = serving(["m", "private"]).await;
    let edge = edge("").engine(&engine, &["m", "adapter"]).start().await;
    assert_eq!(ids(&models(&edge).await), ["m", "adapter"]);
}

/// An engine that wants this bearer token for everything.
async fn guarded(key: &str) -> ScriptedEngine {
    let wanted = format!("Bearer {key}");
    let check = move |reply: Reply| {
        let wanted = wanted.clone();
        answer(move |request| {
            let known = request.headers.get("authorization") == Some(wanted.as_str());
            if known { reply.clone() } else { status(401) }
        })
    };
    let (answers, lists) = (check(ok("in")), check(list(["m"])));
    ScriptedEngine::start(script(answers).on("/v1/models", lists)).await
}

#[tokio::test(start_paused = true)]
async fn c33_engines_that_demand_a_key_are_asked_with_it() {
    let engine = guarded("engine-key").await;
    let edge = edge("engine_api_key: engine-key\n")
        .engine(&engine, &[])
        .start()
        .await;
    assert_eq!(ids(&models(&edge).await), ["m"]);
    assert_eq!(edge.ask(&req_n()).await.text(), "in");
}

#[tokio::test(start_paused = true)]
async fn c33_without_a_key_of_its_own_the_router_shows_engines_the_clients() {
    let engine = guarded("client-key").await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(ids(&models(&edge).await), ["m"]);
    let stranger = Request::new("GET", "/v1/models").set("Authorization", "Bearer other");
    assert_eq!(edge.ask(&stranger).await.status, 503);
    // What one client may see is not kept for the next.
    let nobody = Request::new("GET", "/v1/models").without("Authorization");
    assert_eq!(edge.ask(&nobody).await.status, 503);
}

#[tokio::test(start_paused = true)]
async fn an_alias_is_replaced_in_the_top_level_model_and_nowhere_else() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge(&format!("{RETRIES}aliases: {{gpt-4o: m}}\n"))
        .engines([&engine])
        .start()
        .await;
    for (sent, received) in [
        (r#"{"model":"gpt-4o"}"#, r#"{"model":"m"}"#),
        (
            "{ \"n\" : 1.0, \"e\":1e5,\n\t\"deep\":{\"model\":\"gpt-4o\"}, \"model\" : \"gpt-4o\" , \"s\":\"gpt-4o \\u00e9\"}\n",
            "{ \"n\" : 1.0, \"e\":1e5,\n\t\"deep\":{\"model\":\"gpt-4o\"}, \"model\" : \"m\" , \"s\":\"gpt-4o \\u00e9\"}\n",
        ),
        (r#"{"model":"gpt\u002d4o"}"#, r#"{"model":"m"}"#),
        (
            r#"{"model":"m","user":"gpt-4o"}"#,
            r#"{"model":"m","user":"gpt-4o"}"#,
        ),
    ] {
        engine.play([status(503), ok(r#"{"model":"m"}"#)]);
        let before = engine.seen();
        let response = edge.ask(&completion(sent)).await;
        // The answer is the engine's own.
        assert_eq!(response.text(), r#"{"model":"m"}"#);
        let seen = engine.deliveries();
        assert_eq!(seen.len(), before + 2);
        for delivery in &seen[before..] {
            assert_eq!(delivery.text(), received);
            assert_eq!(delivery.framing, Framing::Length(received.len() as u64));
        }
    }
    engine.assert_clean();
    edge.wait_until_idle().await;
    // Series carry the name engines know.
    let counted = [("model", "m"), ("outcome", "answered")];
    assert_eq!(edge.metric("vllm_pingora_requests_total", &counted), 4.0);
}

#[tokio::test(start_paused = true)]
async fn an_alias_is_listed_while_its_model_is_served() {
    let (a, b) = (serving(["m"]).await, serving(["x"]).await);
    let edge = edge("aliases: {gpt-4o: m, other: x}\n")
        .engine(&a, &["m"])
        .engine(&b, &["x"])
        .start()
        .await;
    assert_eq!(ids(&models(&edge).await), ["m", "x", "gpt-4o", "other"]);
    b.stop().await;
    tokio::time::sleep(secs(5)).await;
    let nobody = Request::new("GET", "/v1/models").without("Authorization");
    assert_eq!(ids(&edge.ask(&nobody).await), ["m", "gpt-4o"]);
}

#[tokio::test(start_paused = true)]
async fn each_model_goes_to_the_engines_that_serve_it() {
    let (a, b) = (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge(RETRIES)
        .engine(&a, &["m", "x"])
        .engine(&b, &["m"])
        .start()
        .await;
    for _ in 0..4 {
        edge.ask(&req_n()).await;
        assert_eq!(edge.ask(&completion(r#"{"model":"x"}"#)).await.text(), "a");
    }
    assert_eq!((a.seen(), b.seen()), (6, 2));

    // A dead engine's model does not wander to engines without it.
    a.stop().await;
    assert_eq!(edge.ask(&completion(r#"{"model":"x"}"#)).await.status, 502);
    assert_eq!(b.seen(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_lives_and_lists_nothing_is_listed_as_configured() {
    let silent = ScriptedEngine::start(script(ok("{}")).on("/v1/models", status(404))).await;
    let odd = ScriptedEngine::start(script(ok("{}")).on("/v1/models", ok("no json"))).await;
    let dead = ScriptedEngine::refusing().await;
    let edge = edge("")
        .engine(&silent, &["m"])
        .engine(&odd, &["x"])
        .engine(&dead, &["gone"])
        .start()
        .await;
    let response = edge.ask(&Request::new("GET", "/v1/models")).await;
    let ids: Vec<_> = response.json()["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        (response.status, ids),
        (200, vec!["m".to_owned(), "x".to_owned()])
    );
}

async fn model(edge: &TestEdge, name: &str) -> Response {
    edge.ask(&Request::new("GET", &format!("/v1/models/{name}")))
        .await
}

#[tokio::test(start_paused = true)]
async fn one_model_is_shown_as_in_the_list() {
    let engine = serving(["m", "org/model", "/data/m 1"]).await;
    let edge = edge("aliases: {gpt-4o: m, \"a/b\": m}\n")
        .engine(&engine, &[])
        .start()
        .await;
    let listed = models(&edge).await.json();
    let entry = |id: &str| {
        let mut entries = listed["data"].as_array().unwrap().iter();
        entries.find(|entry| entry["id"] == id).unwrap().clone()
    };
    for (spelled, id) in [
        ("m", "m"),
        ("%6D", "m"),
        ("org/model", "org/model"),
        ("org%2Fmodel", "org/model"),
        ("org%2fmodel?x=1", "org/model"),
        ("/data/m%201", "/data/m 1"),
        ("%2Fdata%2Fm%201", "/data/m 1"),
        ("gpt-4o", "gpt-4o"),
        ("a%2Fb", "a/b"),
        ("a/b", "a/b"),
    ] {
        let response = model(&edge, spelled).await;
        assert_eq!((response.status, response.json()), (200, entry(id)));
        let kind = response.headers.get("content-type");
        assert_eq!(kind, Some("application/json"));
    }
    let head = edge.ask(&Request::new("HEAD", "/v1/models/m")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn a_model_nobody_serves_is_not_shown_and_nobody_is_asked_for_it() {
    let engine = serving(["m"]).await;
    let edge = edge("").engine(&engine, &["m"]).start().await;
    for name in [
        "nope",
        "M",
        "m/",
        "m%2F",
        "m%00",
        "m%20",
        "../models",
        "..%2Fmodels",
        "./m",
        "%ff",
        "%",
        ".;/",
        "/",
        "m;/sleep",
    ] {
        let response = model(&edge, name).await;
        assert_eq!(response.status, 404, "{name}");
        assert_eq!(response.json()["error"]["code"], "model_not_found");
    }
    let path = "/v1/models/m/../../../sleep";
    assert_eq!(edge.ask(&post(path)).await.status, 405);
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_model_whose_engines_are_down_is_not_shown_for_now() {
    let down = ScriptedEngine::refusing().await;
    let edge = edge("").engines([&down]).start().await;
    let response = model(&edge, "m").await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
}
