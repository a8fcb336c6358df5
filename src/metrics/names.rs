//! Every series there is: name, type, unit, labels and meaning.
//!
//! To add one, add it here and to [`ALL`], then count it in [`Metrics`](super::Metrics); the
//! README's table is checked against this list.

/// One series.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The name, with its unit as the last word.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels.
    pub labels: &'static [&'static str],
    /// What it counts.
    pub help: &'static str,
    /// Upper bounds of a histogram's buckets.
    pub buckets: &'static [f64],
}

const fn plain(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Name {
    Name {
        name,
        kind,
        labels,
        help,
        buckets: &[],
    }
}

/// From a cached prompt's first token to a long generation.
const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Requests by how they ended.
pub const REQUESTS: Name = plain(
    "vllm_pingora_requests_total",
    "counter",
    &["route", "model", "outcome", "status"],
    "Requests, each counted once, by how they ended",
);
/// Attempts by engine and outcome.
pub const ATTEMPTS: Name = plain(
    "vllm_pingora_attempts_total",
    "counter",
    &["engine", "outcome"],
    "Attempts on an engine, connecting included, by how they ended",
);
/// Further attempts by reason.
pub const RETRIES: Name = plain(
    "vllm_pingora_retries_total",
    "counter",
    &["reason"],
    "Attempts after the first one of a request, by what made them necessary",
);
/// Stale pooled connections.
pub const STALE_CONNECTIONS: Name = plain(
    "vllm_pingora_stale_connections_total",
    "counter",
    &[],
    "Pooled engine connections found closed; the request was sent once more on a fresh one",
);
/// Waits between attempts.
pub const BACKOFF: Name = Name {
    name: "vllm_pingora_backoff_seconds",
    kind: "histogram",
    labels: &[],
    help: "Waits between two attempts of a request",
    buckets: &[
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ],
};
/// Requests in flight.
pub const IN_FLIGHT: Name = plain(
    "vllm_pingora_requests_in_flight",
    "gauge",
    &[],
    "Requests whose head has been read and whose answer is not complete",
);
/// Attempts in flight per engine.
pub const ENGINE_IN_FLIGHT: Name = plain(
    "vllm_pingora_engine_requests_in_flight",
    "gauge",
    &["engine"],
    "Attempts that run on an engine now",
);
/// Whether an engine is up.
pub const ENGINE_UP: Name = plain(
    "vllm_pingora_engine_up",
    "gauge",
    &["engine"],
    "1 where nothing speaks against an engine, 0 where it is out or picked last",
);
/// Changes of an engine's condition.
pub const ENGINE_CHANGES: Name = plain(
    "vllm_pingora_engine_condition_changes_total",
    "counter",
    &["engine", "condition"],
    "Changes of an engine's condition, by the new one: up, starting, sleeping, ejected, down, erring",
);
/// Total time of requests.
pub const DURATION: Name = Name {
    name: "vllm_pingora_request_duration_seconds",
    kind: "histogram",
    labels: &["route"],
    help: "From the request head read to the last byte of the answer sent",
    buckets: SECONDS,
};
/// Time to first token.
pub const FIRST_TOKEN: Name = Name {
    name: "vllm_pingora_time_to_first_token_seconds",
    kind: "histogram",
    labels: &["route"],
    help: "From the request head read to the first body byte of a successful answer sent, retries included",
    buckets: SECONDS,
};
/// Reloads of the configuration.
pub const RELOADS: Name = plain(
    "vllm_pingora_config_reloads_total",
    "counter",
    &["result"],
    "Reloads of the configuration: adopted, or refused for a mistake in it",
);
/// Whether the last reload was adopted.
pub const LAST_RELOAD: Name = plain(
    "vllm_pingora_config_last_reload_successful",
    "gauge",
    &[],
    "1 unless the configuration was last found to hold a mistake, so that the one before is in force",
);
/// The running version.
pub const BUILD_INFO: Name = plain(
    "vllm_pingora_build_info",
    "gauge",
    &["version"],
    "Always 1; the label says which version runs",
);

/// The whole list.
pub const ALL: [Name; 14] = [
    REQUESTS,
    ATTEMPTS,
    RETRIES,
    STALE_CONNECTIONS,
    BACKOFF,
    IN_FLIGHT,
    ENGINE_IN_FLIGHT,
    ENGINE_UP,
    ENGINE_CHANGES,
    DURATION,
    FIRST_TOKEN,
    RELOADS,
    LAST_RELOAD,
    BUILD_INFO,
];
