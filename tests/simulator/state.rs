//! What an engine keeps between requests: sleep, adapters, responses.

use serde_json::{Value, json};
use vllm_pingora::simulator::echo;

use super::client::{Client, engine, eventually};

#[tokio::test]
async fn a_sleeping_engine_takes_requests_in_and_answers_when_it_is_awake() {
    let engine = engine(&json!({})).await;
    let mut operator = Client::connect(&engine).await;
    let slept = operator.post("/sleep?level=2", &json!({})).await;
    assert_eq!(slept.json(), json!({"status": "sleeping", "level": 2}));
    let asleep = operator.get("/is_sleeping").await;
    assert_eq!(asleep.json(), json!({"is_sleeping": true}));
    assert_eq!(operator.get("/health").await.status(), 200);
    let (mut one, mut two) = (
        Client::connect(&engine).await,
        Client::connect(&engine).await,
    );
    one.start_post("/v1/completions", r#"{"prompt":"hi"}"#, "")
        .await;
    two.start_post("/v1/responses", r#"{"input":"hi"}"#, "")
        .await;
    eventually(|| engine.control().counts().received == 3).await;
    assert_eq!(engine.control().counts().statuses.get(&200), Some(&1));
    let woken = operator.post("/wake_up?tags=a&tags=b", &json!({})).await;
    let expected = json!({"status": "awake", "tags": ["a", "b"]});
    assert_eq!(woken.json(), expected);
    assert_eq!(one.answer().await.status(), 200);
    assert_eq!(two.answer().await.status(), 200);
    assert_eq!(
        operator.post("/sleep?level=3", &json!({})).await.status(),
        400
    );
    let awake = operator.get("/is_sleeping").await;
    assert_eq!(awake.json(), json!({"is_sleeping": false}));
}

#[tokio::test]
async fn an_adapter_is_a_model_while_it_is_loaded() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let ask = json!({"model": "lora \"1\"", "prompt": "hi"});
    assert_eq!(client.post("/v1/completions", &ask).await.status(), 404);
    let adapter = json!({"lora_name": "lora \"1\"", "lora_path": "/adapters/1"});
    let loaded = client.post("/v1/load_lora_adapter", &adapter).await;
    assert_eq!(loaded.status(), 200);
    let answer = client.post("/v1/completions", &ask).await;
    assert_eq!(answer.json()["model"], "lora \"1\"");
    let models = client.get("/v1/models").await.json();
    let card = &models["data"][2];
    assert_eq!(
        (&card["id"], &card["root"], &card["parent"]),
        (&json!("lora \"1\""), &json!("/adapters/1"), &json!("tiny"))
    );
    let again = client.post("/v1/load_lora_adapter", &adapter).await;
    assert_eq!(again.status(), 400);
    assert_eq!(again.json()["error"]["type"], "InvalidUserInput");
    for refused in [
        json!({"lora_name": "tiny", "lora_path": "/a"}),
        json!({"lora_name": "", "lora_path": "/a"}),
        json!({"lora_name": "x"}),
        json!({}),
    ] {
        let answer = client.post("/v1/load_lora_adapter", &refused).await;
        assert_eq!(answer.status(), 400, "{refused}");
    }
    let unloaded = client.post("/v1/unload_lora_adapter", &adapter).await;
    assert_eq!(unloaded.status(), 200);
    let again = client.post("/v1/unload_lora_adapter", &adapter).await;
    assert_eq!(again.status(), 404);
    assert_eq!(client.post("/v1/completions", &ask).await.status(), 404);
}

#[tokio::test]
async fn a_response_is_kept_by_the_engine_that_made_it() {
    let (one, two) = (engine(&json!({})).await, engine(&json!({})).await);
    let (mut one, mut two) = (Client::connect(&one).await, Client::connect(&two).await);
    let made = one.post("/v1/responses", &json!({"input": "hi"})).await;
    let made = made.json();
    assert_eq!(
        (&made["object"], &made["status"]),
        (&json!("response"), &json!("completed"))
    );
    assert_eq!(made["output"][0]["content"][0]["text"], echo("\"hi\""));
    let id = made["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}");
    assert_eq!(one.get(&path).await.json(), made);
    let missing = two.get(&path).await;
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.json()["error"]["param"], "response_id");

    let next = json!({"input": "more", "previous_response_id": id});
    let gone_on = one.post("/v1/responses", &next).await.json();
    assert_eq!(gone_on["previous_response_id"], id);
    assert_ne!(gone_on["id"], id);
    assert_eq!(two.post("/v1/responses", &next).await.status(), 404);

    let cancel = |id: &Value| format!("/v1/responses/{}/cancel", id.as_str().unwrap());
    let refused = one.post(&cancel(&made["id"]), &json!({})).await;
    assert_eq!(refused.status(), 400);
    let background = json!({"input": "hi", "background": true});
    let queued = one.post("/v1/responses", &background).await.json();
    assert_eq!(queued["status"], "queued");
    let cancelled = one.post(&cancel(&queued["id"]), &json!({})).await;
    assert_eq!(cancelled.json()["status"], "cancelled");

    let unkept = json!({"input": "hi", "store": false, "request_id": "resp_mine"});
    let unkept = one.post("/v1/responses", &unkept).await.json();
    assert_eq!(unkept["id"], "resp_mine");
    assert_eq!(one.get("/v1/responses/resp_mine").await.status(), 404);
    assert_eq!(one.get("/v1/responses").await.status(), 405);
    assert_eq!(one.get("/v1/responses/a/b").await.status(), 404);
}

#[tokio::test]
async fn a_streamed_response_tells_its_id_in_its_first_event() {
    let engine = engine(&json!({})).await;
    let mut client = Client::connect(&engine).await;
    let ask = r#"{"input":"hi","stream":true,"request_id":"resp_s"}"#;
    client.start_post("/v1/responses", ask, "").await;
    let answer = client.answer().await;
    assert_eq!(
        answer.head.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    let text = answer.body;
    assert!(text.starts_with("event: response.created\ndata: {\"response\":{\"id\":\"resp_s\""));
    let kept = client.get("/v1/responses/resp_s").await.json();
    assert_eq!(kept["status"], "completed");
}
