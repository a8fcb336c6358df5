//! Engines that sleep: nobody is sent to them, and they are back as soon as they are awake.

use serde_json::json;

use crate::support::*;

/// An engine that answers its probes, and says whether it sleeps.
fn with_sleep(text: &str, asleep: bool) -> Script {
    script(ok(text))
        .on("/health", ok(""))
        .on("/is_sleeping", says(asleep))
        .on("/wake_up", ok(r#"{"status":"awake","tags":null}"#))
}

fn says(asleep: bool) -> Reply {
    ok(json!({ "is_sleeping": asleep }).to_string())
}

async fn tell(edge: &TestEdge, method: &str, target: &str) -> u16 {
    let mut client = Client::connect(edge.admin_addr()).await;
    client.ask(&Request::new(method, target)).await.status
}

#[tokio::test(start_paused = true)]
async fn a_probe_finds_out_that_an_engine_sleeps_and_that_it_is_awake() {
    let (a, b) = (
        ScriptedEngine::start(with_sleep("a", true)).await,
        ScriptedEngine::start(with_sleep("b", false)).await,
    );
    let edge = edge("").engines([&a, &b]).start().await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
    assert_eq!(edge.condition(1).await, words("up", "answers"));
    let up = [("engine", &*a.url())];
    assert_eq!(edge.metric("vllm_pingora_engine_up", &up), 0.0);
    for _ in 0..6 {
        assert_eq!(edge.ask(&req_n()).await.text(), "b");
    }
    a.play(with_sleep("a", false));
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    for _ in 0..6 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(a.seen(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_sleeps_is_never_asked_whatever_becomes_of_the_others() {
    let (a, b) = (
        ScriptedEngine::start(with_sleep("a", true)).await,
        ScriptedEngine::start(with_sleep("b", false)).await,
    );
    let edge = edge(RETRIES).engines([&a, &b]).start().await;
    edge.probe().await;
    b.stop().await;
    for _ in 0..3 {
        // All attempts go to the one that is awake, with a wait before each.
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 502);
        assert_eq!(response.json()["error"]["code"], "engine_unreachable");
        assert_eq!(response.waited().as_millis(), 200 + 400 + 800 + 1000);
    }
    edge.wait_until_idle().await;
    assert_eq!((edge.attempts_on(&a), edge.attempts_on(&b)), (0.0, 15.0));
}

#[tokio::test(start_paused = true)]
async fn a_model_all_of_whose_engines_sleep_is_a_503() {
    for settings in ["", RETRIES] {
        let (a, b) = (
            ScriptedEngine::start(with_sleep("a", true)).await,
            ScriptedEngine::start(with_sleep("b", true)).await,
        );
        let edge = edge(settings).engines([&a, &b]).start().await;
        edge.probe().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.status, 503);
        assert_eq!(response.json()["error"]["code"], "no_engine_available");
        assert_eq!(response.headers.get("retry-after"), Some("1"));
        assert_eq!(response.waited().as_millis(), 0);
        assert_eq!((a.seen(), b.seen()), (0, 0));
        assert_eq!(edge.admin("/ready").await.status, 503);
        a.play(with_sleep("a", false));
        edge.probe().await;
        assert_eq!(edge.ask(&req_n()).await.text(), "a");
        tokio::time::sleep(secs(2)).await;
        assert_eq!(edge.admin("/ready").await.status, 200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_to_sleep_or_to_wake_up_is_taken_note_of_at_once() {
    let slowly = ok(r#"{"status":"sleeping","level":1}"#).delay(secs(20));
    let slowly = with_sleep("a", false).on("/sleep", slowly);
    let (a, b) = (
        ScriptedEngine::start(slowly).await,
        ScriptedEngine::start(with_sleep("b", false)).await,
    );
    let edge = edge("").engines([&a, &b]).start().await;
    let asked = async {
        a.wait_for_deliveries_to("/sleep", 1).await;
        for _ in 0..4 {
            assert_eq!(edge.ask(&req_n()).await.text(), "b");
        }
        a.play(with_sleep("a", true));
    };
    let (status, ()) = tokio::join!(tell(&edge, "POST", "/sleep?level=1&id=0"), asked);
    assert_eq!(status, 200);
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
    edge.probe().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "b");
    a.play(with_sleep("a", false));
    assert_eq!(tell(&edge, "POST", "/wake_up?id=0").await, 200);
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    for _ in 0..4 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(a.seen(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_do_as_it_is_told_goes_on_serving() {
    for refusal in [status(404), status(500), rst_at(Point::Request)] {
        let playing = with_sleep("a", false).on("/sleep", refusal);
        let a = ScriptedEngine::start(playing).await;
        let edge = edge("").engines([&a]).start().await;
        assert_eq!(tell(&edge, "POST", "/sleep?id=0").await, 502);
        assert_eq!(edge.condition(0).await, words("up", "answers"));
        assert_eq!(edge.ask(&req_n()).await.text(), "a");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_awake_is_not_an_engine_that_is() {
    let a = ScriptedEngine::start(with_sleep("a", true)).await;
    let edge = edge("").engines([&a]).start().await;
    edge.probe().await;
    assert_eq!(tell(&edge, "POST", "/wake_up?tags=weights&id=0").await, 200);
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    // Whoever asks it through the router tells the router, too.
    a.play(with_sleep("a", false));
    assert_eq!(tell(&edge, "GET", "/is_sleeping?id=0").await, 200);
    assert_eq!(edge.condition(0).await, words("up", "answers"));
    a.play(with_sleep("a", true));
    assert_eq!(tell(&edge, "GET", "/is_sleeping?id=0").await, 200);
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_sleep_is_asked_once_until_it_is_another() {
    let awake = || script(ok("a")).on("/health", ok(""));
    let without = || awake().on("/is_sleeping", status(404));
    let a = ScriptedEngine::start(without()).await;
    let edge = edge("health_check_fall: 1").engines([&a]).start().await;
    for _ in 0..5 {
        edge.probe().await;
    }
    assert_eq!(a.deliveries_to("/is_sleeping").len(), 1);
    a.stop().await;
    edge.probe().await;
    a.listen_with(awake().on("/is_sleeping", says(true))).await;
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
    // No answer is no answer.
    a.play(awake().on("/is_sleeping", hang()));
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("sleeping", "asleep"));
    a.play(without());
    edge.probe().await;
    assert_eq!(edge.condition(0).await, words("up", "answers"));
}
