//! Records as they come from requests.

use std::time::Duration;

use crate::record::{Attempt, Record};

pub(super) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An attempt of 10 ms.
pub(super) fn attempt(engine: &str, outcome: &'static str, status: Option<u16>) -> Attempt {
    Attempt {
        engine: engine.into(),
        outcome,
        status,
        begun: Duration::ZERO,
        took: ms(10),
        retry: None,
    }
}

/// Attempts of `took` milliseconds each on the engines a, b, c and so on, with these outcomes and
/// with waits of 50, 0, 50 ms and so on between them.
pub(super) fn retried(outcomes: &[&'static str], took: u64) -> Vec<Attempt> {
    let mut begun = Duration::ZERO;
    let names = ('a'..='z').cycle();
    let attempts = names.zip(outcomes).enumerate();
    attempts
        .map(|(place, (name, outcome))| {
            let status = match *outcome {
                "answered" => Some(200),
                "retryable_status" => Some(503),
                _ => None,
            };
            let backoff = if place % 2 == 1 { ms(50) } else { ms(0) };
            begun += backoff;
            let attempt = Attempt {
                begun,
                took: ms(took),
                retry: (place > 0).then_some(("503", backoff)),
                ..attempt(&format!("http://{name}"), outcome, status)
            };
            begun += ms(took);
            attempt
        })
        .collect()
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
        attempts,
        backoff: Duration::ZERO,
        backoffs: &[],
        first_byte: None,
        total: ms(20),
        bytes_in: 20,
        bytes_out: 300,
    }
}
