//! What the status page is fed with: the figures, exact, and the stream of events.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use vllm_pingora::admin::{MOST_STREAMS, PERIOD};

use crate::support::*;

async fn figures(edge: &TestEdge) -> Value {
    edge.wait_until_idle().await;
    let response = edge.admin("/status").await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.headers.get("content-type"),
        Some("application/json")
    );
    response.json()
}

/// The figures of the last minute.
async fn minute(edge: &TestEdge) -> Value {
    figures(edge).await["windows"][0].clone()
}

/// Panics unless `found` has the fields of `expected`, with these values.
#[track_caller]
fn assert_fields(found: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name} of {found:#}");
    }
}

/// A field of every element of a list.
fn each(list: &Value, field: &str) -> Vec<Value> {
    let list = list.as_array().unwrap().iter();
    list.map(|element| element[field].clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn without_requests_everything_is_nothing() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let all = figures(&edge).await;
    assert_fields(
        &all,
        &json!({
            "version": env!("CARGO_PKG_VERSION"), "draining": false, "retries_enabled": true,
            "requests_in_flight": 0, "cells": [], "requests": [], "changes": [],
            "cell_seconds": 5, "engine_cell_seconds": 15,
        }),
    );
    assert_eq!(each(&all["windows"], "seconds"), [60, 300, 900]);
    assert_eq!(each(&all["windows"], "requests"), [0, 0, 0]);
    assert_fields(
        &all["engines"][0],
        &json!({
            "engine": engine.url(), "id": "0", "place": 0, "models": ["m"], "weight": 1,
            "condition": "up", "reason": "answers", "since_ms": 0.0, "in_flight": 0, "load": 0.0,
            "cells": [],
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn what_retrying_costs_and_saves_is_told_to_the_last_attempt() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(&format!("{}{NOBODY_OUT}", retries(3)))
        .engines([&engine])
        .start()
        .await;
    for _ in 0..10 {
        assert_eq!(edge.ask(&req_n()).await.attempts(), 1);
    }
    // Saved, after waits of 200 and 400 ms.
    for _ in 0..4 {
        engine.play([status(503), status(429), ok("ok")]);
        assert_eq!(edge.ask(&req_n()).await.attempts(), 3);
    }
    // Lost.
    engine.play(status(503));
    for _ in 0..2 {
        assert_eq!(edge.ask(&req_n()).await.status, 503);
    }
    let all = figures(&edge).await;
    assert_fields(
        &all["windows"][0],
        &json!({
            "requests": 16,
            "outcomes": {"answered": 14, "exhausted": 2},
            "faults": {"fleet": 2, "router": 0, "client": 0},
            "errors": [{"fault": "fleet", "error": "503", "count": 2}],
            "attempts": 28,
        }),
    );
    let spent = &all["windows"][0]["retries"];
    assert_fields(
        spent,
        &json!({
            "extra_attempts": 12, "saved": 4, "lost": 2, "backoff_ms": 3600.0,
            "reasons": {"429": 4, "503": 8},
        }),
    );
    assert_fields(
        &all["engines"][0]["windows"][0],
        &json!({"attempts": 28, "errors": 14, "retried": 12}),
    );
    assert_eq!(
        each(&all["requests"], "kind"),
        [
            "failed", "failed", "retried", "retried", "retried", "retried"
        ]
    );
    let last = &all["requests"][2];
    assert_fields(
        last,
        &json!({"fault": null, "error": null, "status": 200, "attempts_made": 3, "backoff_ms": 600.0}),
    );
    assert_eq!(each(&last["attempts"], "status"), [503, 429, 200]);
    assert_eq!(
        each(&last["attempts"], "reason"),
        [json!(null), json!("503"), json!("429")]
    );
    assert_eq!(each(&last["attempts"], "backoff_ms"), [0.0, 200.0, 400.0]);
    // The first token, retries included.
    let ttft = last["ttft_ms"].as_f64().unwrap();
    assert!((600.0..700.0).contains(&ttft), "{ttft}");
}

#[tokio::test(start_paused = true)]
async fn waits_for_an_engine_are_told_between_the_attempts() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    // The paused clock runs ahead of a connect on a busy machine: the hold must outlast that.
    let settings = "hold_timeout_ms: 600000\neject_pause_ms: 3000\neject_longest_pause_ms: 3000\n";
    let edge = edge(&format!("{}{settings}", retries(3)))
        .engines([&engine])
        .start()
        .await;
    assert_eq!(edge.ask(&req_n()).await.status, 200);
    engine.stop().await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    // It waits for the engine's trial, which fails, before each of its attempts.
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    let all = figures(&edge).await;
    let (held, unheld) = (&all["requests"][0], &all["requests"][1]);
    assert_eq!(unheld["holds"], json!([]));
    assert_eq!(each(&held["holds"], "result"), ["served"; 3]);
    let numbers = |list: &Value, field: &str| -> Vec<f64> {
        let values = each(list, field).into_iter();
        values.map(|value| value.as_f64().unwrap()).collect()
    };
    let took = numbers(&held["holds"], "took_ms");
    let begun = numbers(&held["holds"], "begun_ms");
    let attempts = numbers(&held["attempts"], "begun_ms");
    assert_eq!(begun[0], 0.0);
    for ((begun, took), attempt) in begun.iter().zip(&took).zip(&attempts) {
        assert!((begun + took - attempt).abs() < 2.0, "{held:#}");
    }
    let sum: f64 = took.iter().sum();
    assert!((sum - held["hold_ms"].as_f64().unwrap()).abs() < 1.0);
    // In vain: nobody was asked.
    engine.restart(ok("works again")).await;
    let edge = self::edge("hold_timeout_ms: 10000\neject_pause_ms: 60000\n")
        .engines([&engine])
        .start()
        .await;
    assert_eq!(edge.ask(&req_n()).await.status, 200);
    engine.stop().await;
    for _ in 0..3 {
        assert_eq!(edge.ask(&req_n()).await.status, 502);
    }
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    let all = figures(&edge).await;
    assert_fields(
        &all["requests"][0],
        &json!({
            "attempts": [],
            "holds": [{"begun_ms": 0.0, "took_ms": 10_000.0, "result": "timeout"}],
            "total_ms": 10_000.0,
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_held_and_then_answered_at_once_is_among_the_last() {
    let engine = ScriptedEngine::start(ok("worked")).await;
    let edge = edge(&format!(
        "{}hold_timeout_ms: 10000\neject_pause_ms: 60000\n",
        retries(3)
    ))
    .engines([&engine])
    .start()
    .await;
    assert_eq!(edge.ask(&req_n()).await.status, 200);
    engine.stop().await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    let request = req_n().header("X-Request-Id", "held-once");
    let back = async {
        tokio::time::sleep(secs(3)).await;
        let replies = script(ok("back")).on("/health", ok(""));
        engine.listen_with(replies).await;
        edge.probe().await;
    };
    let (response, ()) = tokio::join!(edge.ask(&request), back);
    assert_eq!((response.status, response.attempts()), (200, 1));
    // One that need not wait is as plain as ever.
    assert_eq!(edge.ask(&req_n()).await.text(), "back");
    let all = figures(&edge).await;
    assert_eq!(each(&all["requests"], "kind"), ["held", "failed"]);
    let held = &all["requests"][0];
    assert_fields(
        held,
        &json!({
            "id": "held-once", "fault": null, "error": null, "status": 200,
            "outcome": "answered", "attempts_made": 1,
        }),
    );
    assert_eq!(each(&held["holds"], "result"), ["served"]);
    let waited = held["hold_ms"].as_f64().unwrap();
    assert!((3000.0..3500.0).contains(&waited), "{held:#}");
    let begun = held["attempts"][0]["begun_ms"].as_f64().unwrap();
    assert!((waited - begun).abs() < 2.0, "{held:#}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_with_whose_fault_it_is() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(&format!(
        "{}{NOBODY_OUT}api_keys: [client-key]\n",
        retries(2)
    ))
    .engines([&engine])
    .start()
    .await;
    // The client's.
    let nobodys = post("/v1/completions").body(r#"{"model":"nope","prompt":"a"}"#);
    assert_eq!(edge.ask(&nobodys).await.status, 404);
    assert_eq!(
        edge.ask(&req_n().set("Authorization", "Bearer x"))
            .await
            .status,
        401
    );
    engine.play(status(422));
    assert_eq!(edge.ask(&req_n()).await.status, 422);
    // Refused before it was a request at all.
    let mut client = Client::connect(edge.addr()).await;
    client.send("no request\r\n\r\n").await;
    assert_eq!(client.read_response().await.status, 400);
    // The fleet's.
    engine.play(sse(3, secs(1)).fin_at(Point::BodyBytes(20)));
    let mut client = Client::connect(edge.addr()).await;
    let cut = client.ask(&req_s()).await;
    assert!(!cut.complete);
    engine.stop().await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    // Nobody's.
    engine.restart(hang()).await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_n()).await;
    engine.wait_for_begun(1).await;
    client.close();
    edge.wait_for_requests("client_gone", 1).await;

    let all = figures(&edge).await;
    let window = &all["windows"][0];
    assert_fields(
        window,
        &json!({
            "requests": 7,
            "outcomes": {"answered": 1, "client_gone": 1, "cut": 1, "own_error": 4},
            "faults": {"fleet": 2, "router": 0, "client": 4},
        }),
    );
    let mut errors = window["errors"].as_array().unwrap().clone();
    errors.sort_by_key(ToString::to_string);
    let error = |fault: &str, error: &str| json!({"fault": fault, "error": error, "count": 1});
    let mut expected = vec![
        error("client", "422"),
        error("client", "invalid_api_key"),
        error("client", "invalid_request"),
        error("client", "model_not_found"),
        error("fleet", "cut"),
        error("fleet", "engine_unreachable"),
    ];
    expected.sort_by_key(ToString::to_string);
    assert_eq!(errors, expected);
    assert_eq!(
        each(&all["requests"], "kind"),
        [
            "failed", "failed", "refused", "refused", "refused", "refused"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn with_retries_off_a_busy_engine_is_the_fleets_fault() {
    let engine = ScriptedEngine::start(status(503)).await;
    let edge = edge("").engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.status, 503);
    let all = figures(&edge).await;
    assert_eq!(all["retries_enabled"], false);
    assert_fields(
        &all["windows"][0],
        &json!({
            "outcomes": {"answered": 1},
            "errors": [{"fault": "fleet", "error": "503", "count": 1}],
        }),
    );
    assert_fields(
        &all["requests"][0],
        &json!({"kind": "failed", "reason": "retries_off", "attempts_made": 1}),
    );
}

#[tokio::test(start_paused = true)]
async fn an_engine_goes_out_and_comes_back() {
    let dead = ScriptedEngine::start(ok("alive")).await;
    let well = ScriptedEngine::start(ok("well")).await;
    let settings = format!("{RETRIES}eject_pause_ms: 1000\nmost_engines_out: 1\n");
    let edge = edge(&settings).engines([&dead, &well]).start().await;
    assert_eq!(edge.ask(&req_n()).await.text(), "alive");
    dead.stop().await;
    // Out of the window that is looked at below.
    tokio::time::sleep(secs(73)).await;
    for _ in 0..8 {
        assert_eq!(edge.ask(&req_n()).await.text(), "well");
    }
    let all = figures(&edge).await;
    assert_fields(
        &all["engines"][0],
        &json!({"engine": dead.url(), "condition": "ejected", "reason": "connect"}),
    );
    assert_fields(
        &all["engines"][0]["windows"][0],
        &json!({"attempts": 3, "errors": 3, "retried": 3}),
    );
    assert_fields(
        &all["engines"][1]["windows"][0],
        &json!({"attempts": 8, "errors": 0, "retried": 0}),
    );
    let since = all["engines"][0]["since_ms"].as_f64().unwrap();
    assert!((73_000.0..74_000.0).contains(&since), "{since}");
    assert_eq!(each(&all["changes"], "condition"), ["ejected"]);
    assert_eq!(
        all["changes"][0]["at_ms"].as_f64().unwrap().floor(),
        since.floor()
    );

    dead.listen_with(ok("back")).await;
    tokio::time::sleep(secs(2)).await;
    for _ in 0..4 {
        edge.ask(&req_n()).await;
    }
    let all = figures(&edge).await;
    assert_eq!(each(&all["changes"], "condition"), ["up", "ejected"]);
    assert_eq!(each(&all["changes"], "number"), [1, 0]);
    assert_eq!(all["engines"][0]["condition"], "up");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_leaves_the_fleet_is_told_of_for_a_while() {
    let leaves = ScriptedEngine::start(script(sse(10, secs(1)))).await;
    let stays = ScriptedEngine::start(ok("stays")).await;
    let edge = edge(RETRIES).engines([&leaves]).start().await;
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    let mut response = client.read_head().await;
    client.read_events(&mut response, 1).await;
    assert!(edge.reload(&self::edge(RETRIES).engines([&stays])));
    let engines = async || edge.admin("/status").await.json()["engines"].clone();
    let urls = [stays.url(), leaves.url()];
    let seen = engines().await;
    assert_eq!(each(&seen, "engine"), urls);
    assert_eq!(each(&seen, "condition"), ["up", "leaving"]);
    assert_eq!(each(&seen, "place"), [json!(0), json!(null)]);
    assert_eq!(each(&seen, "in_flight"), [0, 1]);
    client.finish(&mut response).await;
    edge.wait_until_idle().await;
    let seen = engines().await;
    assert_eq!(each(&seen, "engine"), urls);
    assert_eq!(each(&seen, "condition"), ["up", "gone"]);
    assert_eq!(seen[1]["windows"][0]["attempts"], 1);
    // Turned off while it runs.
    assert!(edge.reload(&self::edge("").engines([&stays])));
    assert_eq!(edge.admin("/status").await.json()["retries_enabled"], false);
    tokio::time::sleep(secs(915)).await;
    assert_eq!(each(&engines().await, "engine"), [stays.url()]);
}

#[tokio::test(start_paused = true)]
async fn what_has_grown_old_is_told_no_more() {
    let engine = ScriptedEngine::start([status(503), ok("ok")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    assert_eq!(edge.ask(&req_n()).await.attempts(), 2);
    assert_eq!(minute(&edge).await["requests"], 1);
    tokio::time::sleep(secs(61)).await;
    let all = figures(&edge).await;
    assert_eq!(each(&all["windows"], "requests"), [0, 1, 1]);
    tokio::time::sleep(secs(900)).await;
    let all = figures(&edge).await;
    assert_eq!(each(&all["windows"], "requests"), [0, 0, 0]);
    assert_eq!(
        (&all["cells"], &all["engines"][0]["cells"]),
        (&json!([]), &json!([]))
    );
    // The last requests stay, however long ago they were.
    assert_eq!(each(&all["requests"], "kind"), ["retried"]);
}

/// Opens a stream of events.
async fn listen(edge: &TestEdge) -> (Client, Response) {
    let mut client = Client::connect(edge.admin_addr()).await;
    let request = Request::new("GET", "/status/events");
    client.send_request(&request).await;
    let response = client.read_head().await;
    (client, response)
}

/// The name and the data of an event, whose form is checked.
fn parsed(event: &Event) -> (String, Value) {
    let text = std::str::from_utf8(&event.raw).unwrap();
    let lines: Vec<_> = text.split('\n').collect();
    let [name, data, "", ""] = lines.as_slice() else {
        panic!("{text}");
    };
    let name = name.strip_prefix("event: ").unwrap().to_owned();
    let data = serde_json::from_str(data.strip_prefix("data: ").unwrap());
    (name, data.unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_stream_tells_everything_at_first_and_then_what_has_changed() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let other = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine, &other]).start().await;
    edge.ask(&req_n()).await;
    edge.wait_until_idle().await;
    let (mut client, mut stream) = listen(&edge).await;
    assert_eq!(stream.status, 200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
        ("transfer-encoding", "chunked"),
    ] {
        assert_eq!(stream.headers.get(name), Some(value), "{name}");
    }
    let (name, whole) = parsed(&client.read_events(&mut stream, 1).await[0]);
    assert_eq!(
        (name.as_str(), &whole["windows"][0]["requests"]),
        ("status", &json!(1))
    );
    assert_eq!(whole["engines"].as_array().unwrap().len(), 2);

    // Nothing has happened.
    let events = client.read_events(&mut stream, 3).await;
    let gap = events[2].at - events[1].at;
    assert!(gap.abs_diff(PERIOD) < ms(100), "{gap:?}");
    let (name, update) = parsed(&events[2]);
    assert_eq!(name, "update");
    let fields: Vec<_> = update.as_object().unwrap().keys().collect();
    let always = [
        "draining",
        "requests_in_flight",
        "retries_enabled",
        "unix_ms",
        "uptime_ms",
        "version",
    ];
    assert_eq!(fields, always);

    // One request, on the one engine or on the other.
    engine.play([status(503), ok("ok")]);
    other.play([status(503), ok("ok")]);
    edge.ask(&req_n()).await;
    let mut seen = (0, 0);
    for n in 4.. {
        let (_, update) = parsed(&client.read_events(&mut stream, n).await[n - 1]);
        let length = |list: &str| update[list].as_array().map_or(0, Vec::len);
        seen.0 += length("requests");
        seen.1 = seen.1.max(length("engines"));
        if let Some(requests) = update["windows"][0]["requests"].as_u64()
            && requests == 2
        {
            break;
        }
    }
    assert_eq!(seen, (1, 2));
    // Draining, the stream goes on.
    edge.drain();
    loop {
        let n = stream.events().len() + 1;
        let (_, update) = parsed(&client.read_events(&mut stream, n).await[n - 1]);
        if update["draining"] == true {
            break;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_in_good_order_when_another_process_has_the_listener() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let (mut client, mut stream) = listen(&edge).await;
    client.read_events(&mut stream, 2).await;
    edge.drain_admin();
    client.finish(&mut stream).await;
    assert!(stream.complete);
    client.expect_eof().await;
}

#[tokio::test(start_paused = true)]
async fn there_are_so_many_streams_and_a_reader_that_leaves_makes_room() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut streams = Vec::new();
    for _ in 0..MOST_STREAMS {
        let (client, stream) = listen(&edge).await;
        assert_eq!(stream.status, 200);
        streams.push(client);
    }
    let refused = edge.admin("/status/events").await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["error"]["code"], "too_many_streams");
    // The figures are there all the same.
    assert_eq!(edge.admin("/status").await.status, 200);
    streams.pop();
    let again = async {
        while listen(&edge).await.1.status != 200 {
            tokio::time::sleep(ms(1)).await;
        }
    };
    within(PATIENCE, || "no stream has ended".to_owned(), again).await;
}

#[tokio::test(start_paused = true)]
async fn a_page_of_another_site_gets_no_stream() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    for (origin, expected) in [
        ("http://evil.test", 403),
        ("null", 403),
        ("http://edge.test", 200),
    ] {
        let mut client = Client::connect(edge.admin_addr()).await;
        let request = Request::new("GET", "/status/events").header("Origin", origin);
        client.send_request(&request).await;
        assert_eq!(client.read_head().await.status, expected, "{origin}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_to_an_old_client_ends_with_its_connection_and_head_has_no_events() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let mut client = Client::connect(edge.admin_addr()).await;
    client
        .send("GET /status/events HTTP/1.0\r\nHost: a\r\n\r\n")
        .await;
    let mut stream = client.read_head().await;
    assert_eq!(stream.framing, Framing::UntilClose);
    let events = client.read_events(&mut stream, 2).await;
    assert_eq!(
        (parsed(&events[0]).0, parsed(&events[1]).0),
        ("status".into(), "update".into())
    );

    let mut client = Client::connect(edge.admin_addr()).await;
    let head = client.ask(&Request::new("HEAD", "/status/events")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    client.expect_eof().await;
    let mut client = Client::connect(edge.admin_addr()).await;
    let response = client.ask(&Request::new("POST", "/status/events")).await;
    assert_eq!(response.status, 405);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_is_given_up() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut deaf = socket.connect(edge.admin_addr()).await.unwrap();
    let request = Request::new("GET", "/status/events").to_bytes();
    deaf.write_all(&request).await.unwrap();
    deaf.readable().await.unwrap();
    // What the system keeps for it on both ends is full in time, since each update tells of a
    // hundred new requests.
    let path = format!("/{}", "x".repeat(200));
    let request = Request::new("GET", &path).set("X-Request-Id", &"y".repeat(128));
    let mut client = Client::connect(edge.addr()).await;
    let filling = async {
        while edge.admin_open() > 0 {
            for _ in 0..100 {
                assert_eq!(client.ask(&request).await.status, 404);
            }
            tokio::time::sleep(PERIOD).await;
        }
    };
    within(10 * PATIENCE, || "it is waited for".to_owned(), filling).await;
    let mut kept = Vec::new();
    // It ends in the middle, one way or the other.
    let _ = deaf.read_to_end(&mut kept).await;
    assert!(kept.len() < 16 << 20, "{}", kept.len());
    assert!(!kept.ends_with(b"\n\n\r\n"), "an event that is whole");
}

#[tokio::test(start_paused = true)]
async fn the_page_and_its_files_are_served_with_a_strict_policy() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let page = edge.admin("/").await;
    assert_eq!(page.status, 200);
    let mut paths = vec!["/".to_owned()];
    for before in ["src=\"", "href=\""] {
        let names = page.text().split(before).skip(1);
        let names = names.map(|rest| rest.split('"').next().unwrap());
        paths.extend(
            names
                .filter(|name| name.starts_with("page/"))
                .map(|name| format!("/{name}")),
        );
    }
    assert_eq!(paths.len(), 10);
    for path in paths
        .iter()
        .map(String::as_str)
        .chain(["/status", "/engines", "/nope"])
    {
        let file = edge.admin(path).await;
        let policy = file.headers.get("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; "),
            "{path}"
        );
        assert!(
            !policy.contains("unsafe") && !policy.contains('*'),
            "{path}: {policy}"
        );
        assert_eq!(
            file.headers.get("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
        assert_eq!(
            file.headers.get("cache-control"),
            Some("no-store"),
            "{path}"
        );
        let kind = match path.rsplit_once('.').map(|(_, end)| end) {
            Some("js") => "text/javascript",
            Some("css") => "text/css",
            Some("svg") => "image/svg+xml",
            _ if path == "/" => "text/html",
            _ => "application/json",
        };
        assert!(
            file.headers.get("content-type").unwrap().starts_with(kind),
            "{path}"
        );
    }
    for path in ["/status", "/status/events", "/page/main.js"] {
        let response = edge.ask(&Request::new("GET", path)).await;
        assert_eq!(response.status, 404, "{path} on the public port");
    }
}

#[tokio::test(start_paused = true)]
async fn no_key_is_told_and_what_a_client_chose_is_cut_short() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let settings = "api_keys: [hunter2-client]\nengine_api_key: hunter2-engine\n";
    let edge = edge(&format!("{RETRIES}{settings}"))
        .engines([&engine])
        .start()
        .await;
    let path = format!("/v1/{}", "x".repeat(5000));
    let request = Request::new("GET", &format!("{path}?key=hunter2-query"))
        .set("Authorization", "Bearer hunter2-client");
    assert_eq!(edge.ask(&request).await.status, 404);
    edge.ask(&req_n().set("Authorization", "Bearer hunter2-wrong"))
        .await;
    edge.wait_until_idle().await;
    let text = edge.admin("/status").await.text().to_owned();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!text.contains(&"x".repeat(201)), "{text}");
    let all: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        each(&all["requests"], "error"),
        ["invalid_api_key", "not_found"]
    );
}
