use std::collections::BTreeMap;

use super::*;
use crate::config::EngineSpec;
use crate::engines::Policy;
use crate::record::{ANSWERED, Usage};
use crate::retry::StopReason;

#[test]
fn every_listed_name_is_exposed_once_it_has_a_value() {
    let metrics = Metrics::new().unwrap();
    metrics.pull(names::CLIENT_CONNECTIONS, || 3).unwrap();
    metrics.pull(names::LOG_DROPPED, || 0).unwrap();
    metrics.pull(names::BUFFERED_BODIES, || 0).unwrap();
    metrics.pull(names::MAX_BUFFERED_BODIES, || 0).unwrap();
    let _running = metrics.request_begun();
    let attempt = Attempt {
        engine: "http://e".into(),
        outcome: ANSWERED,
        status: Some(200),
        begun: Duration::ZERO,
        took: Duration::from_millis(2),
        retry: None,
        reused: Some(true),
    };
    let attempts = [attempt.clone(), attempt.clone()];
    metrics.attempt_ended(&attempt);
    metrics.connected("http://e", true);
    metrics.ended(&Record {
        request_id: "r",
        client: None,
        method: "POST",
        path: "/v1/completions",
        route: "/v1/completions",
        model: "m",
        stream: false,
        status: 200,
        outcome: ANSWERED,
        reason: "answered",
        stop: Some(StopReason::BudgetSpent),
        attempts: &attempts,
        backoff: Duration::ZERO,
        first_byte: Some(Duration::from_millis(2)),
        total: Duration::from_millis(3),
        bytes_in: 11,
        bytes_out: 22,
        usage: Usage {
            prompt: Some(5),
            cached: Some(3),
            completion: Some(7),
        },
        ..Record::default()
    });
    metrics
        .pace("/v1/completions", "m")
        .piece(Instant::now(), None);
    metrics.retried("503", Duration::from_millis(50));
    metrics.stale_connection();
    metrics.condition_changed("http://e", "up");
    metrics.hold_ended("served");
    metrics.spans_left("sent", 2);
    metrics.reloaded(true);
    let spec = EngineSpec::new("http://e".parse().unwrap(), Vec::new());
    let fleet = Fleet::new(&[spec], &BTreeMap::new(), Policy::default());
    let text = String::from_utf8(metrics.expose(&fleet)).unwrap();
    for name in names::ALL {
        let line = format!("# TYPE {} {}", name.name, name.kind);
        let found = text.lines().filter(|found| *found == line).count();
        assert_eq!(found, 1, "{line}");
    }
    let families = text
        .lines()
        .filter(|line| line.starts_with("# TYPE"))
        .count();
    assert_eq!(families, names::ALL.len());
    for line in [
        r#"vllm_pingora_requests_total{model="m",outcome="answered",route="/v1/completions",status="200"} 1"#,
        r#"vllm_pingora_requests_saved_total{model="m"} 1"#,
        r#"vllm_pingora_requests_exhausted_total{model="m"} 1"#,
        r#"vllm_pingora_request_attempts_sum{model="m"} 2"#,
        r#"vllm_pingora_received_bytes_total{route="/v1/completions"} 11"#,
        r#"vllm_pingora_sent_bytes_total{route="/v1/completions"} 22"#,
        r#"vllm_pingora_prompt_tokens_total{model="m"} 5"#,
        r#"vllm_pingora_cached_prompt_tokens_total{model="m"} 3"#,
        r#"vllm_pingora_completion_tokens_total{model="m"} 7"#,
        r#"vllm_pingora_engine_connections_total{engine="http://e",reused="true"} 1"#,
        "vllm_pingora_client_connections 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
