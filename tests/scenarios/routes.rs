//! Every route of vLLM: to the right engine, every byte of it, under its method only.

use crate::support::*;
use vllm_pingora::request::route::{Action, BodyKind, ModelSource, Route, Routes};
use vllm_pingora::retry::Resend;

/// A body of this kind for the model `m`, with spellings a rewritten one would lose.
fn body(kind: BodyKind) -> (&'static str, Vec<u8>) {
    match kind {
        BodyKind::Form => (
            "multipart/form-data; boundary=X",
            b"--X\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n--X\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n\0\xff\r\n--X--\r\n".to_vec(),
        ),
        BodyKind::Json => (
            "application/json",
            b"{ \"n\":1.0,\"x\":\"\\u00e9\" ,\"model\":\"m\"}\n".to_vec(),
        ),
        BodyKind::Nothing | BodyKind::WebSocket | BodyKind::Unknown => ("text/plain", Vec::new()),
    }
}

/// A target on this route.
fn target(route: &Route) -> String {
    let path = route.path.replace("{id}", "resp_1-a");
    match route.action {
        Action::Forward {
            model: ModelSource::Query,
            ..
        } => format!("{path}?model=m&a=%2F"),
        _ => format!("{path}?a=%2F"),
    }
}

fn request(route: &Route) -> Request {
    let (kind, body) = body(route.body);
    let request = Request::new(route.method.as_str(), &target(route));
    if body.is_empty() {
        request
    } else {
        request.set("Content-Type", kind).body(body)
    }
}

/// The routes that are forwarded, and how.
fn forwarded() -> Vec<(Route, ModelSource, Resend)> {
    let routes = Routes::new([]);
    let forwarded = routes.iter().filter_map(|route| match route.action {
        Action::Forward { model, resend } => Some((route.clone(), model, resend)),
        _ => None,
    });
    forwarded.collect()
}

#[tokio::test(start_paused = true)]
async fn each_reaches_the_engine_of_its_model_byte_for_byte() {
    for (route, model, _) in forwarded() {
        let (right, other) = (
            ScriptedEngine::start(ok("right")).await,
            ScriptedEngine::start(ok("other")).await,
        );
        let edge = edge("").engine(&other, &["x"]).engine(&right, &["m"]);
        // Without a memory of a response, only a lone engine can have it.
        let edge = match model {
            ModelSource::Response => lone(&right),
            _ => edge,
        };
        let edge = edge.start().await;
        let response = edge.ask(&request(&route)).await;
        let name = format!("{} {}", route.method, route.path);
        assert_eq!((response.status, response.text()), (200, "right"), "{name}");
        let delivery = right.deliveries().pop().unwrap();
        assert_eq!(delivery.method, route.method.as_str(), "{name}");
        assert_eq!(delivery.target, target(&route));
        let (kind, body) = body(route.body);
        assert_eq!(delivery.body, body, "{name}");
        if !body.is_empty() {
            assert_eq!(delivery.headers.get("content-type"), Some(kind), "{name}");
        }
        assert_eq!(other.accepted(), 0, "{name}");
        right.assert_clean();
        edge.wait_until_idle().await;
        // A parameter is no label.
        let counted = [("route", &*route.path), ("outcome", "answered")];
        assert_eq!(edge.metric("vllm_pingora_requests_total", &counted), 1.0);
    }
}

fn lone(engine: &ScriptedEngine) -> EdgeBuilder {
    edge("").engines([engine])
}

#[tokio::test(start_paused = true)]
async fn each_is_asked_again_as_its_rule_says() {
    for (route, _, resend) in forwarded() {
        let engine = ScriptedEngine::start([status(503), ok("second")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&request(&route)).await;
        let expected = match resend {
            Resend::Always => (200, 2),
            Resend::ConnectOnly => (503, 1),
        };
        let name = format!("{} {}", route.method, route.path);
        assert_eq!((response.status, response.attempts()), expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_methods_are_told_the_right_ones() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    for route in Routes::new([]).iter() {
        let path = route.path.replace("{id}", "a");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            let served = |method: &str| {
                let routes = Routes::new([]);
                let mut routes = routes.iter();
                routes.any(|other| other.path == route.path && other.method == method)
            };
            if served(method) {
                continue;
            }
            let mut client = Client::connect(edge.addr()).await;
            let response = client.ask(&Request::new(method, &path)).await;
            assert_eq!(response.status, 405, "{method} {path}");
            let allow = response.headers.get("allow").unwrap();
            for listed in allow.split(", ").filter(|listed| *listed != "HEAD") {
                assert!(served(listed), "{method} {path}: {allow}");
            }
            assert!(allow.contains(route.method.as_str()), "{path}: {allow}");
        }
    }
    assert_eq!(engine.accepted(), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_without_a_model_go_to_any_engine() {
    let (a, b) = (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge("").engine(&a, &["m"]).engine(&b, &["x"]).start().await;
    for path in ["/tokenizer_info", "/v1/audio/voices"] {
        let get = async |target: &str| edge.ask(&Request::new("GET", target)).await;
        let anywhere = get(path).await;
        assert!(matches!(anywhere.text(), "a" | "b"), "{path}");
        assert_eq!(get(&format!("{path}?model=x")).await.text(), "b");
        assert_eq!(get(&format!("{path}?model=nope")).await.status, 404);
    }
}

#[tokio::test(start_paused = true)]
async fn the_router_says_its_own_version() {
    let engine = ScriptedEngine::start(ok("{}")).await;
    let edge = edge("").engines([&engine]).start().await;
    let response = edge.ask(&Request::new("GET", "/version")).await;
    assert_eq!(
        response.headers.get("content-type"),
        Some("application/json")
    );
    let version = serde_json::json!({"version": env!("CARGO_PKG_VERSION")});
    assert_eq!((response.status, response.json()), (200, version));
    let head = edge.ask(&Request::new("HEAD", "/version")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(engine.accepted(), 0);
}
