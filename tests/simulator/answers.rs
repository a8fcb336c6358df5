//! What is answered.

use serde_json::{Value, json};
use vllm_pingora::simulator::echo;

use super::client::{Client, engine, engine_with};

fn event(chunk: &str) -> Value {
    let data = chunk
        .strip_prefix("data: ")
        .unwrap()
        .strip_suffix("\n\n")
        .unwrap();
    serde_json::from_str(data).unwrap()
}

#[tokio::test]
async fn each_answer_begins_with_the_echo_of_its_prompt() {
    let engine = engine(&json!({"tokens": 3})).await;
    let mut client = Client::connect(&engine).await;
    for prompt in ["one", "two"] {
        let answer = client
            .post("/v1/completions", &json!({"prompt": prompt}))
            .await;
        let text = answer.json()["choices"][0]["text"].clone();
        assert!(
            text.as_str()
                .unwrap()
                .starts_with(&echo(&format!("\"{prompt}\"")))
        );
        assert_eq!(answer.json()["usage"]["completion_tokens"], 3);
        assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop");
    }
    let messages = json!([{"role": "user", "content": "hi"}]);
    let answer = client
        .post(
            "/v1/chat/completions",
            &json!({"messages": messages, "max_tokens": 1}),
        )
        .await
        .json();
    assert_eq!(
        answer["choices"][0]["message"]["content"],
        echo(&messages.to_string())
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(
        (&answer["object"], &answer["model"]),
        (&json!("chat.completion"), &json!("tiny"))
    );
}

#[tokio::test]
async fn a_stream_is_one_event_per_chunk_with_usage_and_done() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let body = json!({"messages": [], "stream": true, "max_completion_tokens": 4,
                      "ignore_eos": true, "stream_options": {"include_usage": true}});
    client
        .start_post(
            "/v1/chat/completions",
            &body.to_string(),
            "x-request-id: my-\"1\"\r\n",
        )
        .await;
    let head = client.head().await;
    assert_eq!(head.status, 200);
    assert_eq!(
        head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(head.header("server"), Some("uvicorn"));
    assert_eq!(head.header("vary"), Some("Origin"));
    let (chunks, cut) = client.chunks().await;
    assert_eq!((chunks.len(), cut), (1 + 4 + 1 + 1, None));
    let events: Vec<Value> = chunks[..6].iter().map(|chunk| event(chunk)).collect();
    assert!(
        events
            .iter()
            .all(|event| event["id"] == "chatcmpl-my-\"1\"")
    );
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(events[1]["choices"][0]["delta"]["content"], echo("[]"));
    assert_eq!(events[3]["choices"][0]["finish_reason"], Value::Null);
    assert_eq!(events[4]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[5]["choices"], json!([]));
    assert_eq!(events[5]["usage"]["completion_tokens"], 4);
    assert_eq!(chunks[6], "data: [DONE]\n\n");
    assert_eq!(
        client.complete().await.status(),
        200,
        "the connection goes on"
    );
}

#[tokio::test]
async fn a_long_stream_at_full_speed_is_delivered_whole() {
    let engine = engine(&json!({"tokens": 20000})).await;
    let mut client = Client::connect(&engine).await;
    client.start_stream().await;
    assert_eq!(client.head().await.status, 200);
    let (chunks, cut) = client.chunks().await;
    assert_eq!((chunks.len(), cut), (20001, None));
}

#[tokio::test]
async fn embeddings_have_one_vector_per_input() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let two = client
        .post("/v1/embeddings", &json!({"input": ["a", "b"]}))
        .await
        .json();
    let one = client
        .post("/v1/embeddings", &json!({"input": "b"}))
        .await
        .json();
    assert_eq!(two["data"].as_array().unwrap().len(), 2);
    assert_eq!(two["data"][1]["embedding"], one["data"][0]["embedding"]);
    assert_ne!(two["data"][0]["embedding"], one["data"][0]["embedding"]);
    let ids = client
        .post("/v1/embeddings", &json!({"input": [1, 2, 3]}))
        .await
        .json();
    assert_eq!(ids["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn errors_are_those_of_a_vllm_server() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let wrong = json!({"model": "nope", "prompt": "hi", "stream": true});
    let answer = client.post("/v1/completions", &wrong).await;
    assert_eq!(answer.status(), 404);
    assert_eq!(
        answer.body,
        "{\"error\":{\"message\":\"The model `nope` does not exist. Valid aliases: tiny, other.\",\
         \"type\":\"NotFoundError\",\"param\":\"model\",\"code\":404}}"
    );
    client
        .start_post("/v1/completions", "{\"prompt\": ", "")
        .await;
    let answer = client.answer().await;
    assert_eq!(
        (answer.status(), &answer.json()["error"]["type"]),
        (400, &json!("Bad Request"))
    );
    let answer = client.get("/nothing").await;
    assert_eq!(
        (answer.status(), answer.body.as_str()),
        (404, r#"{"detail":"Not Found"}"#)
    );
    let answer = client.get("/v1/completions").await;
    assert_eq!(
        (answer.status(), answer.head.header("allow")),
        (405, Some("POST"))
    );
    assert_eq!(answer.body, r#"{"detail":"Method Not Allowed"}"#);
    let answer = client.get("/v1/models/").await;
    assert_eq!(answer.status(), 307);
    assert_eq!(answer.head.header("location"), Some("http://e/v1/models"));
    let text = b"POST /v1/completions HTTP/1.1\r\ncontent-length: 2\r\n\r\n{}";
    client.send(text).await;
    let answer = client.answer().await;
    assert!(answer.body.contains("Only 'application/json' is allowed"));
}

#[tokio::test]
async fn a_key_guards_v1_and_nothing_else() {
    let engine = engine_with(&json!({}), |config| config.api_key = Some("k".to_owned())).await;
    let mut client = Client::connect(&engine).await;
    for path in ["/v1/models", "/v1/unknown", "/v1/completions"] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.status(), answer.body.as_str()),
            (401, r#"{"error":"Unauthorized"}"#)
        );
        assert_eq!(answer.head.header("vary"), None);
    }
    assert_eq!(client.get("/health").await.status(), 200);
    let body = json!({"prompt": "hi"}).to_string();
    client
        .start_post("/v1/completions", &body, "authorization: Bearer k\r\n")
        .await;
    assert_eq!(client.answer().await.status(), 200);
    client
        .start_post("/v1/completions", &body, "authorization: Bearer x\r\n")
        .await;
    assert_eq!(client.answer().await.status(), 401);
}

#[tokio::test]
async fn the_small_endpoints_answer_and_tokens_are_read_back() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    for path in ["/health", "/ping"] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.status(), answer.head.header("content-length")),
            (200, Some("0"))
        );
    }
    assert_eq!(client.get("/version").await.body, r#"{"version":"0.32.0"}"#);
    let models = client.get("/v1/models").await.json();
    assert_eq!(models["data"][1]["id"], "other");
    let text = "Grüße, engine";
    let tokens = client
        .post("/tokenize", &json!({"prompt": text}))
        .await
        .json();
    assert_eq!(tokens["count"], 4);
    let back = client
        .post("/detokenize", &json!({"tokens": tokens["tokens"]}))
        .await;
    assert_eq!(back.json()["prompt"], text);
    client.complete().await;
    let metrics = client.get("/metrics").await;
    let line =
        r#"vllm:request_success_total{engine="0",model_name="tiny",finished_reason="stop"} 1"#;
    assert!(
        metrics.body.lines().any(|it| it == line),
        "{}",
        metrics.body
    );
}
