//! Retryable and final statuses: C01, C05, C06.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_503_is_asked_again_after_one_backoff() {
    let engine = ScriptedEngine::start([status(503), ok("late")]).await;
    let edge = edge(RETRIES).engines([&engine]).start().await;
    let response = edge.ask(&req_n()).await;
    assert_eq!((response.status, response.text()), (200, "late"));
    assert_eq!(response.waited().as_millis(), 200);
    assert_eq!(engine.seen(), 2);
    assert_eq!(response.headers.get("x-vllm-pingora-attempts"), Some("2"));
    engine.assert_clean();
}

#[tokio::test(start_paused = true)]
async fn c01_max_retries_counts_all_attempts() {
    for budget in [2, 3, 5] {
        let engine = ScriptedEngine::start(status(503).body(r#"{"full":true}"#)).await;
        let edge = edge(&retries(budget)).engines([&engine]).start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!(
            (response.status, response.text()),
            (503, r#"{"full":true}"#)
        );
        assert_eq!(engine.seen(), budget as usize);
        let waits = [200, 400, 800, 1000];
        assert_eq!(millis(&engine.gaps()), waits[..budget as usize - 1]);
        edge.wait_until_idle().await;
        assert_eq!(edge.requests("exhausted"), 1.0);
    }
}
