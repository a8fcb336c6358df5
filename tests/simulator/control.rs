//! The control path.

use serde_json::json;

use super::client::{Client, engine, eventually};

#[tokio::test]
async fn behaviour_is_shown_and_changed_as_a_whole_or_not_at_all() {
    let engine = engine(&json!({"tokens": 2})).await;
    let mut client = Client::connect(&engine).await;
    let refused = client
        .post("/sim", &json!({"script": "503", "ttft_ms": -1}))
        .await;
    assert_eq!(refused.status(), 400);
    assert_eq!(
        refused.json()["error"],
        "ttft_ms: -1 is not accepted; it must be a number between 0 and 3600000"
    );
    let refused = client.post("/sim", &json!({"speed": 1})).await.json();
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .starts_with("speed: unknown key; accepted are script")
    );
    assert_eq!(client.complete().await.status(), 200, "nothing was changed");
    let status = client
        .post(
            "/sim",
            &json!({"script": ["503", 429], "health_status": 503}),
        )
        .await;
    assert_eq!(status.json()["behaviour"]["script"], "503,429");
    assert_eq!(client.complete().await.status(), 503);
    assert_eq!(client.complete().await.status(), 429);
    assert_eq!(client.get("/health").await.status(), 503);
    let status = client.get("/sim").await.json();
    assert_eq!(status["received"], 3);
    assert_eq!(status["statuses"], json!({"200": 1, "429": 1, "503": 1}));
    assert_eq!(status["behaviour"]["tokens"], 2);
}

#[tokio::test]
async fn the_last_requests_are_shown_with_what_came_of_them() {
    let engine = engine(&json!({"script": "200,503"})).await;
    let mut client = Client::connect(&engine).await;
    client.complete().await;
    client
        .start_post(
            "/v1/completions",
            r#"{"prompt":"hi"}"#,
            "X-Request-Id: r2\r\n",
        )
        .await;
    client.answer().await;
    let all = client.get("/sim/requests").await.json();
    assert_eq!(all.as_array().unwrap().len(), 2);
    let last = client.get("/sim/requests?last=1").await.json();
    assert_eq!(
        last,
        json!([{
            "number": 2, "method": "POST", "path": "/v1/completions", "x_request_id": "r2",
            "body_bytes": 15, "body_fnv1a": last[0]["body_fnv1a"], "status": 503, "fault": "503",
            "ending": "complete",
        }])
    );
    assert_eq!(
        all[0]["body_fnv1a"], last[0]["body_fnv1a"],
        "equal bodies have equal hashes"
    );
    assert_eq!(client.get("/sim/requests?last=x").await.status(), 400);
}

#[tokio::test]
async fn a_paused_engine_leaves_new_connections_alone_and_serves_old_ones() {
    let engine = engine(&json!({})).await;
    let mut old = Client::connect(&engine).await;
    old.complete().await;
    let mut control = Client::connect(&engine).await;
    assert_eq!(
        control
            .post("/sim", &json!({"paused": true}))
            .await
            .status(),
        200
    );
    let mut new = Client::connect(&engine).await;
    new.start_post("/v1/completions", r#"{"prompt":"hi"}"#, "")
        .await;
    assert_eq!(old.complete().await.status(), 200);
    let mut late_control = Client::connect(&engine).await;
    assert_eq!(
        late_control.get("/sim").await.json()["received"],
        2,
        "the new one is not served"
    );
    late_control.post("/sim", &json!({"paused": false})).await;
    assert_eq!(new.answer().await.status(), 200);
    eventually(|| engine.control().counts().received == 3).await;
}
