//! Control calls on the admin port: to the engines they name, once each, and what they said.

use crate::support::*;
use serde_json::{Value, json};
use vllm_pingora::admin::{CALLS, Effect, LIMIT, MAX_BODY};

/// Sends a request to the admin port.
async fn tell(edge: &TestEdge, request: &Request) -> Response {
    Client::connect(edge.admin_addr()).await.ask(request).await
}

fn call(target: &str) -> Request {
    Request::new("POST", target).without("Authorization")
}

/// Three engines: the first and the last serve `m`, the one between serves `x`.
async fn three() -> ([ScriptedEngine; 3], TestEdge) {
    let engines = [
        ScriptedEngine::start(ok(r#"{"n": 1.0}"#)).await,
        ScriptedEngine::start(ok("two")).await,
        ScriptedEngine::start(ok("")).await,
    ];
    let [a, b, c] = &engines;
    let edge = edge(&format!("{RETRIES}aliases: {{gpt: m}}\n"))
        .engine(a, &["m"])
        .engine(b, &["x"])
        .engine(c, &["m"])
        .start()
        .await;
    (engines, edge)
}

fn seen(engines: &[ScriptedEngine; 3]) -> [usize; 3] {
    engines.each_ref().map(ScriptedEngine::seen)
}

#[tokio::test(start_paused = true)]
async fn every_call_reaches_the_engines_it_names_and_tells_what_they_said() {
    let (engines, edge) = three().await;
    let urls = engines.each_ref().map(ScriptedEngine::url);
    for known in CALLS {
        let before = seen(&engines);
        let request = Request::new(known.method.as_str(), &format!("{}?all=true", known.path));
        let response = tell(&edge, &request).await;
        let expected = json!({"engines": [
            {"engine": urls[0], "status": 200, "body": {"n": 1.0}},
            {"engine": urls[1], "status": 200, "body": "two"},
            {"engine": urls[2], "status": 200, "body": ""},
        ]});
        assert_eq!((response.status, response.json()), (200, expected));
        // An engine's JSON stays as it wrote it.
        assert!(response.text().contains(r#"{"n": 1.0}"#));
        let kind = response.headers.get("content-type");
        assert_eq!(kind, Some("application/json"));
        // Whether all of it is awake the router asks by itself.
        let questions: &[_] = match known.effect {
            Effect::Wake => &["/is_sleeping"],
            _ => &[],
        };
        for (engine, before) in engines.iter().zip(before) {
            let deliveries = engine.deliveries().split_off(before);
            let mut targets = deliveries.iter().map(|delivery| &*delivery.target);
            assert_eq!(deliveries[0].method, known.method.as_str());
            assert_eq!(targets.next(), Some(known.path));
            assert!(targets.eq(questions.iter().copied()), "{}", known.path);
            engine.assert_clean();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn engines_are_named_by_id_by_model_or_all() {
    let (engines, edge) = three().await;
    let url = engines[1].url();
    let encoded = url.replace(':', "%3A").replace('/', "%2F");
    for (query, reached) in [
        ("id=0".to_owned(), [1, 0, 0]),
        (format!("id={url}"), [0, 1, 0]),
        (format!("id={encoded},2"), [0, 1, 1]),
        ("id=2&id=0".to_owned(), [1, 0, 1]),
        ("model=m".to_owned(), [1, 0, 1]),
        ("model=gpt".to_owned(), [1, 0, 1]),
        ("model=x".to_owned(), [0, 1, 0]),
        ("all=true".to_owned(), [1, 1, 1]),
    ] {
        let before = seen(&engines);
        let response = tell(&edge, &call(&format!("/sleep?{query}"))).await;
        assert_eq!(response.status, 200, "{query}");
        let after = seen(&engines);
        let newly = [0, 1, 2].map(|n: usize| after[n] - before[n]);
        assert_eq!(newly, reached, "{query}");
        let told = response.json()["engines"].as_array().unwrap().len();
        assert_eq!(told, reached.iter().sum::<usize>());
    }
}

#[tokio::test(start_paused = true)]
async fn what_names_the_engines_is_taken_off_and_all_else_goes_on() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let settings = "engine_api_key: sk-engines\n";
    let prefixed = format!("{}/base", engine.url());
    let edge = edge(settings).url(&prefixed, &["m"]).start().await;
    let body = b"{ \"profile_prefix\" : \"\\u00e9\",\"n\":1.0 }\n";
    let request = call("/start_profile?a=%2F&id=0&tags=w&&tags=kv+c&b")
        .set("Content-Type", "application/json; charset=utf-8")
        .set("Authorization", "Bearer of-the-caller")
        .body(body);
    assert_eq!(tell(&edge, &request).await.status, 200);
    let delivery = engine.deliveries().pop().unwrap();
    assert_eq!(
        delivery.target,
        "/base/start_profile?a=%2F&tags=w&&tags=kv+c&b"
    );
    assert_eq!(delivery.body, body.as_slice());
    assert_eq!(delivery.framing, Framing::Length(body.len() as u64));
    let field = |name| delivery.headers.get(name);
    assert_eq!(
        field("content-type"),
        Some("application/json; charset=utf-8")
    );
    assert_eq!(field("authorization"), Some("Bearer sk-engines"));
    assert_eq!(field("host"), Some(&*engine.addr().to_string()));
    // In chunks it is the same body, and none is none.
    tell(&edge, &request.clone().chunked([7])).await;
    assert_eq!(engine.deliveries()[1].body, body.as_slice());
    tell(&edge, &call("/wake_up?id=0")).await;
    let none = engine.deliveries_to("/base/wake_up").pop().unwrap();
    assert_eq!(none.framing, Framing::Length(0));
    assert_eq!(none.headers.get("content-type"), None);
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn without_a_key_of_its_own_the_router_passes_the_callers() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    let request = call("/pause?id=0").set("Authorization", "Bearer of-the-caller");
    tell(&edge, &request).await;
    let delivery = engine.deliveries().pop().unwrap();
    let key = delivery.headers.get("authorization");
    assert_eq!(key, Some("Bearer of-the-caller"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_names_nobody_or_somebody_unknown_reaches_nobody() {
    let (engines, edge) = three().await;
    for (target, status, word) in [
        ("/sleep", 400, "`all=true`"),
        ("/sleep?level=1", 400, "`id=ENGINE`"),
        ("/sleep?all=yes", 400, "`all=yes`"),
        ("/sleep?id=0&all=true", 400, "`id` and `all`"),
        ("/sleep?id=0,engine-9", 404, "`engine-9`"),
        ("/sleep?model=nope", 404, "`nope`"),
    ] {
        let response = tell(&edge, &call(target)).await;
        assert_eq!(response.status, status, "{target}");
        let message = response.json()["error"]["message"].clone();
        let message = message.as_str().unwrap();
        assert!(message.contains(word), "{target}: {message}");
    }
    for (method, path, allow) in [
        ("GET", "/sleep?all=true", "POST"),
        ("HEAD", "/is_sleeping?all=true", "GET"),
        ("POST", "/is_sleeping?all=true", "GET"),
        ("DELETE", "/v1/load_lora_adapter?all=true", "POST"),
    ] {
        let response = tell(&edge, &Request::new(method, path)).await;
        assert_eq!(response.status, 405, "{method} {path}");
        assert_eq!(response.headers.get("allow"), Some(allow));
    }
    for path in [
        "/sleep/",
        "//sleep",
        "/collective_rpc",
        "/scale_elastic_ep",
        "/update_weights",
        "/fault_tolerance/apply",
    ] {
        let target = format!("{path}?all=true");
        assert_eq!(tell(&edge, &call(&target)).await.status, 404, "{path}");
    }
    assert_eq!(
        engines.iter().map(ScriptedEngine::accepted).sum::<usize>(),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_fails_is_told_of_beside_the_others_and_asked_once() {
    let failing = [
        (hang(), None),
        (rst_at(Point::Request), None),
        (raw("garbage\r\n\r\n"), None),
        (status(503).body("busy"), Some(503)),
        (status(400).body(r#"{"error":"no"}"#), Some(400)),
        (status(404), Some(404)),
    ];
    for (reply, answered) in failing {
        let (sound, bad) = (
            ScriptedEngine::start(ok("{}")).await,
            ScriptedEngine::start(reply).await,
        );
        let refusing = ScriptedEngine::refusing().await;
        let edge = edge(RETRIES)
            .engines([&refusing, &bad, &sound])
            .start()
            .await;
        let begun = tokio::time::Instant::now();
        let response = tell(&edge, &call("/sleep?all=true")).await;
        assert_eq!(response.status, 502);
        let said = response.json()["engines"].clone();
        assert_eq!(said[0]["engine"], refusing.url());
        assert!(said[0]["error"].is_string() && said[0]["status"].is_null());
        assert_eq!(said[1]["engine"], bad.url());
        assert_eq!(said[1]["status"], answered.map_or(Value::Null, Value::from));
        assert_eq!(said[1]["error"].is_string(), answered.is_none());
        let fine = json!({"engine": sound.url(), "status": 200, "body": {}});
        assert_eq!(said[2], fine);
        assert_eq!((bad.seen(), sound.seen()), (1, 1));
        assert!(begun.elapsed() <= LIMIT + secs(1));
    }
}

#[tokio::test(start_paused = true)]
async fn engines_are_told_at_the_same_time_and_may_take_their_time() {
    let slow = || {
        let slow = ok("{}").delay(secs(LIMIT.as_secs() - 1));
        script(slow).on("/is_sleeping", status(404))
    };
    let (a, b) = (
        ScriptedEngine::start(slow()).await,
        ScriptedEngine::start(slow()).await,
    );
    let edge = edge("").engines([&a, &b]).start().await;
    let begun = tokio::time::Instant::now();
    let response = tell(&edge, &call("/wake_up?all=true")).await;
    assert_eq!(response.status, 200);
    assert!(begun.elapsed() < LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_body_may_have_a_mebibyte() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    let request = |length: usize| call("/abort_requests?id=0").body(vec![b'x'; length]);
    assert_eq!(tell(&edge, &request(MAX_BODY)).await.status, 200);
    assert_eq!(engine.deliveries()[0].body_len, MAX_BODY as u64);
    for request in [
        request(MAX_BODY + 1),
        request(MAX_BODY + 1).chunked([65_536]),
    ] {
        let response = tell(&edge, &request).await;
        assert_eq!(response.status, 413);
        assert_eq!(response.json()["error"]["code"], "request_too_large");
    }
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn none_of_it_is_on_the_public_port() {
    let (engines, edge) = three().await;
    for known in CALLS {
        for method in ["GET", "POST"] {
            let request = Request::new(method, &format!("{}?all=true", known.path));
            assert_eq!(edge.ask(&request).await.status, 404, "{}", known.path);
        }
    }
    assert_eq!(
        engines.iter().map(ScriptedEngine::accepted).sum::<usize>(),
        0
    );
}

fn list(models: &[&str]) -> Reply {
    let data: Vec<_> = models.iter().map(|id| json!({"id": id})).collect();
    ok(json!({"object": "list", "data": data}).to_string())
}

#[tokio::test(start_paused = true)]
async fn a_loaded_adapter_is_served_by_the_next_request() {
    let playing = |models: &[&str]| {
        script(ok("served"))
            .on("/v1/models", list(models))
            .on("/v1/load_lora_adapter", ok("Success: LoRA adapter added."))
            .on("/v1/unload_lora_adapter", ok("Success"))
    };
    let (a, b) = (
        ScriptedEngine::start(playing(&["m"])).await,
        ScriptedEngine::start(playing(&["m"])).await,
    );
    let edge = edge("").engine(&a, &[]).engine(&b, &["m"]).start().await;
    let ask = async || {
        edge.ask(&post("/v1/completions").body(r#"{"model":"lora"}"#))
            .await
            .status
    };
    let listed = async || edge.ask(&Request::new("GET", "/v1/models")).await.json()["data"].clone();
    assert_eq!(ask().await, 404);
    assert_eq!(listed().await.as_array().unwrap().len(), 1);

    a.play(playing(&["m", "lora"]));
    let adapter = r#"{"lora_name":"lora","lora_path":"/adapters/lora"}"#;
    let load = call("/v1/load_lora_adapter?id=0")
        .set("Content-Type", "application/json")
        .body(adapter);
    let response = tell(&edge, &load).await;
    let said = &response.json()["engines"][0];
    assert_eq!(said["body"], "Success: LoRA adapter added.");
    assert_eq!(a.deliveries_to("/v1/load_lora_adapter")[0].text(), adapter);
    assert_eq!(ask().await, 200);
    assert_eq!(listed().await[1]["id"], "lora");
    assert_eq!((a.seen(), b.seen()), (1, 0));

    a.play(playing(&["m"]));
    tell(&edge, &call("/v1/unload_lora_adapter?model=lora")).await;
    assert_eq!(listed().await.as_array().unwrap().len(), 1);
    assert_eq!(ask().await, 503);
}

#[tokio::test(start_paused = true)]
async fn an_engine_with_configured_models_serves_what_is_configured() {
    let playing = script(ok("served"))
        .on("/v1/models", list(&["m", "lora"]))
        .on("/v1/load_lora_adapter", ok(""));
    let engine = ScriptedEngine::start(playing).await;
    let edge = edge("").engines([&engine]).start().await;
    let load = tell(&edge, &call("/v1/load_lora_adapter?id=0")).await;
    assert_eq!(load.status, 200);
    let lora = post("/v1/completions").body(r#"{"model":"lora"}"#);
    assert_eq!(edge.ask(&lora).await.status, 404);
    assert_eq!(engine.deliveries_to("/v1/models").len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_site_cannot_make_a_browser_call() {
    let (engines, edge) = three().await;
    let own = format!("http://{}", edge.admin_addr());
    for origin in ["http://evil.example", "null", "http://127.0.0.1", ""] {
        let request = call("/sleep?all=true")
            .set("Host", &edge.admin_addr().to_string())
            .header("Origin", origin);
        let response = tell(&edge, &request).await;
        assert_eq!(response.status, 403, "{origin}");
        assert_eq!(response.json()["error"]["code"], "foreign_origin");
    }
    assert_eq!(seen(&engines), [0, 0, 0]);
    let request = call("/sleep?all=true")
        .set("Host", &edge.admin_addr().to_string())
        .header("Origin", &own);
    assert_eq!(tell(&edge, &request).await.status, 200);
}
