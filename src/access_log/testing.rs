//! Records as they come from requests.

use std::time::Duration;

use crate::record::{Attempt, Record, Usage};
use crate::retry::StopReason;

/// Two of them: the first failed.
pub(super) fn attempts() -> [Attempt; 2] {
    [
        Attempt {
            engine: "http://a".into(),
            outcome: "connect",
            status: None,
            begun: Duration::ZERO,
            took: Duration::from_micros(250),
            retry: None,
            reused: Some(false),
        },
        Attempt {
            engine: "http://b".into(),
            outcome: "answered",
            status: Some(200),
            begun: Duration::from_millis(1),
            took: Duration::from_millis(12),
            retry: Some(("connect", Duration::ZERO)),
            reused: Some(true),
        },
    ]
}

/// The record of a request that was answered, by these attempts.
pub(super) fn record(attempts: &[Attempt]) -> Record<'_> {
    Record {
        request_id: "r-1",
        trace: None,
        client: Some("127.0.0.1:5000".parse().unwrap()),
        method: "POST",
        path: "/v1/completions",
        route: "/v1/completions",
        model: "m",
        stream: true,
        status: 200,
        outcome: "answered",
        reason: "answered",
        stop: Some(StopReason::Answered),
        attempts,
        upload: Some(Duration::from_micros(740)),
        backoff: Duration::ZERO,
        backoffs: &[],
        held: Duration::from_micros(1_500),
        holds: &[],
        first_byte: Some(Duration::from_millis(11)),
        total: Duration::from_millis(13),
        at: None,
        bytes_in: 20,
        bytes_out: 300,
        usage: Usage {
            prompt: Some(5),
            cached: None,
            completion: Some(7),
        },
    }
}
