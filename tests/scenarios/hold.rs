//! Requests that wait for an engine of their model to come up.

use crate::support::*;

const HOLD: &str = "hold_timeout_ms: 10000\neject_pause_ms: 60000\n";

/// The value of this key in a line of the access log.
fn word<'a>(line: &'a str, key: &str) -> &'a str {
    let words = line.split(' ').filter_map(|word| word.split_once('='));
    let mut values = words.filter_map(|(found, value)| (found == key).then_some(value));
    values
        .next()
        .unwrap_or_else(|| panic!("{key} is not in {line}"))
}

/// Takes the only engine of `edge` out: it has worked, and then refuses three requests.
async fn take_out(edge: &TestEdge, engine: &ScriptedEngine) {
    assert_eq!(edge.ask(&req_n()).await.status, 200);
    engine.stop().await;
    for _ in 0..3 {
        assert_eq!(edge.ask(&req_n()).await.status, 502);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_the_engine_to_come_back() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    let edge = edge(HOLD).engines([&engine]).start().await;
    take_out(&edge, &engine).await;
    let request = req_n().header("X-Request-Id", "held-served");
    let back = async {
        tokio::time::sleep(secs(3)).await;
        assert_eq!(edge.metric("vllm_pingora_requests_held", &[]), 1.0);
        engine
            .listen_with(script(ok("back")).on("/health", ok("")))
            .await;
        edge.probe().await;
    };
    let (response, ()) = tokio::join!(edge.ask(&request), back);
    assert_eq!((response.status, response.text()), (200, "back"));
    assert!(response.waited() >= secs(3), "{:?}", response.waited());
    assert!(response.waited() < ms(3500), "{:?}", response.waited());
    edge.wait_until_idle().await;
    assert_eq!(edge.metric("vllm_pingora_requests_held", &[]), 0.0);
    assert_eq!(
        edge.metric("vllm_pingora_holds_total", &[("result", "served")]),
        1.0
    );
    // The wait is most of its time, and told as such.
    let line = edge.access_line("held-served").await;
    let held = word(&line, "hold_ms").parse::<f64>().unwrap();
    assert!((3000.0..3500.0).contains(&held), "{line}");
    assert_eq!(word(&line, "backoff_ms"), "0.0");
    assert_eq!(edge.metric("vllm_pingora_hold_seconds_count", &[]), 1.0);
    let sum = edge.metric("vllm_pingora_hold_seconds_sum", &[]);
    assert!((sum * 1e3 - held).abs() < 1.0, "{sum}: {line}");
}

#[tokio::test(start_paused = true)]
async fn one_request_tries_the_engine_after_its_pause_and_the_others_wait_on() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    let edge = edge("hold_timeout_ms: 10000\neject_pause_ms: 2000\n")
        .engines([&engine])
        .start()
        .await;
    take_out(&edge, &engine).await;
    engine.listen_with(ok("back").delay(ms(500))).await;
    let requests: Vec<_> = (0..5).map(|_| req_n()).collect();
    let asked = futures::future::join_all(requests.iter().map(|request| edge.ask(request))).await;
    for response in &asked {
        assert_eq!((response.status, response.text()), (200, "back"));
    }
    // The trial's answer opened the way for the rest.
    let gaps = &engine.gaps()[1..];
    assert_eq!(gaps.len(), 4);
    assert!(gaps[0] >= ms(500), "{gaps:?}");
    assert!(gaps[1..].iter().all(|gap| *gap < ms(100)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn after_the_timeout_it_is_a_503() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    let collector = Collector::grpc().await;
    let edge = edge(&format!("{HOLD}{}", collector.settings()))
        .engines([&engine])
        .start()
        .await;
    take_out(&edge, &engine).await;
    let request = req_n().header("X-Request-Id", "held-in-vain");
    let response = edge.ask(&request).await;
    assert_eq!(response.status, 503);
    assert_eq!(response.json()["error"]["code"], "no_engine_available");
    assert_eq!(response.headers.get("retry-after"), Some("1"));
    assert!(response.waited() >= secs(10) && response.waited() < ms(10_200));
    assert_eq!(
        edge.metric("vllm_pingora_holds_total", &[("result", "timeout")]),
        1.0
    );
    let line = edge.access_line("held-in-vain").await;
    assert_eq!(word(&line, "hold_ms"), "10000.0", "{line}");
    assert_eq!(word(&line, "total_ms"), "10000.0", "{line}");
    let remembered = edge.admin("/status").await.json();
    assert_eq!(remembered["requests"][0]["hold_ms"], 10000.0);
    let mut span = None;
    // Those before it had an attempt each, and a span for it.
    for found in collector.wait_for_spans(1 + 3 * 2 + 2).await {
        if found
            .attributes
            .get("vllm_pingora.request_id")
            .map(String::as_str)
            == Some("held-in-vain")
        {
            span = Some(found);
        }
    }
    let span = span.unwrap();
    let [hold] = span.events.as_slice() else {
        panic!("{:?}", span.events);
    };
    assert_eq!((hold.name.as_str(), hold.at), ("hold", span.start));
    assert_eq!(hold.attributes["vllm_pingora.took_ms"], "10000");
    assert_eq!(hold.attributes["vllm_pingora.result"], "timeout");
}

#[tokio::test(start_paused = true)]
async fn beyond_the_queue_it_is_a_503_at_once() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    let edge = edge(&format!("{HOLD}hold_queue_size: 2\n"))
        .engines([&engine])
        .start()
        .await;
    take_out(&edge, &engine).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&req_n()).await;
        waiting.push(client);
    }
    while edge.metric("vllm_pingora_requests_held", &[]) < 2.0 {
        tokio::time::sleep(ms(1)).await;
    }
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.waited().as_millis()), (503, 0));
    assert_eq!(
        edge.metric("vllm_pingora_holds_total", &[("result", "full")]),
        1.0
    );
    // Who leaves makes room.
    waiting.pop().unwrap().close();
    edge.wait_for_requests("client_gone", 1).await;
    assert_eq!(edge.metric("vllm_pingora_requests_held", &[]), 1.0);
    assert_eq!(
        edge.metric("vllm_pingora_holds_total", &[("result", "client_gone")]),
        1.0
    );
    assert_eq!(engine.seen(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_may_yet_be_served_is_waited_for_and_one_that_is_not_is_a_404() {
    let engine = ScriptedEngine::refusing().await;
    let edge = edge(&format!("{HOLD}aliases: {{gpt: m}}\n"))
        .engine(&engine, &[])
        .start()
        .await;
    let ask = async |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        edge.ask(&post("/v1/completions").body(body)).await
    };
    let back = async {
        while edge.metric("vllm_pingora_requests_held", &[]) < 3.0 {
            tokio::time::sleep(ms(1)).await;
        }
        let list = serde_json::json!({"object": "list", "data": [{"id": "m"}]});
        let script = script(ok("up")).on("/v1/models", ok(list.to_string()));
        engine.listen_with(script).await;
        edge.look_again().await;
    };
    let (own, alias, other, ()) = tokio::join!(ask("m"), ask("gpt"), ask("other"), back);
    assert_eq!((own.text(), alias.text()), ("up", "up"));
    let renamed = engine.deliveries_to("/v1/completions");
    assert!(
        renamed
            .iter()
            .all(|delivery| delivery.json()["model"] == "m")
    );
    assert_eq!(other.status, 404);
    assert_eq!(other.json()["error"]["code"], "model_not_found");
}

#[tokio::test(start_paused = true)]
async fn without_the_setting_nobody_waits() {
    let engine = ScriptedEngine::refusing().await;
    let edge = edge("eject_pause_ms: 60000\n")
        .engines([&engine])
        .start()
        .await;
    for _ in 0..6 {
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.waited().as_millis()), (502, 0));
    }
    assert_eq!(edge.metric("vllm_pingora_holds_total", &[]), 0.0);
}
