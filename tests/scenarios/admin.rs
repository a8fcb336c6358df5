//! The admin port: probes, metrics, engines, configuration.

use crate::support::*;

async fn healthy() -> ScriptedEngine {
    ScriptedEngine::start(script(ok("ok")).on("/health", ok(""))).await
}

#[tokio::test(start_paused = true)]
async fn it_is_live_whatever_its_engines_do() {
    let down = ScriptedEngine::refusing().await;
    let edge = edge(RETRIES).engines([&down]).start().await;
    assert_eq!(edge.admin("/live").await.status, 200);
    edge.drain();
    assert_eq!(edge.admin("/live").await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_while_an_engine_is_up() {
    let (a, b) = (healthy().await, healthy().await);
    let edge = edge(RETRIES).engines([&a, &b]).start().await;
    let ready = async || edge.admin("/ready").await.status;
    assert_eq!(ready().await, 200);
    a.stop().await;
    tokio::time::sleep(secs(2)).await;
    assert_eq!(ready().await, 200);
    b.restart(script(ok("ok")).on("/health", status(503))).await;
    tokio::time::sleep(secs(2)).await;
    let response = edge.admin("/ready").await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["status"], "no engine is up");
    a.listen_with(script(ok("ok")).on("/health", ok(""))).await;
    tokio::time::sleep(secs(2)).await;
    assert_eq!(ready().await, 200);
}

#[tokio::test(start_paused = true)]
async fn it_is_not_ready_while_it_drains() {
    let engine = healthy().await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    assert_eq!(edge.admin("/ready").await.status, 200);
    edge.drain();
    let response = edge.admin("/ready").await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["status"], "draining");
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_probes_asks_each_engine_once() {
    let engine = healthy().await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for _ in 0..20 {
        assert_eq!(edge.admin("/ready").await.status, 200);
    }
    assert_eq!(engine.deliveries_to("/health").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_shows_its_engines() {
    let (a, b) = (
        ScriptedEngine::start(hang()).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge(RETRIES)
        .engine_with(&a, "id: first, weight: 2")
        .engine(&b, &["m", "x"])
        .start()
        .await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_n()).await;
    a.wait_for_deliveries(1).await;
    let response = edge.admin("/engines").await;
    assert_eq!(
        response.headers.get("content-type"),
        Some("application/json")
    );
    assert_eq!(
        response.json(),
        serde_json::json!({"engines": [
            {
                "engine": a.url(),
                "id": "first",
                "weight": 2,
                "models": ["m"],
                "addresses": [a.addr().to_string()],
                "requests_in_flight": 1,
                "load": 0.5,
                "attempts": 0,
                "failures": {},
                "condition": "up",
                "reason": "answers",
                "for_seconds": 0,
            },
            {
                "engine": b.url(),
                "id": "1",
                "weight": 1,
                "models": ["m", "x"],
                "addresses": [b.addr().to_string()],
                "requests_in_flight": 0,
                "load": 0.0,
                "attempts": 0,
                "failures": {},
                "condition": "up",
                "reason": "answers",
                "for_seconds": 0,
            },
        ]})
    );
}

#[tokio::test(start_paused = true)]
async fn it_counts_the_attempts_of_each_engine_and_those_that_failed() {
    let (a, b) = (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge(&format!("{}{NOBODY_OUT}", retries(3)))
        .engine(&a, &["m"])
        .engine(&b, &["x"])
        .start()
        .await;
    let counts = async || {
        edge.wait_until_idle().await;
        let engines = edge.admin("/engines").await.json();
        [0, 1].map(|place| {
            let engine = &engines["engines"][place];
            (engine["attempts"].clone(), engine["failures"].clone())
        })
    };
    let of = |attempts: u32, failures| (serde_json::json!(attempts), failures);
    let none = serde_json::json!({});
    for _ in 0..4 {
        assert_eq!(edge.ask(&req_n()).await.status, 200);
    }
    assert_eq!(counts().await, [of(4, none.clone()), of(0, none.clone())]);
    // Each way to fail has its own name.
    a.play([status(503), status(429), ok("a")]);
    assert_eq!(edge.ask(&req_n()).await.attempts(), 3);
    a.play([raw("no answer\r\n\r\n"), ok("a")]);
    assert_eq!(edge.ask(&req_n()).await.attempts(), 2);
    // A client that leaves is an attempt, and nobody's failure.
    a.play(hang());
    let mut client = Client::connect(edge.addr()).await;
    let deliveries = a.seen();
    client.send_request(&req_n()).await;
    a.wait_for_deliveries(deliveries + 1).await;
    client.close();
    edge.wait_for_requests("client_gone", 1).await;
    a.stop().await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    let failures = serde_json::json!({"retryable_status": 2, "malformed": 1, "connect": 3});
    assert_eq!(counts().await, [of(13, failures), of(0, none)]);
}

#[tokio::test(start_paused = true)]
async fn it_shows_its_configuration_without_secrets() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let settings = "api_keys: [hunter2-client]\nengine_api_key: hunter2-engine\n";
    let edge = edge(&format!("{RETRIES}{settings}"))
        .engines([&engine])
        .start()
        .await;
    let response = edge.admin("/config").await;
    assert_eq!(response.status, 200);
    assert!(response.text().contains("\ninitial_backoff_ms: 200\n"));
    assert!(response.text().contains("'***'"));
    for path in [
        "/config", "/engines", "/metrics", "/live", "/ready", "/status",
    ] {
        let shown = edge.admin(path).await;
        assert!(!shown.text().contains("hunter2"), "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_exposes_metrics() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    edge.ask(&req_n()).await;
    edge.wait_until_idle().await;
    let response = edge.admin("/metrics").await;
    assert_eq!(response.status, 200);
    let kind = response.headers.get("content-type").unwrap();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    for line in [
        "# TYPE vllm_pingora_requests_total counter".to_owned(),
        "vllm_pingora_requests_total{model=\"m\",outcome=\"answered\",route=\"/v1/chat/completions\",status=\"200\"} 1".to_owned(),
        format!("vllm_pingora_attempts_total{{engine=\"{}\",outcome=\"answered\"}} 1", engine.url()),
        format!("vllm_pingora_engine_requests_in_flight{{engine=\"{}\"}} 0", engine.url()),
    ] {
        assert!(response.text().lines().any(|found| found == line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_paths_and_methods_are_refused() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for path in [
        "//",
        "/health",
        "/metrics/",
        "/v1/models",
        "/engines?",
        "//live",
    ] {
        let expected = if path == "/engines?" { 200 } else { 404 };
        let response = edge.admin(path).await;
        assert_eq!(response.status, expected, "{path}");
        if expected == 404 {
            assert_eq!(response.json()["error"]["code"], "not_found");
        }
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        for path in [
            "/", "/live", "/ready", "/metrics", "/engines", "/config", "/status",
        ] {
            let mut client = Client::connect(edge.admin_addr()).await;
            let response = client.ask(&Request::new(method, path)).await;
            assert_eq!(response.status, 405, "{method} {path}");
            assert_eq!(response.headers.get("allow"), Some("GET, HEAD"));
        }
    }
    // A refused probe is no reason to ask the engines.
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn head_is_answered_without_a_body_and_the_connection_goes_on() {
    let engine = healthy().await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.admin_addr()).await;
    for path in ["/live", "/ready", "/metrics"] {
        let response = client.ask(&Request::new("HEAD", path)).await;
        assert_eq!((response.status, response.body.len()), (200, 0), "{path}");
        let response = client.ask(&Request::new("GET", path)).await;
        assert_eq!(response.status, 200, "{path}");
        assert!(!response.body.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_public_port_shows_none_of_it() {
    let engine = healthy().await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for path in ["/live", "/ready", "/metrics", "/engines", "/config"] {
        let response = edge.ask(&Request::new("GET", path)).await;
        assert_eq!(response.status, 404, "{path}");
    }
    let health = edge.ask(&Request::new("GET", "/health")).await;
    assert_eq!((health.status, health.text()), (200, ""));
    assert_eq!(engine.accepted(), 0);
}
