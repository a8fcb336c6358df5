//! What can be reached through the public port, and under which spelling: C44.

use crate::support::*;

const KEY: &str = "sk-path-7d20c4";
const KEYED: &str = "api_keys: [sk-path-7d20c4]\n";

async fn served_with(settings: &str) -> (ScriptedEngine, TestEdge) {
    let models = ok(r#"{"data":[{"id":"m"}]}"#);
    let engine = ScriptedEngine::start(script(ok("{}")).on("/v1/models", models)).await;
    let edge = edge(settings).engines([&engine]).start().await;
    (engine, edge)
}

/// Paths an engine serves, or might take for ones it serves.
const CLOSED: [&str; 77] = [
    "/",
    "/load",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/reset_prefix_cache",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/collective_rpc",
    "/server_info",
    "/start_profile",
    "/pause",
    "/resume",
    "/scale_elastic_ep",
    "/is_paused",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/abort_requests",
    "/inference/v1/abort_requests",
    "/release_kv_cache_memory",
    "/stop_profile",
    "/kv_event_sources",
    "/update_weights",
    "/weight_info",
    "/ping/",
    "/version/",
    "/v1/responses/",
    "/v1/responses/a/b",
    "/v1/responses/a.b",
    "/v1/responses/a%2Fcancel",
    "/v1/responses/a/cancel/",
    "/v1/responses/../models",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/live",
    "/ready",
    "/engines",
    "/config",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1//models",
    "/v1/models/",
    "/V1/models",
    "/v1/Models",
    "/v1/chat/completions/",
    "/v1/chat/completions/.",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
    "/v1/../sleep",
    "/v1/chat/completions/../../../sleep",
    "/v1/%2e%2e/sleep",
    "/v1/%2E%2E%2fsleep",
    "/v1/..;/sleep",
    "/v1/..%5csleep",
    "/v1/chat/completions;/sleep",
    "/v1/chat/completions;a=b",
    "/v1/chat/completions%00",
    "/v1/chat/completions%20",
    "/v1/chat/completions%3fa=b",
    "/v1%2fchat%2fcompletions",
    "/v1/%63hat/completions",
    "/v1\\chat\\completions",
    "/health/../sleep",
    "/health/..%2fsleep",
    "/health/",
    "/health%2f..%2fsleep",
    "/health;/sleep",
    "/%68ealth",
    "/health%00/../v1/chat/completions",
    "/v1/load_lora_adapter/",
    "/v1/..\\sleep",
    "/v1/models\\",
    "/%2e/v1/models",
    "/v1/models%2f",
    "/./v1/models",
    "/v1/chat/completions/..%2f..%2fsleep",
];

fn requests(path: &str) -> [Request; 4] {
    let body = req_n().body_bytes().to_vec();
    [
        post(path).body(&body),
        Request::new("GET", path),
        Request::new("HEAD", path),
        Request::new("PUT", path).body(&body),
    ]
}

#[track_caller]
fn assert_discreet(response: &Response, engine: &ScriptedEngine, what: &str) {
    let text = String::from_utf8_lossy(&response.raw);
    let address = engine.addr();
    assert!(!text.contains(&address.to_string()), "{what}: {text}");
    assert!(!text.contains(&address.ip().to_string()), "{what}: {text}");
    assert!(!text.contains(KEY), "{what}: {text}");
}

#[tokio::test(start_paused = true)]
async fn c44_only_the_listed_paths_in_their_own_spelling_reach_an_engine() {
    for (settings, closed) in [("", 404), (KEYED, 401)] {
        let (engine, edge) = served_with(settings).await;
        for path in CLOSED {
            for request in requests(path) {
                for key in ["", "wrong", KEY] {
                    let request = request
                        .clone()
                        .set("Authorization", &format!("Bearer {key}"));
                    let request = match key {
                        "" => request.without("Authorization"),
                        _ => request,
                    };
                    let mut client = Client::connect(edge.addr()).await;
                    let response = client.ask(&request).await;
                    let status = if key == KEY { 404 } else { closed };
                    let what = format!("{} {path} {key}", request.method());
                    assert_eq!(response.status, status, "{what}");
                    assert_discreet(&response, &engine, &what);
                }
            }
        }
        assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn c44_the_key_is_asked_for_on_every_route_but_probes() {
    let (engine, edge) = served_with(KEYED).await;
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/tokenize",
        "/detokenize",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/invocations",
        "/version",
        "/tokenizer_info",
        "/v1/models",
        "/v1/models/m",
        "/v1/models/..%2fhealth",
        "/v1/responses/resp_1",
        "/v1/models?x=/health",
        "http://edge.test/v1/models",
        "http://other/v1/models",
        "http://edge.test/sleep",
    ] {
        for request in requests(path) {
            let mut client = Client::connect(edge.addr()).await;
            let response = client.ask(&request).await;
            // A target that contradicts the host may be refused for that.
            let refused = matches!(response.status, 400 | 401);
            assert!(refused, "{} {path}: {}", request.method(), response.status);
        }
    }
    assert_eq!((engine.begun(), engine.accepted()), (0, 0));
    for (method, path) in [("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")] {
        let probe = Request::new(method, path).without("Authorization");
        let answer = edge.ask(&probe).await;
        assert_eq!((answer.status, answer.text()), (200, ""), "{method} {path}");
        assert_discreet(&answer, &engine, path);
    }
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn c44_targets_that_are_no_paths_are_refused() {
    for settings in ["", KEYED] {
        let (engine, edge) = served_with(settings).await;
        for (method, target) in [
            ("OPTIONS", "*"),
            ("GET", "*"),
            ("POST", "*"),
            ("CONNECT", "a:443"),
            ("CONNECT", "127.0.0.1:80"),
            ("CONNECT", "/v1/models"),
            ("TRACE", "/"),
            ("TRACE", "/v1/models"),
            ("GET", "v1/models"),
            ("POST", "v1/chat/completions"),
            ("GET", "edge.test:80"),
            ("GET", "ftp://edge.test/v1/models"),
            ("GET", "file:///etc/passwd"),
            ("GET", "http:///v1/models"),
            ("GET", "http://"),
            ("GET", "//edge.test/v1/models"),
            ("GET", "?x"),
            ("GET", "\\v1\\models"),
            ("GET", "#"),
            ("GET", "/v1/models#fragment"),
            ("get", "/v1/models"),
            ("PROPFIND", "/v1/models"),
            ("OPTIONS", "/v1/chat/completions"),
            ("DELETE", "/v1/chat/completions"),
        ] {
            let keyed = Request::new(method, target).set("Authorization", &format!("Bearer {KEY}"));
            let keyless = keyed.clone().without("Authorization");
            for (request, has_key) in [(keyed, true), (keyless, settings.is_empty())] {
                let mut client = Client::connect(edge.addr()).await;
                let response = client.ask(&request).await;
                let what = format!("{method} {target}, key {has_key}: {}", response.status);
                let refused = match response.status {
                    401 => !has_key,
                    404 => has_key,
                    // Some methods are nobody's.
                    405 => has_key || matches!(method, "CONNECT" | "TRACE"),
                    status => status == 400,
                };
                assert!(refused, "{what}");
                assert_discreet(&response, &engine, &what);
                if response.status == 405 {
                    assert!(response.headers.has("allow"), "{what}");
                }
            }
        }
        assert_eq!((engine.begun(), engine.accepted()), (0, 0));
        assert_eq!(engine.deliveries_to("/v1/models").len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn c44_good_paths_and_queries_arrive_byte_for_byte() {
    let (engine, edge) = served_with("").await;
    for target in [
        "/v1/chat/completions",
        "/v1/chat/completions?",
        "/v1/chat/completions?a=%2F&b=+",
        "/v1/chat/completions?a=%2f&a=%2F&&=",
        "/v1/completions?x=/../sleep",
        "/v1/completions?x=//y/./z?&%00",
        "/v1/embeddings?model=other",
        "/tokenize?%",
        "/v1/messages?beta=true;a=b",
    ] {
        let request = post(target).body(req_n().body_bytes());
        assert_eq!(edge.ask(&request).await.status, 200, "{target}");
        let delivery = engine.deliveries().pop().unwrap();
        assert_eq!(delivery.target, target);
        assert_eq!(delivery.method, "POST");
    }
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c44_a_route_that_was_added_is_open_in_its_own_spelling_only() {
    let settings = format!(
        "{KEYED}extra_routes: [{{method: POST, path: /v1/load_lora_adapter, model: any}}]\n"
    );
    let (engine, edge) = served_with(&settings).await;
    let keyed = |path: &str| {
        post(path)
            .set("Authorization", &format!("Bearer {KEY}"))
            .body("{}")
    };
    assert_eq!(edge.ask(&keyed("/v1/load_lora_adapter")).await.status, 200);
    assert_eq!(
        edge.ask(&post("/v1/load_lora_adapter").body("{}"))
            .await
            .status,
        401
    );
    for path in [
        "/v1/load_lora_adapter/",
        "/v1//load_lora_adapter",
        "/v1/unload_lora_adapter",
    ] {
        assert_eq!(edge.ask(&keyed(path)).await.status, 404, "{path}");
    }
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn c44_errors_name_no_engine_and_no_key() {
    let dead = ScriptedEngine::refusing().await;
    let settings = format!("{RETRIES}max_retries: 2\nengine_api_key: {KEY}\n");
    let edge = edge(&settings).engines([&dead]).start().await;
    let unreachable = edge.ask(&req_n()).await;
    assert_eq!(unreachable.status, 502);
    let unknown = edge
        .ask(&post("/v1/completions").body(r#"{"model":"nobody"}"#))
        .await;
    assert_eq!(unknown.status, 404);
    let list = edge.ask(&Request::new("GET", "/v1/models")).await;
    assert_eq!(list.status, 503);
    for response in [unreachable, unknown, list] {
        assert_discreet(&response, &dead, "an error");
        let error = &response.json()["error"];
        assert!(error["message"].is_string() && error["param"].is_null());
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sent_comes_back_as_json_text_only() {
    let (_engine, edge) = served_with("").await;
    for path in ["/\"}],<script>", "/a'b", "/%0d%0aSet-Cookie:x", "/\\u0000"] {
        let response = edge.ask(&post(path)).await;
        assert!(matches!(response.status, 400 | 404), "{path}");
        assert!(response.json()["error"]["message"].is_string());
        assert!(!response.headers.has("set-cookie"));
    }
}
