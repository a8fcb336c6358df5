//! Bodies that reach the other side byte for byte: C17.

use crate::request_body::{ODD, assert_delivered, prompt};
use crate::support::*;

/// Valid JSON that no serialiser would write again in this form.
fn peculiar(model: &str) -> Vec<u8> {
    let text = format!(
        concat!(
            "\u{feff} {{\t\"tools\" : [ {{\"model\":\"nested\", \"b\":1,\"a\":2 , \"b\":3}} ],\r\n",
            "\"text\":\"\\u00e9 é \\/ \\ud83d\\ude00 \u{1f600}\", \"n\":12345678901234567890, ",
            "\"e\":1e400,\"z\":-0,\"f\":1.10 ,\n  \"model\" : \"{}\" , \"stream\":false }}\n"
        ),
        model
    );
    text.into_bytes()
}

#[tokio::test(start_paused = true)]
async fn c17_a_body_reaches_engines_byte_for_byte_on_every_attempt() {
    for chunks in [None, Some(vec![1, 13])] {
        let engine = ScriptedEngine::start([status(503), rst_at(Point::Request), ok("x")]).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let body = peculiar("m");
        let request = post("/v1/chat/completions").body(&body);
        let request = match chunks {
            Some(sizes) => request.chunked(sizes),
            None => request,
        };
        assert_eq!(edge.ask(&request).await.status, 200);
        assert_delivered(&engine, &body, 3, "no alias");
        assert_eq!(engine.deliveries()[2].body, body);
    }
}

#[tokio::test(start_paused = true)]
async fn c17_an_alias_changes_the_top_level_model_and_no_other_byte() {
    let long = "m".repeat(300);
    for (alias, model) in [("a", long.as_str()), (long.as_str(), "b"), ("same", "like")] {
        for chunks in [None, Some(vec![1, 13])] {
            let case = format!("{alias} for {model}, chunks {chunks:?}");
            let replies = [status(503), rst_at(Point::Request), ok("x")];
            let engine = ScriptedEngine::start(replies).await;
            let yaml = format!("{RETRIES}aliases: {{{alias}: {model}}}");
            let edge = edge(&yaml).engine(&engine, &[model]).start().await;
            let request = post("/v1/chat/completions").body(peculiar(alias));
            let request = match chunks {
                Some(sizes) => request.chunked(sizes),
                None => request,
            };
            assert_eq!(edge.ask(&request).await.status, 200, "{case}");
            assert_delivered(&engine, &peculiar(model), 3, &case);
        }
    }
}

#[tokio::test]
async fn c17_a_large_body_behind_an_alias_is_replayed_in_full() {
    let engine = ScriptedEngine::start([rst_at(Point::Request), status(503), ok("x")]).await;
    let yaml = format!("{RETRIES}aliases: {{m: a-longer-name}}");
    let edge = edge(&yaml)
        .engine(&engine, &["a-longer-name"])
        .start()
        .await;
    let body = String::from_utf8(prompt(1 << 20)).unwrap();
    let renamed = body.replacen(r#""m""#, r#""a-longer-name""#, 1);
    let request = post("/v1/chat/completions").body(body).chunked(ODD);
    assert_eq!(edge.ask(&request).await.status, 200);
    assert_delivered(&engine, renamed.as_bytes(), 3, "large");
}

#[tokio::test(start_paused = true)]
async fn c17_of_two_model_keys_the_last_one_is_routed_and_executed() {
    let (a, b) = (
        ScriptedEngine::start(ok("a")).await,
        ScriptedEngine::start(ok("b")).await,
    );
    let edge = edge("aliases: {alias: b}")
        .engine(&a, &["a"])
        .engine(&b, &["b"]);
    let edge = edge.start().await;
    let two = |first: &str, last: &str| {
        let body = format!(r#"{{"model":"{first}","x":1,"model":"{last}"}}"#);
        post("/v1/chat/completions").body(body)
    };
    assert_eq!(edge.ask(&two("b", "a")).await.text(), "a");
    assert_eq!(edge.ask(&two("a", "b")).await.text(), "b");
    assert_eq!(edge.ask(&two("a", "alias")).await.text(), "b");
    assert_eq!(a.deliveries()[0].body, two("b", "a").body_bytes());
    assert_eq!(b.deliveries()[0].body, two("a", "b").body_bytes());
    // Read by either rule, the rewritten body names what was routed by the last key.
    assert_eq!(b.deliveries()[1].json()["model"], "b");
    assert_eq!(edge.ask(&two("a", "unknown")).await.status, 404);
    assert_eq!((a.seen(), b.seen()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn c17_response_bytes_are_not_touched() {
    let body = peculiar("m");
    for reply in [ok(&body), ok(&body).chunked(), ok(&body).until_close()] {
        let engine = ScriptedEngine::start(reply.header("X-Odd", "a,  b")).await;
        let edge = edge(RETRIES).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(response.body, body);
        assert!(response.complete);
        assert_eq!(response.headers.get("x-odd"), Some("a,  b"));
    }
}
