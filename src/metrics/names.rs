//! Every series there is: name, type, unit, labels and meaning.
//!
//! To add one, add it here and to [`ALL`], then count it in one of the files beside this one; the
//! README's table, the dashboard and the alerts are checked against this list.

/// One series.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The name, with its unit as the last word before `_total`.
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

type Labels = &'static [&'static str];

/// A number that only grows.
pub(super) const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Name {
    of_kind("counter", name, labels, help, &[])
}

/// A number that goes up and down.
pub(super) const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Name {
    of_kind("gauge", name, labels, help, &[])
}

/// Values by size.
pub(super) const fn histogram(
    name: &'static str,
    labels: Labels,
    help: &'static str,
    buckets: &'static [f64],
) -> Name {
    of_kind("histogram", name, labels, help, buckets)
}

const fn of_kind(
    kind: &'static str,
    name: &'static str,
    labels: Labels,
    help: &'static str,
    buckets: &'static [f64],
) -> Name {
    Name {
        name,
        kind,
        labels,
        help,
        buckets,
    }
}

/// From a cached prompt's first token to a long generation.
const SECONDS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
];

/// Requests by how they ended.
pub const REQUESTS: Name = counter(
    "vllm_pingora_requests_total",
    &["route", "model", "outcome", "status"],
    "Requests, each counted once, by how they ended",
);
/// Requests that would have failed.
pub const SAVED: Name = counter(
    "vllm_pingora_requests_saved_total",
    &["model"],
    "Requests answered with a success after at least one attempt had failed",
);
/// Requests that found no good answer within their budget.
pub const EXHAUSTED: Name = counter(
    "vllm_pingora_requests_exhausted_total",
    &["model"],
    "Requests that failed with all attempts of their budget made",
);
/// Attempts a request took.
pub const ATTEMPTS_PER_REQUEST: Name = histogram(
    "vllm_pingora_request_attempts",
    &["model"],
    "Attempts per request, of requests that went to an engine",
    &[1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0],
);
/// Total time of requests.
pub const DURATION: Name = histogram(
    "vllm_pingora_request_duration_seconds",
    &["route", "model"],
    "From the request head read to the last byte of the answer sent; the client's upload and its reading are part of it",
    SECONDS,
);
/// Time to first token.
pub const FIRST_TOKEN: Name = histogram(
    "vllm_pingora_time_to_first_token_seconds",
    &["route", "model"],
    "From the request head read to the first body byte of a successful answer sent, the client's upload and retries included",
    SECONDS,
);
/// Pace of streams.
pub const INTER_TOKEN: Name = histogram(
    "vllm_pingora_inter_token_latency_seconds",
    &["route", "model"],
    "Between two pieces of a stream as they come from the engine; a piece is an event, or several that came together. Time in which the client does not take what came before is left out: a piece that has waited meanwhile counts as one that came at once",
    &[
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 2.5,
        5.0, 10.0,
    ],
);
/// Body bytes in.
pub const RECEIVED: Name = counter(
    "vllm_pingora_received_bytes_total",
    &["route"],
    "Body bytes received from clients",
);
/// Body bytes out.
pub const SENT: Name = counter(
    "vllm_pingora_sent_bytes_total",
    &["route"],
    "Body bytes sent to clients",
);
/// Tokens in.
pub const PROMPT_TOKENS: Name = counter(
    "vllm_pingora_prompt_tokens_total",
    &["model"],
    "Tokens of prompts, where the engine's answer tells them",
);
/// Tokens in that cost little.
pub const CACHED_TOKENS: Name = counter(
    "vllm_pingora_cached_prompt_tokens_total",
    &["model"],
    "Those of the tokens of prompts that were in the engine's cache, where its answer tells them",
);
/// Tokens out.
pub const COMPLETION_TOKENS: Name = counter(
    "vllm_pingora_completion_tokens_total",
    &["model"],
    "Generated tokens, where the engine's answer tells them",
);
/// Attempts by engine and outcome.
pub const ATTEMPTS: Name = counter(
    "vllm_pingora_attempts_total",
    &["engine", "outcome"],
    "Attempts on an engine, connecting included, by how they ended",
);
/// The engine's part of the time.
pub const ATTEMPT_DURATION: Name = histogram(
    "vllm_pingora_attempt_duration_seconds",
    &["engine", "outcome"],
    "Time of an attempt on an engine, connecting and the client's reading of the answer included, by how it ended; waits between attempts belong to none",
    SECONDS,
);
/// Further attempts by reason.
pub const RETRIES: Name = counter(
    "vllm_pingora_retries_total",
    &["reason"],
    "Attempts after the first one of a request, by the status or the failure that made them necessary, or model_not_found",
);
/// Waits between attempts.
pub const BACKOFF: Name = histogram(
    "vllm_pingora_backoff_seconds",
    &[],
    "Waits between two attempts of a request",
    &[
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    ],
);
/// Use of the pool.
pub const CONNECTIONS: Name = counter(
    "vllm_pingora_engine_connections_total",
    &["engine", "reused"],
    "Connections requests were sent on, by whether they had carried another one before (true) or not (false)",
);
/// Stale pooled connections.
pub const STALE_CONNECTIONS: Name = counter(
    "vllm_pingora_stale_connections_total",
    &[],
    "Pooled engine connections found closed; the request was sent once more on a fresh one",
);
/// Requests in flight.
pub const IN_FLIGHT: Name = gauge(
    "vllm_pingora_requests_in_flight",
    &[],
    "Requests whose head has been read and whose answer is not complete",
);
/// Open connections of clients.
pub const CLIENT_CONNECTIONS: Name = gauge(
    "vllm_pingora_client_connections",
    &[],
    "Connections of clients that are open",
);
/// Request bodies that are kept.
pub const BUFFERED_BODIES: Name = gauge(
    "vllm_pingora_buffered_body_bytes",
    &[],
    "Bytes of request bodies that are kept: those that have come of uploads, and those of requests whose answer has not begun",
);
/// The bound of the bodies that are kept.
pub const MAX_BUFFERED_BODIES: Name = gauge(
    "vllm_pingora_max_buffered_body_bytes",
    &[],
    "Most of them that are kept, as it is configured; 0 where there is no limit",
);
/// Attempts in flight per engine.
pub const ENGINE_IN_FLIGHT: Name = gauge(
    "vllm_pingora_engine_requests_in_flight",
    &["engine"],
    "Attempts that run on an engine now",
);
/// Attempts whose answer has begun, per engine.
pub const ENGINE_ANSWERING: Name = gauge(
    "vllm_pingora_engine_requests_answering",
    &["engine"],
    "Those of them whose answer has begun to come; the others wait for their first token",
);
/// Whether an engine is up.
pub const ENGINE_UP: Name = gauge(
    "vllm_pingora_engine_up",
    &["engine"],
    "1 where nothing speaks against an engine, 0 where it is out or picked last",
);
/// Changes of an engine's condition.
pub const ENGINE_CHANGES: Name = counter(
    "vllm_pingora_engine_condition_changes_total",
    &["engine", "condition"],
    "Changes of an engine's condition, by the new one: up, starting, sleeping, ejected, down, erring",
);
/// Lines that were not logged.
pub const LOG_DROPPED: Name = counter(
    "vllm_pingora_log_lines_dropped_total",
    &[],
    "Log lines, those of the access log among them, that were lost: they came faster than they could be written, or could not be written",
);
/// Requests that wait for an engine.
pub const HELD: Name = gauge(
    "vllm_pingora_requests_held",
    &[],
    "Requests that wait for an engine of their model to come up",
);
/// How such waits ended.
pub const HOLDS: Name = counter(
    "vllm_pingora_holds_total",
    &["result"],
    "Waits for an engine to come up, by how they ended: served, timeout, full (the queue), unknown (nobody has the model after all), client_gone",
);
/// The time of such waits.
pub const HOLD: Name = histogram(
    "vllm_pingora_hold_seconds",
    &[],
    "Time requests have waited for an engine to come up, of those that had to",
    &[
        0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0,
    ],
);
/// Spans of traces by what became of them.
pub const SPANS: Name = counter(
    "vllm_pingora_spans_total",
    &["outcome"],
    "Spans of recorded traces, by whether they reached the collector",
);
/// Reloads of the configuration.
pub const RELOADS: Name = counter(
    "vllm_pingora_config_reloads_total",
    &["result"],
    "Reloads of the configuration: adopted, or refused for a mistake in it",
);
/// Whether the last reload was adopted.
pub const LAST_RELOAD: Name = gauge(
    "vllm_pingora_config_last_reload_successful",
    &[],
    "1 unless the configuration was last found to hold a mistake, so that the one before is in force",
);
/// The running version.
pub const BUILD_INFO: Name = gauge(
    "vllm_pingora_build_info",
    &["version"],
    "Always 1; the label says which version runs",
);
/// Time of processors.
pub const CPU: Name = counter(
    "process_cpu_seconds_total",
    &[],
    "Time of processors the process has used, in user and system mode",
);
/// Memory in use.
pub const RESIDENT: Name = gauge(
    "process_resident_memory_bytes",
    &[],
    "Physical memory of the process",
);
/// Address space.
pub const VIRTUAL: Name = gauge(
    "process_virtual_memory_bytes",
    &[],
    "Address space of the process",
);
/// Open files.
pub const OPEN_FDS: Name = gauge(
    "process_open_fds",
    &[],
    "Files and sockets the process has open",
);
/// The limit of open files.
pub const MAX_FDS: Name = gauge(
    "process_max_fds",
    &[],
    "Files and sockets the process may have open",
);
/// Threads.
pub const THREADS: Name = gauge("process_threads", &[], "Threads of the process");
/// When it started.
pub const STARTED: Name = gauge(
    "process_start_time_seconds",
    &[],
    "When the process started, in seconds of Unix time",
);

/// The whole list.
pub const ALL: &[Name] = &[
    REQUESTS,
    SAVED,
    EXHAUSTED,
    ATTEMPTS_PER_REQUEST,
    DURATION,
    FIRST_TOKEN,
    INTER_TOKEN,
    RECEIVED,
    SENT,
    PROMPT_TOKENS,
    CACHED_TOKENS,
    COMPLETION_TOKENS,
    ATTEMPTS,
    ATTEMPT_DURATION,
    RETRIES,
    BACKOFF,
    CONNECTIONS,
    STALE_CONNECTIONS,
    IN_FLIGHT,
    CLIENT_CONNECTIONS,
    BUFFERED_BODIES,
    MAX_BUFFERED_BODIES,
    ENGINE_IN_FLIGHT,
    ENGINE_ANSWERING,
    ENGINE_UP,
    ENGINE_CHANGES,
    HELD,
    HOLDS,
    HOLD,
    SPANS,
    RELOADS,
    LAST_RELOAD,
    LOG_DROPPED,
    BUILD_INFO,
    CPU,
    RESIDENT,
    VIRTUAL,
    OPEN_FDS,
    MAX_FDS,
    THREADS,
    STARTED,
];
