//! A request as one JSON object.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::record::{Record, shortened};
use crate::retry::StopReason;

#[derive(Serialize)]
struct Object<'a> {
    id: &'a str,
    client: Option<SocketAddr>,
    method: Cow<'a, str>,
    path: Cow<'a, str>,
    route: &'a str,
    model: &'a str,
    stream: bool,
    status: u16,
    outcome: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<&'static str>,
    attempts: Vec<AttemptObject<'a>>,
    upload_ms: Option<f64>,
    backoff_ms: f64,
    hold_ms: f64,
    ttft_ms: Option<f64>,
    total_ms: f64,
    bytes_in: usize,
    bytes_out: usize,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

#[derive(Serialize)]
struct AttemptObject<'a> {
    engine: &'a str,
    outcome: &'a str,
    status: Option<u16>,
    ms: f64,
}

pub(super) fn line(record: &Record<'_>) -> String {
    let attempts = record.attempts.iter().map(|attempt| AttemptObject {
        engine: &attempt.engine,
        outcome: attempt.outcome,
        status: attempt.status,
        ms: rounded(attempt.took),
    });
    let object = Object {
        id: record.request_id,
        client: record.client,
        method: shortened(record.method),
        path: shortened(record.path),
        route: record.route,
        model: record.model,
        stream: record.stream,
        status: record.status,
        outcome: record.outcome,
        reason: record.reason,
        stop: record.stop.map(StopReason::label),
        attempts: attempts.collect(),
        upload_ms: record.upload.map(rounded),
        backoff_ms: rounded(record.backoff),
        hold_ms: rounded(record.held),
        ttft_ms: record.first_byte.map(rounded),
        total_ms: rounded(record.total),
        bytes_in: record.bytes_in,
        bytes_out: record.bytes_out,
        prompt_tokens: record.usage.prompt,
        completion_tokens: record.usage.completion,
        trace: record.trace.map(|trace| trace.id().to_string()),
    };
    // Text and numbers are never refused.
    serde_json::to_string(&object).unwrap_or_default()
}

fn rounded(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::testing::{attempts, record};

    #[test]
    fn a_json_line_holds_the_same() {
        let told: serde_json::Value = serde_json::from_str(&line(&record(&attempts()))).unwrap();
        assert_eq!(told["attempts"][0]["outcome"], "connect");
        assert_eq!(told["attempts"][1]["status"], 200);
        assert_eq!(told["ttft_ms"], 11.0);
        assert_eq!(told["hold_ms"], 1.5);
        assert_eq!(told["upload_ms"], 0.7);
        assert_eq!(told["stop"], "answered");
        assert_eq!(told["outcome"], "answered");
        assert_eq!(told["route"], "/v1/completions");
        assert_eq!(told["completion_tokens"], 7);
        assert_eq!(told["client"], "127.0.0.1:5000");
    }
}
