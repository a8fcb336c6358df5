//! A router that writes nothing down of requests serves them like any other.

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn requests_are_served_and_retried_as_ever_and_nothing_is_written_down() {
    let usage = r#"{"usage":{"prompt_tokens":5,"completion_tokens":7}}"#;
    for books in [true, false] {
        let script = || [status(503), ok(usage), sse(3, ms(10)), status(404), hang()];
        let engine = ScriptedEngine::start(script()).await;
        let edge = edge(&format!("{RETRIES}{NOBODY_OUT}")).engines([&engine]);
        let edge = if books { edge } else { edge.without_books() };
        let edge = edge.start().await;
        let response = edge.ask(&req_n()).await;
        assert_eq!((response.status, response.attempts()), (200, 2));
        assert_eq!(response.text(), usage);
        let response = edge.ask(&req_s()).await;
        assert_eq!(response.body, sse_body(3));
        assert_eq!(edge.ask(&req_n()).await.status, 404);
        // One that runs, and engines know it.
        let mut client = Client::connect(edge.addr()).await;
        client.send_request(&req_n()).await;
        engine.wait_for_begun(5).await;
        let running = |edge: &TestEdge| edge.metric("vllm_pingora_engine_requests_in_flight", &[]);
        assert_eq!(running(&edge), 1.0);
        let counted = f64::from(u8::from(books));
        assert_eq!(edge.metric("vllm_pingora_requests_in_flight", &[]), counted);
        client.close();
        while running(&edge) > 0.0 {
            tokio::time::sleep(ms(1)).await;
        }
        edge.wait_until_idle().await;
        for (series, number) in [
            ("requests_total", 4.0),
            ("attempts_total", 5.0),
            ("retries_total", 1.0),
            ("engine_connections_total", 5.0),
            ("completion_tokens_total", 7.0),
            ("inter_token_latency_seconds_count", 3.0),
        ] {
            let found = edge.metric(&format!("vllm_pingora_{series}"), &[]);
            assert_eq!(found, counted * number, "{series}");
        }
        let told = edge.admin("/status").await.json();
        assert_eq!(told["windows"][0]["requests"], 4 * u64::from(books));
    }
}
