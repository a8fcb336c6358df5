//! Calls that change an engine's state are sent again only if nothing can have arrived.

use crate::support::*;

const LOAD: &str = "/v1/load_lora_adapter";

/// Retries on, and a route for a call that must not be repeated.
fn with_load() -> String {
    format!(
        "{RETRIES}extra_routes:\n  - {{method: POST, path: {LOAD}, model: any, resend: connect_only}}\n"
    )
}

fn load() -> Request {
    post(LOAD).body(r#"{"lora_name":"l","lora_path":"/l"}"#)
}

#[tokio::test(start_paused = true)]
async fn a_refused_connect_is_failed_over() {
    let (dead, sound) = (
        ScriptedEngine::refusing().await,
        ScriptedEngine::start(ok("loaded")).await,
    );
    let edge = edge(&with_load()).engines([&dead, &sound]).start().await;
    let response = edge.ask(&load()).await;
    assert_eq!((response.status, response.text()), (200, "loaded"));
    assert_eq!((response.attempts(), sound.seen()), (2, 1));
    assert_eq!(sound.deliveries()[0].path(), LOAD);
}

#[tokio::test(start_paused = true)]
async fn a_lone_refusing_engine_has_the_whole_budget() {
    let dead = ScriptedEngine::refusing().await;
    let edge = edge(&with_load()).engines([&dead]).start().await;
    let response = edge.ask(&load()).await;
    assert_eq!((response.status, response.attempts()), (502, 5));
}

#[tokio::test(start_paused = true)]
async fn whatever_may_have_arrived_is_not_sent_again() {
    for (name, reply, status) in [
        ("reset", rst_at(Point::Request), 502),
        ("closed", fin_at(Point::Request), 502),
        ("no HTTP", raw("garbage\r\n\r\n"), 502),
        (
            "died after its head",
            ok("x").rst_at(Point::ResponseHead),
            502,
        ),
        ("busy", status(503).body("busy"), 503),
        ("failed", status(500).body("busy"), 500),
    ] {
        let (first, other) = (
            ScriptedEngine::start(reply).await,
            ScriptedEngine::start(ok("other")).await,
        );
        let edge = edge(&with_load()).engines([&first, &other]).start().await;
        let response = edge.ask(&load()).await;
        assert_eq!(
            (response.status, response.attempts()),
            (status, 1),
            "{name}"
        );
        assert_eq!(response.waited().as_millis(), 0, "{name}");
        if status != 502 {
            assert_eq!(response.text(), "busy");
        }
        assert_eq!((first.seen(), other.seen()), (1, 0), "{name}");
        edge.wait_until_idle().await;
        // Budget was left, so it is not an exhausted one.
        assert_eq!(edge.requests("exhausted"), 0.0, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pooled_connection_is_never_trusted_with_it() {
    // The engine reads the second request of its first connection and closes: to a client that
    // cannot know, that connection was stale.
    let closing = connections([
        vec![ok("first"), fin_at(Point::Request)],
        vec![ok("second")],
    ]);
    for settings in [with_load(), with_load().replace("enable_retries: true", "")] {
        let engine = ScriptedEngine::start(closing.clone()).await;
        let edge = edge(&settings).engines([&engine]).start().await;
        assert_eq!(edge.ask(&req_n()).await.text(), "first");
        let response = edge.ask(&load()).await;
        assert_eq!((response.status, response.text()), (200, "second"));
        assert_eq!(engine.deliveries_to(LOAD).len(), 1);
    }
}
