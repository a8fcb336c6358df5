//! What goes wrong on purpose.

use serde_json::json;

use super::client::{Client, Cut, engine, eventually};

#[tokio::test]
async fn a_script_of_statuses_is_followed_and_bad_requests_use_up_no_step() {
    let engine = engine(&json!({"script": "503,500,200", "retry_after": "2"})).await;
    let mut client = Client::connect(&engine).await;
    let busy = client.complete().await;
    assert_eq!(
        (busy.status(), busy.head.header("retry-after")),
        (503, Some("2"))
    );
    assert!(
        busy.body
            .contains("Please try again later or on a different instance.")
    );
    let wrong = json!({"model": "nope", "prompt": "hi"});
    assert_eq!(client.post("/v1/completions", &wrong).await.status(), 404);
    let dead = client.complete().await;
    assert_eq!(
        (dead.status(), &dead.json()["error"]["code"]),
        (500, &json!(500))
    );
    assert_eq!(client.complete().await.status(), 200);
    assert_eq!(client.complete().await.status(), 503);
    let counts = engine.control().counts();
    assert_eq!((counts.received, counts.statuses[&503]), (5, 2));
}

#[tokio::test]
async fn streams_break_where_the_script_says() {
    for (word, head, chunks, cut) in [
        ("reset-before-head", false, 0, Some(Cut::Reset)),
        ("close-before-head", false, 0, Some(Cut::Closed)),
        ("reset-after-head", true, 0, Some(Cut::Reset)),
        ("reset-after-3", true, 3, Some(Cut::Reset)),
        ("close-after-2", true, 2, Some(Cut::Closed)),
    ] {
        let engine = engine(&json!({"script": word})).await;
        let mut client = Client::connect(&engine).await;
        client.start_stream().await;
        if head {
            assert_eq!(client.head().await.status, 200, "{word}");
            let (seen, how) = client.chunks().await;
            assert_eq!((seen.len(), how), (chunks, cut), "{word}");
        } else {
            assert_eq!(client.try_head().await.err(), cut, "{word}");
        }
        let control = engine.control();
        eventually(|| control.counts().resets + control.counts().closes == 1).await;
        assert_eq!(control.gauges(), (0, 0), "{word}");
    }
}

#[tokio::test]
async fn whole_answers_break_too() {
    let engine =
        engine(&json!({"script": "reset-before-head,reset-after-head,reset-after-3"})).await;
    for head in [false, true, true] {
        let mut client = Client::connect(&engine).await;
        client
            .start_post("/v1/completions", r#"{"prompt":"hi"}"#, "")
            .await;
        if head {
            assert_eq!(client.head().await.status, 200);
        }
        assert_eq!(client.try_answer().await.err(), Some(Cut::Reset));
    }
}

#[tokio::test]
async fn a_dying_engine_ends_a_stream_with_an_error_event_and_done() {
    let engine =
        engine(&json!({"script": "first-event-error,error-after-2,first-event-error"})).await;
    let mut client = Client::connect(&engine).await;
    for tokens in [0, 2] {
        client.start_stream().await;
        assert_eq!(client.head().await.status, 200);
        let (chunks, cut) = client.chunks().await;
        assert_eq!((chunks.len(), cut), (tokens + 2, None));
        assert!(chunks[tokens].starts_with("data: {\"error\": {\"message\": \"EngineCore"));
        assert_eq!(chunks[tokens + 1], "data: [DONE]\n\n");
    }
    assert_eq!(client.complete().await.status(), 500);
    assert_eq!(engine.control().counts().engine_errors, 3);
}

#[tokio::test]
async fn a_hanging_stream_has_its_head_and_keeps_its_place_until_the_client_leaves() {
    let engine = engine(&json!({"script": "hang,stall-after-2,hang"})).await;
    let mut hangs = Client::connect(&engine).await;
    hangs.start_stream().await;
    assert_eq!(hangs.head().await.status, 200);
    let mut stalls = Client::connect(&engine).await;
    stalls.start_stream().await;
    stalls.head().await;
    stalls.chunk().await.unwrap();
    stalls.chunk().await.unwrap();
    let mut whole = Client::connect(&engine).await;
    whole
        .start_post("/v1/completions", r#"{"prompt":"hi"}"#, "")
        .await;
    let control = engine.control();
    eventually(|| control.gauges() == (3, 0) && control.counts().hangs == 3).await;
    drop((hangs, stalls, whole));
    eventually(|| control.gauges() == (0, 0) && control.counts().aborted == 3).await;
}

#[tokio::test]
async fn equal_seeds_give_equal_faults() {
    let behaviour = json!({"seed": 11, "fail_share": 0.5, "fail_status": 429});
    let (one, two) = (engine(&behaviour).await, engine(&behaviour).await);
    let (mut one, mut two) = (Client::connect(&one).await, Client::connect(&two).await);
    let mut failed = 0;
    for _ in 0..40 {
        let status = one.complete().await.status();
        assert_eq!(two.complete().await.status(), status);
        failed += i32::from(status == 429);
    }
    assert!((5..35).contains(&failed), "{failed}");
}
