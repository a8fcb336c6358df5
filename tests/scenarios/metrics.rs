//! What is counted, to the last request, attempt, token, byte and millisecond.

use crate::support::*;

const ROUTE: &str = "/v1/chat/completions";

/// The value of a series of ours that carries these labels, or the sum of several.
fn value(edge: &TestEdge, name: &str, labels: &[(&str, &str)]) -> f64 {
    edge.metric(&format!("vllm_pingora_{name}"), labels)
}

/// Panics unless a histogram holds these values, in seconds or counts, and no others.
#[track_caller]
fn assert_holds(edge: &TestEdge, name: &str, labels: &[(&str, &str)], expected: &[f64]) {
    let part = |part: &str, labels: &[(&str, &str)]| value(edge, &format!("{name}_{part}"), labels);
    assert_eq!(part("count", labels), expected.len() as f64, "{name}");
    let (sum, wanted) = (part("sum", labels), expected.iter().sum::<f64>());
    assert!(
        (sum - wanted).abs() < 1e-6,
        "{name}: {sum} instead of {wanted} in all"
    );
    let full_name = format!("vllm_pingora_{name}");
    let series = vllm_pingora::metrics::names::ALL;
    let series = series
        .iter()
        .find(|series| series.name == full_name)
        .unwrap();
    for bound in series.buckets {
        let text = bound.to_string();
        let found = part("bucket", &[labels, &[("le", &text)]].concat());
        let within = expected.iter().filter(|value| *value <= bound).count();
        assert_eq!(found, within as f64, "{name}: up to {bound}");
    }
}

/// An answer of one piece that tells its tokens.
fn told(prompt: u64, cached: u64, completion: u64) -> Reply {
    ok(format!(
        r#"{{"choices":[{{"message":{{"content":"\"usage\":{{}}"}}}}],"usage":{}}}"#,
        usage(prompt, cached, completion)
    ))
}

fn usage(prompt: u64, cached: u64, completion: u64) -> String {
    format!(
        r#"{{"prompt_tokens":{prompt},"total_tokens":{},"completion_tokens":{completion},"prompt_tokens_details":{{"cached_tokens":{cached}}}}}"#,
        prompt + completion
    )
}

/// A stream of these events, each this long after the one before.
fn stream<'a>(events: impl IntoIterator<Item = (u64, &'a str)>) -> Reply {
    let events = events.into_iter();
    chunks(events.map(|(pause, event)| (ms(pause), format!("data: {event}\n\n"))))
        .header("Content-Type", "text/event-stream; charset=utf-8")
}

#[tokio::test(start_paused = true)]
async fn all_books_agree_however_requests_end() {
    let (a, b) = (
        ScriptedEngine::start(ok("plain")).await,
        ScriptedEngine::start(ok("plain")).await,
    );
    let edge = edge(&format!("{}{NOBODY_OUT}", retries(3)))
        .engines([&a, &b])
        .start()
        .await;
    let (mut received, mut sent) = (0, 0);
    let mut ask = async |request: &Request| {
        let response = edge.ask(request).await;
        received += request.body_bytes().len();
        sent += response.body.len();
        response
    };
    // Ten plain ones, ten that need three attempts, five that spend their budget.
    for _ in 0..10 {
        assert_eq!(ask(&req_n()).await.attempts(), 1);
    }
    for _ in 0..10 {
        a.play([status(503), ok("third time")]);
        b.play([status(503), ok("third time")]);
        assert_eq!(ask(&req_n()).await.attempts(), 3);
    }
    a.play(status(503).body("busy"));
    b.play(status(503).body("busy"));
    for _ in 0..5 {
        assert_eq!(ask(&req_n()).await.text(), "busy");
    }
    // Five that find their engine gone.
    a.play(ok("rerouted"));
    b.play(ok("rerouted"));
    a.stop().await;
    let (mut rerouted, mut direct) = (0, 0);
    while rerouted < 5 {
        match ask(&req_n()).await.attempts() {
            1 => direct += 1,
            _ => rerouted += 1,
        }
    }
    a.restart(ok("back")).await;
    edge.wait_until_idle().await;
    // Two streams that break off.
    for engine in [&a, &b] {
        engine.play(sse(5, ms(20)).rst_at(Point::Pieces(2)));
    }
    let mut cut = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&req_s()).await;
        let mut response = client.read_head().await;
        cut.push(client.read_events(&mut response, 2).await.len());
        client.read_to_end().await;
        received += req_s().body_bytes().len();
        sent += event(0).len() + event(1).len();
    }
    edge.wait_for_requests("cut", 2).await;
    // Clients that leave before their request is complete, during their attempt, in their backoff.
    let seen = || a.seen() + b.seen();
    let mut client = Client::connect(edge.addr()).await;
    client.send(req_n().head_bytes()).await;
    client.send(b"{").await;
    tokio::time::sleep(ms(10)).await;
    client.close();
    received += 1;
    edge.wait_for_requests("client_gone", 1).await;
    for (n, reply) in [(2, hang()), (3, status(503))] {
        a.play(reply.clone());
        b.play(reply);
        let before = seen();
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&req_n()).await;
        while seen() == before {
            tokio::time::sleep(ms(1)).await;
        }
        tokio::time::sleep(ms(50)).await;
        client.close();
        received += req_n().body_bytes().len();
        edge.wait_for_requests("client_gone", n).await;
    }
    edge.wait_until_idle().await;

    let good = 10 + 10 + direct + 5;
    let requests = good + 5 + 2 + 3;
    for (outcome, count) in [
        ("answered", good),
        ("exhausted", 5),
        ("cut", 2),
        ("client_gone", 3),
        ("own_error", 0),
    ] {
        assert_eq!(edge.requests(outcome), f64::from(count), "{outcome}");
    }
    let model = [("model", "m")];
    assert_eq!(value(&edge, "requests_saved_total", &model), 15.0);
    assert_eq!(value(&edge, "requests_exhausted_total", &model), 5.0);
    let mut attempts = [vec![1.0; 10 + direct as usize], vec![3.0; 10], vec![3.0; 5]].concat();
    attempts.extend([2.0; 5]);
    // Cut, left in the attempt, left in the backoff; the one without a body went to nobody.
    attempts.extend([1.0; 4]);
    assert_holds(&edge, "request_attempts", &model, &attempts);
    let all: f64 = attempts.iter().sum();
    assert_eq!(value(&edge, "attempts_total", &[]), all);
    assert_eq!(value(&edge, "attempt_duration_seconds_count", &[]), all);
    for (outcome, count) in [
        ("answered", good),
        ("retryable_status", 20 + 15 + 1),
        ("connect", 5),
        ("cut", 2),
        ("client_gone", 1),
    ] {
        let outcome = [("outcome", outcome)];
        let timed = value(&edge, "attempt_duration_seconds_count", &outcome);
        let exposition = edge.exposition();
        let mut lines = exposition.lines();
        let lines = lines
            .by_ref()
            .filter(|line| line.contains("attempts_total{"));
        assert_eq!(
            timed,
            f64::from(count),
            "{outcome:?}: {:#?}",
            lines.collect::<Vec<_>>()
        );
        assert_eq!(value(&edge, "attempts_total", &outcome), timed);
    }
    assert_eq!(value(&edge, "retries_total", &[("reason", "503")]), 30.0);
    assert_eq!(value(&edge, "retries_total", &[("reason", "connect")]), 5.0);
    edge.assert_backoffs(&[[200, 400]; 15].concat());
    // Every attempt but those that were refused had a connection, which was new or not.
    let connected = value(&edge, "engine_connections_total", &[]);
    let stale = value(&edge, "stale_connections_total", &[]);
    assert_eq!(connected, all - 5.0 + stale);
    let fresh = value(&edge, "engine_connections_total", &[("reused", "false")]);
    assert_eq!(fresh, (a.accepted() + b.accepted()) as f64);
    // All of them took some time; what brought a byte of a good answer has a first token.
    let labels = [("route", ROUTE), ("model", "m")];
    let timed = value(&edge, "request_duration_seconds_count", &labels);
    let unknown = [("route", ROUTE), ("model", "unknown")];
    let without_model = value(&edge, "request_duration_seconds_count", &unknown);
    assert_eq!((timed, without_model), (f64::from(requests - 1), 1.0));
    let first = value(&edge, "time_to_first_token_seconds_count", &labels);
    assert_eq!(first, f64::from(good + 2));
    let route = [("route", ROUTE)];
    assert_eq!(
        value(&edge, "received_bytes_total", &route),
        received as f64
    );
    assert_eq!(value(&edge, "sent_bytes_total", &route), sent as f64);
    for gauge in [
        "requests_in_flight",
        "engine_requests_in_flight",
        "engine_requests_answering",
    ] {
        assert_eq!(value(&edge, gauge, &[]), 0.0, "{gauge}");
    }
    while value(&edge, "client_connections", &[]) > 0.0 {
        tokio::time::sleep(ms(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waits_between_attempts_are_not_the_engines_time() {
    let engine = ScriptedEngine::start([
        status(503).delay(secs(1)),
        status(503).delay(secs(2)),
        ok("ok").delay(ms(400)),
    ])
    .await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.attempts(), 3);
    edge.wait_until_idle().await;
    let url = engine.url();
    let of = |outcome| [("engine", url.as_str()), ("outcome", outcome)];
    let name = "attempt_duration_seconds";
    assert_holds(&edge, name, &of("retryable_status"), &[1.0, 2.0]);
    assert_holds(&edge, name, &of("answered"), &[0.4]);
    let request = [("route", ROUTE), ("model", "m")];
    // With waits of 0.2 and 0.4 seconds.
    assert_holds(&edge, "request_duration_seconds", &request, &[4.0]);
    assert_holds(&edge, "time_to_first_token_seconds", &request, &[4.0]);
    assert_holds(&edge, "backoff_seconds", &[], &[0.2, 0.4]);
}

#[tokio::test(start_paused = true)]
async fn the_pace_of_a_stream_is_the_time_between_its_events() {
    let engine = ScriptedEngine::start(stream([
        (700, "{\"n\":0}"),
        (20, "{\"n\":1}"),
        (80, "{\"n\":2}"),
        (3000, "{\"n\":3}"),
        (40, "[DONE]"),
    ]))
    .await;
    for settings in [RETRIES, ""] {
        let edge = edge(settings).engines([&engine]).start().await;
        let response = edge.ask(&req_s()).await;
        assert_eq!(response.events().len(), 5);
        edge.wait_until_idle().await;
        let labels = [("route", ROUTE), ("model", "m")];
        let gaps = [0.02, 0.08, 3.0, 0.04];
        assert_holds(&edge, "inter_token_latency_seconds", &labels, &gaps);
        assert_holds(&edge, "time_to_first_token_seconds", &labels, &[0.7]);
    }
    // An answer in one piece, or in several that are no events, has none.
    engine.play(chunks([(ms(5), "{\"a\":"), (ms(5), "1}")]));
    let edge = edge(RETRIES).engines([&engine]).start().await;
    edge.ask(&req_n()).await;
    edge.wait_until_idle().await;
    let name = "inter_token_latency_seconds_count";
    assert_eq!(value(&edge, name, &[]), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_long_stream_is_told_of_while_it_runs() {
    let engine = ScriptedEngine::start(sse(100, ms(100))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 50).await;
    let told = value(&edge, "inter_token_latency_seconds_count", &[]);
    assert!((38.0..50.0).contains(&told), "{told}");
    assert_eq!(value(&edge, "engine_requests_answering", &[]), 1.0);
    client.finish(&mut response).await;
    edge.wait_until_idle().await;
    let told = value(&edge, "inter_token_latency_seconds_count", &[]);
    // The last event and the end of the stream may come together.
    assert!((99.0..=100.0).contains(&told), "{told}");
}

#[tokio::test(start_paused = true)]
async fn tokens_are_those_the_answers_tell_of() {
    let engine = ScriptedEngine::start(told(5, 2, 7)).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let tokens = async || {
        edge.wait_until_idle().await;
        ["prompt_tokens", "cached_prompt_tokens", "completion_tokens"]
            .map(|name| value(&edge, &format!("{name}_total"), &[("model", "m")]) as u64)
    };
    // In one piece, three times.
    for _ in 0..3 {
        edge.ask(&req_n()).await;
    }
    assert_eq!(tokens().await, [15, 6, 21]);
    // In one piece that is long and cut anywhere.
    let text = "\"usage\":{ ".repeat(20_000);
    let body = serde_json::json!({"text": text}).to_string();
    let body = body.replace(
        "\"text\"",
        &format!("\"usage\":{},\"text\"", usage(10, 0, 1)),
    );
    let pieces = body.as_bytes().chunks(777).map(|piece| (ms(0), piece));
    engine.play(chunks(pieces));
    assert_eq!(edge.ask(&req_n()).await.body.len(), body.len());
    assert_eq!(tokens().await, [25, 6, 22]);
    // Streamed with include_usage: in the last event.
    let last = format!("{{\"choices\":[],\"usage\":{}}}", usage(100, 50, 3));
    let none = "{\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}";
    engine.play(stream([(1, none), (1, none), (1, &last), (1, "[DONE]")]));
    edge.ask(&req_s()).await;
    assert_eq!(tokens().await, [125, 56, 25]);
    // With continuous_usage_stats: in every event, of which the last counts, cut off or not.
    let each: Vec<_> = (1..=4)
        .map(|n| format!("{{\"choices\":[],\"usage\":{}}}", usage(1000, 500, n)))
        .collect();
    let events = || stream(each.iter().map(|event| (1, event.as_str())));
    engine.play(events());
    edge.ask(&req_s()).await;
    assert_eq!(tokens().await, [1125, 556, 29]);
    engine.play(events().rst_at(Point::Pieces(2)));
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    client.read_to_end().await;
    edge.wait_for_requests("cut", 1).await;
    assert_eq!(tokens().await, [2125, 1056, 31]);
    // Streamed without, failed, or compressed: nobody told.
    engine.play(sse(3, ms(1)));
    edge.ask(&req_s()).await;
    engine.play(told(9, 9, 9).with_status(400));
    edge.ask(&req_n()).await;
    engine.play(told(9, 9, 9).header("Content-Encoding", "gzip"));
    edge.ask(&req_n()).await;
    assert_eq!(tokens().await, [2125, 1056, 31]);
    // What an attempt said that was asked again counts for nothing.
    engine.play([told(9, 9, 9).with_status(503), told(1, 0, 1)]);
    edge.ask(&req_n()).await;
    assert_eq!(tokens().await, [2126, 1056, 32]);
}

#[tokio::test(start_paused = true)]
async fn the_tokens_of_a_response_are_counted_where_it_is_made() {
    let body = r#"{"id":"resp_1","status":"completed","usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":2},"output_tokens":7,"total_tokens":12}}"#;
    let engine = ScriptedEngine::start(ok(body)).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let create = post("/v1/responses").body(r#"{"model":"m","input":"i"}"#);
    assert_eq!(edge.ask(&create).await.status, 200);
    for _ in 0..3 {
        let read = Request::new("GET", "/v1/responses/resp_1");
        assert_eq!(edge.ask(&read).await.status, 200);
    }
    edge.wait_until_idle().await;
    for (name, expected) in [
        ("prompt_tokens", 5.0),
        ("cached_prompt_tokens", 2.0),
        ("completion_tokens", 7.0),
    ] {
        assert_eq!(
            value(&edge, &format!("{name}_total"), &[]),
            expected,
            "{name}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_used_again_is_told_from_a_fresh_one() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for _ in 0..5 {
        edge.ask(&req_n()).await;
    }
    edge.wait_until_idle().await;
    let url = engine.url();
    let count = |reused| {
        let labels = [("engine", url.as_str()), ("reused", reused)];
        value(&edge, "engine_connections_total", &labels)
    };
    assert_eq!((count("false"), count("true")), (1.0, 4.0));
    assert_eq!(engine.accepted(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_answers_is_told_from_one_that_thinks() {
    let engine = ScriptedEngine::start(sse(1000, secs(1))).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut answered = Client::connect(edge.addr()).await;
    answered.send_request(&req_s()).await;
    let mut response = answered.read_head().await;
    answered.read_events(&mut response, 1).await;
    engine.play(hang());
    let mut waiting = Client::connect(edge.addr()).await;
    waiting.send_request(&req_s()).await;
    engine.wait_for_deliveries(2).await;
    let gauges = || {
        [
            "engine_requests_in_flight",
            "engine_requests_answering",
            "client_connections",
        ]
        .map(|name| value(&edge, name, &[]))
    };
    assert_eq!(gauges(), [2.0, 1.0, 2.0]);
    answered.close();
    waiting.close();
    edge.wait_for_requests("client_gone", 2).await;
    edge.wait_until_idle().await;
    assert_eq!(gauges()[..2], [0.0, 0.0]);
}

#[tokio::test(start_paused = true)]
async fn the_production_stacks_names_are_there_where_asked_for() {
    let engine = ScriptedEngine::start([told(5, 2, 7), status(503), told(5, 2, 7)]).await;
    for (settings, there) in [("", false), ("production_stack_metrics: true\n", true)] {
        let edge = edge(&format!("{RETRIES}{settings}"))
            .engines([&engine])
            .start()
            .await;
        edge.exposition();
        engine.play([told(5, 2, 7).delay(secs(2)), status(503), told(5, 2, 7)]);
        assert_eq!(edge.ask(&req_n()).await.attempts(), 1);
        assert_eq!(edge.ask(&req_n()).await.attempts(), 2);
        let unknown = post(ROUTE).body(r#"{"model":"made up"}"#);
        assert_eq!(edge.ask(&unknown).await.status, 404);
        edge.wait_until_idle().await;
        tokio::time::sleep(secs(58)).await;
        let exposition = edge.exposition();
        assert_eq!(exposition.contains("vllm:"), there);
        if !there {
            continue;
        }
        let server = engine.url();
        let of = |name: &str, labels: &[(&str, &str)]| edge.metric(&format!("vllm:{name}"), labels);
        let labels = [("server", server.as_str()), ("model", "m")];
        assert_eq!(of("num_incoming_requests_total", &[]), 2.0);
        assert_eq!(of("input_tokens_total", &labels), 10.0);
        assert_eq!(of("output_tokens_total", &labels), 14.0);
        assert_eq!(of("request_errors_total", &[("error_type", "503")]), 1.0);
        let good = [&labels[..], &[("status", "success")]].concat();
        assert_eq!(of("request_latency_seconds_count", &good), 2.0);
        assert_eq!(of("request_latency_seconds_count", &[]), 2.0);
        assert!((of("request_latency_seconds_sum", &good) - 2.2).abs() < 1e-6);
        let server = [labels[0]];
        assert_eq!(of("healthy_pods_total", &server), 1.0);
        assert!((of("avg_latency", &server) - 1.1).abs() < 1e-6);
        // Three attempts in the minute and a bit since the first look.
        let qps = of("current_qps", &server);
        assert!((qps - 3.0 / 60.2).abs() < 0.001, "{qps}");
        assert_eq!(of("num_requests_running", &server), 0.0);
    }
}
