//! Speed and limits.

use std::time::{Duration, Instant};

use serde_json::json;

use super::client::{Client, engine, eventually};

#[tokio::test]
async fn beyond_the_queue_a_request_gets_the_engines_503_before_any_stream() {
    let engine =
        engine(&json!({"ttft_ms": 3_600_000, "max_num_seqs": 1, "max_num_queued_reqs": 1})).await;
    let (mut runs, mut waits) = (
        Client::connect(&engine).await,
        Client::connect(&engine).await,
    );
    runs.start_stream().await;
    runs.head().await;
    waits.start_stream().await;
    waits.head().await;
    let mut late = Client::connect(&engine).await;
    late.start_stream().await;
    let answer = late.answer().await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.head.header("retry-after"), None);
    assert_eq!(
        answer.body,
        "{\"error\":{\"message\":\"The engine is currently busy and cannot accept new requests. \
         Please try again later or on a different instance.\",\"type\":\"Service Unavailable\",\
         \"param\":null,\"code\":503}}"
    );
    let metrics = late.get("/metrics").await.body;
    for line in [
        r#"vllm:num_requests_running{engine="0",model_name="tiny"} 1"#,
        r#"vllm:num_requests_waiting{engine="0",model_name="tiny"} 1"#,
        r#"vllm:admission_rejections_total{engine="0",model_name="tiny",reason="max_num_queued_reqs"} 1"#,
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}\n{metrics}");
    }
    engine
        .control()
        .change(&json!({"max_num_seqs": 2}))
        .unwrap();
    eventually(|| engine.control().gauges() == (2, 0)).await;
}

#[tokio::test]
async fn answers_take_their_time() {
    let engine = engine(&json!({"ttft_ms": 40, "tokens_per_second": 100, "tokens": 5})).await;
    let mut client = Client::connect(&engine).await;
    let start = Instant::now();
    client.start_stream().await;
    client.head().await;
    client.chunk().await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(40));
    let (rest, _) = client.chunks().await;
    assert_eq!(rest.len(), 5);
    assert!(start.elapsed() >= Duration::from_millis(80));
    let start = Instant::now();
    client.complete().await;
    assert!(start.elapsed() >= Duration::from_millis(80));
}
