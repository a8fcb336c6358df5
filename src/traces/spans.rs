//! The spans of a request that has ended, by the semantic conventions for HTTP.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind, Status};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents};

use super::trace::Trace;
use crate::config::EngineUrl;
use crate::record::{Attempt, OTHER_ROUTE, Record, shortened};

/// The methods that are called by their names; the conventions have all others called alike.
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];

/// The request's span and one for each attempt; it ended at `end`, by the wall clock.
pub(super) fn spans(
    record: &Record<'_>,
    trace: &Trace,
    end: SystemTime,
    scope: &InstrumentationScope,
) -> Vec<SpanData> {
    let request = Request {
        record,
        trace,
        start: end.checked_sub(record.total).unwrap_or(end),
        scope,
    };
    let attempts = (1..).zip(record.attempts);
    let attempts = attempts.map(|(number, attempt)| request.attempt(number, attempt));
    std::iter::once(request.server()).chain(attempts).collect()
}

/// One request that has ended.
struct Request<'a> {
    record: &'a Record<'a>,
    trace: &'a Trace,
    start: SystemTime,
    scope: &'a InstrumentationScope,
}

impl Request<'_> {
    fn server(&self) -> SpanData {
        let record = self.record;
        let mut attributes = self.attributes();
        attributes.push(KeyValue::new(
            "url.path",
            shortened(record.path).into_owned(),
        ));
        attributes.push(KeyValue::new("url.scheme", "http"));
        if record.route != OTHER_ROUTE {
            attributes.push(KeyValue::new("http.route", record.route.to_owned()));
        }
        if record.status != 0 {
            attributes.push(status_code(record.status));
        }
        if let Some(client) = record.client {
            let address = client.ip().to_canonical().to_string();
            attributes.push(KeyValue::new("client.address", address));
            attributes.push(KeyValue::new("client.port", i64::from(client.port())));
        }
        if !record.model.is_empty() {
            attributes.push(KeyValue::new(
                "gen_ai.request.model",
                record.model.to_owned(),
            ));
        }
        attributes.extend([
            KeyValue::new("vllm_pingora.request_id", record.request_id.to_owned()),
            KeyValue::new("vllm_pingora.outcome", record.outcome),
            KeyValue::new("vllm_pingora.reason", record.reason.to_owned()),
            KeyValue::new("vllm_pingora.attempts", count(record.attempts.len())),
            KeyValue::new("vllm_pingora.stream", record.stream),
        ]);
        let error = match record.outcome {
            "cut" => Some(Cow::from("cut")),
            "own_error" if record.status >= 500 => Some(record.reason.to_owned().into()),
            _ if record.status >= 500 => Some(record.status.to_string().into()),
            _ => None,
        };
        let status = failed(error, &mut attributes);
        SpanData {
            parent_span_id: self.trace.parent(),
            parent_span_is_remote: self.trace.parent() != SpanId::INVALID,
            events: self.events(),
            status,
            ..self.span(
                self.trace.request(),
                SpanKind::Server,
                Duration::ZERO,
                record.total,
                attributes,
            )
        }
    }

    fn attempt(&self, ordinal: u32, attempt: &Attempt) -> SpanData {
        let mut attributes = self.attributes();
        let url = format!("{}{}", attempt.engine, shortened(self.record.path));
        attributes.push(KeyValue::new("url.full", url));
        if let Ok(engine) = attempt.engine.parse::<EngineUrl>() {
            attributes.push(KeyValue::new("server.address", engine.host().to_owned()));
            attributes.push(KeyValue::new("server.port", i64::from(engine.port())));
        }
        attributes.extend(attempt.status.map(status_code));
        if ordinal > 1 {
            let resent = i64::from(ordinal - 1);
            attributes.push(KeyValue::new("http.request.resend_count", resent));
        }
        attributes.push(KeyValue::new("vllm_pingora.outcome", attempt.outcome));
        if let Some((reason, _)) = attempt.retry {
            attributes.push(KeyValue::new("vllm_pingora.retry_reason", reason));
        }
        let error = match (attempt.status, attempt.outcome) {
            (Some(status), "answered" | "retryable_status") if status >= 400 => {
                Some(status.to_string().into())
            }
            (_, "answered" | "client_gone") => None,
            (_, failure) => Some(failure.into()),
        };
        let status = failed(error, &mut attributes);
        let context = self.trace.attempt(ordinal);
        SpanData {
            parent_span_id: self.trace.request().span_id(),
            status,
            ..self.span(
                context,
                SpanKind::Client,
                attempt.begun,
                attempt.took,
                attributes,
            )
        }
    }

    /// A span that has nothing to say beyond its attributes; times are from the head read on.
    fn span(
        &self,
        span_context: SpanContext,
        span_kind: SpanKind,
        begun: Duration,
        took: Duration,
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let start_time = self.start + begun;
        SpanData {
            span_context,
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind,
            name: self.name(),
            start_time,
            end_time: start_time + took,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: opentelemetry_sdk::trace::SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    /// Method and route: what a client made up is in no span's name.
    fn name(&self) -> Cow<'static, str> {
        let method = known_method(self.record.method);
        match (method, self.record.route) {
            (None, OTHER_ROUTE) => "HTTP".into(),
            (Some(method), OTHER_ROUTE) => method.into(),
            (method, route) => format!("{} {route}", method.unwrap_or("HTTP")).into(),
        }
    }

    /// What is said of the request in every span.
    fn attributes(&self) -> Vec<KeyValue> {
        let mut attributes = Vec::with_capacity(16);
        match known_method(self.record.method) {
            Some(method) => attributes.push(KeyValue::new("http.request.method", method)),
            None => attributes.extend([
                KeyValue::new("http.request.method", "_OTHER"),
                KeyValue::new(
                    "http.request.method_original",
                    shortened(self.record.method).into_owned(),
                ),
            ]),
        }
        attributes
    }

    /// The waits between attempts and for engines, and the moment the client saw a first byte.
    fn events(&self) -> SpanEvents {
        let waits = self.record.backoffs.iter().map(|backoff| {
            let delay = backoff.delay.as_secs_f64() * 1e3;
            let attributes = vec![
                KeyValue::new("vllm_pingora.delay_ms", delay),
                KeyValue::new("vllm_pingora.reason", backoff.reason),
            ];
            Event::new("backoff", self.start + backoff.begun, attributes, 0)
        });
        let holds = self.record.holds.iter().map(|hold| {
            let took = hold.took.as_secs_f64() * 1e3;
            let attributes = vec![
                KeyValue::new("vllm_pingora.took_ms", took),
                KeyValue::new("vllm_pingora.result", hold.result),
            ];
            Event::new("hold", self.start + hold.begun, attributes, 0)
        });
        let first_byte = self.record.first_byte;
        let first_byte =
            first_byte.map(|at| Event::new("first_byte", self.start + at, Vec::new(), 0));
        let mut events = SpanEvents::default();
        events.events = waits.chain(holds).chain(first_byte).collect();
        events.events.sort_by_key(|event| event.timestamp);
        events
    }
}

/// Notes a failure by its kind.
fn failed(error: Option<Cow<'static, str>>, attributes: &mut Vec<KeyValue>) -> Status {
    match error {
        Some(kind) => {
            attributes.push(KeyValue::new("error.type", kind));
            Status::error("")
        }
        None => Status::Unset,
    }
}

fn status_code(status: u16) -> KeyValue {
    KeyValue::new("http.response.status_code", i64::from(status))
}

fn known_method(method: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|known| *known == method)
}

fn count(count: usize) -> Value {
    i64::try_from(count).unwrap_or(i64::MAX).into()
}

#[cfg(test)]
mod tests;
