use std::time::UNIX_EPOCH;

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::TraceId;

use super::*;
use crate::record::{Backoff, Hold};
use crate::traces::{Ratio, TRACEPARENT};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// When the request ended.
fn end() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000)
}

fn attempt(begun: u64, took: u64, outcome: &'static str, status: Option<u16>) -> Attempt {
    Attempt {
        engine: "http://10.0.0.1:9001/base".into(),
        outcome,
        status,
        begun: ms(begun),
        took: ms(took),
        retry: (begun > 0).then_some(("503", ms(50))),
        ..Attempt::default()
    }
}

fn record(attempts: &[Attempt]) -> Record<'_> {
    Record {
        request_id: "r-1",
        trace: None,
        client: Some("[::ffff:10.1.2.3]:5000".parse().unwrap()),
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
        total: ms(100),
        bytes_in: 0,
        bytes_out: 0,
        ..Record::default()
    }
}

fn begin(parent: Option<&'static str>) -> Trace {
    let fields = parent.map(|parent| (TRACEPARENT, HeaderValue::from_static(parent)));
    Trace::begin(
        &fields.into_iter().collect::<HeaderMap>(),
        Ratio::ALL,
        (0xA, 0xB),
    )
}

fn made(record: &Record<'_>) -> Vec<SpanData> {
    spans(
        record,
        &begin(None),
        end(),
        &InstrumentationScope::default(),
    )
}

fn get(span: &SpanData, key: &str) -> Option<String> {
    let mut found = span
        .attributes
        .iter()
        .filter(|pair| pair.key.as_str() == key);
    let value = found.next().map(|pair| pair.value.to_string());
    assert!(found.next().is_none(), "{key} is there twice");
    value
}

fn is_error(span: &SpanData) -> bool {
    matches!(span.status, Status::Error { .. })
}

#[test]
fn a_request_tells_what_was_asked_and_how_it_ended() {
    let attempts = [attempt(0, 90, "answered", Some(200))];
    let spans = made(&record(&attempts));
    let [request, _] = spans.as_slice() else {
        panic!("{spans:?}");
    };
    assert_eq!(request.name, "POST /v1/completions");
    assert_eq!(request.span_kind, SpanKind::Server);
    assert_eq!(request.status, Status::Unset);
    for (key, value) in [
        ("http.request.method", "POST"),
        ("url.path", "/v1/completions"),
        ("url.scheme", "http"),
        ("http.route", "/v1/completions"),
        ("http.response.status_code", "200"),
        ("client.address", "10.1.2.3"),
        ("client.port", "5000"),
        ("gen_ai.request.model", "m"),
        ("vllm_pingora.request_id", "r-1"),
        ("vllm_pingora.outcome", "answered"),
        ("vllm_pingora.reason", "answered"),
        ("vllm_pingora.attempts", "1"),
        ("vllm_pingora.stream", "true"),
    ] {
        assert_eq!(get(request, key).as_deref(), Some(value), "{key}");
    }
    assert_eq!(get(request, "error.type"), None);
}

#[test]
fn an_attempt_tells_where_it_went_and_how_it_ended() {
    let attempts = [
        attempt(0, 10, "retryable_status", Some(503)),
        attempt(60, 40, "answered", Some(200)),
    ];
    let spans = made(&record(&attempts));
    let [_, first, second] = spans.as_slice() else {
        panic!("{spans:?}");
    };
    for span in [first, second] {
        assert_eq!(span.name, "POST /v1/completions");
        assert_eq!(span.span_kind, SpanKind::Client);
        for (key, value) in [
            ("http.request.method", "POST"),
            ("url.full", "http://10.0.0.1:9001/base/v1/completions"),
            ("server.address", "10.0.0.1"),
            ("server.port", "9001"),
        ] {
            assert_eq!(get(span, key).as_deref(), Some(value), "{key}");
        }
    }
    let facts = |span| {
        let status = get(span, "http.response.status_code").unwrap();
        let keys = [
            "http.request.resend_count",
            "vllm_pingora.retry_reason",
            "error.type",
        ];
        (status, keys.map(|key| get(span, key)), is_error(span))
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        facts(first),
        ("503".to_owned(), [None, None, some("503")], true)
    );
    assert_eq!(
        facts(second),
        ("200".to_owned(), [some("1"), some("503"), None], false)
    );
}

#[test]
fn times_are_those_of_the_record() {
    let attempts = [
        attempt(2, 8, "retryable_status", Some(503)),
        attempt(60, 40, "answered", Some(200)),
    ];
    let backoffs = [Backoff {
        begun: ms(10),
        delay: ms(50),
        reason: "503",
    }];
    let holds = [Hold {
        begun: ms(0),
        took: ms(2),
        result: "served",
    }];
    let record = Record {
        backoffs: &backoffs,
        holds: &holds,
        first_byte: Some(ms(70)),
        ..record(&attempts)
    };
    let start = end() - ms(100);
    let spans = made(&record);
    let times: Vec<_> = spans
        .iter()
        .map(|span| {
            let since = |time: SystemTime| time.duration_since(start).unwrap();
            (since(span.start_time), since(span.end_time))
        })
        .collect();
    assert_eq!(
        times,
        [(ms(0), ms(100)), (ms(2), ms(10)), (ms(60), ms(100))]
    );
    let [hold, backoff, first_byte] = spans[0].events.events.as_slice() else {
        panic!("{:?}", spans[0].events);
    };
    assert_eq!((&*hold.name, hold.timestamp), ("hold", start));
    assert_eq!(
        hold.attributes,
        [
            KeyValue::new("vllm_pingora.took_ms", 2.0),
            KeyValue::new("vllm_pingora.result", "served"),
        ]
    );
    assert_eq!(
        (&*backoff.name, backoff.timestamp),
        ("backoff", start + ms(10))
    );
    assert_eq!(
        backoff.attributes,
        [
            KeyValue::new("vllm_pingora.delay_ms", 50.0),
            KeyValue::new("vllm_pingora.reason", "503"),
        ]
    );
    assert_eq!(
        (&*first_byte.name, first_byte.timestamp),
        ("first_byte", start + ms(70))
    );
}

#[test]
fn attempts_hang_below_the_request_and_that_below_the_client() {
    let attempts = [
        attempt(0, 10, "connect", None),
        attempt(10, 10, "answered", Some(200)),
    ];
    for (parent, id, is_remote) in [
        (None, TraceId::from(0xA), false),
        (
            Some(PARENT),
            TraceId::from(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736),
            true,
        ),
    ] {
        let trace = begin(parent);
        let spans = spans(
            &record(&attempts),
            &trace,
            end(),
            &InstrumentationScope::default(),
        );
        assert!(spans.iter().all(|span| span.span_context.trace_id() == id));
        assert_eq!(spans[0].parent_span_id, trace.parent());
        assert_eq!(spans[0].parent_span_is_remote, is_remote);
        assert_eq!(spans[0].span_context.span_id(), SpanId::from(0xB));
        for (number, span) in (1..).zip(&spans[1..]) {
            assert_eq!(span.parent_span_id, SpanId::from(0xB));
            assert_eq!(
                span.span_context.span_id(),
                trace.told_to_engine(number).span
            );
        }
    }
}

#[test]
fn a_request_failed_where_the_server_side_did() {
    for (outcome, reason, status, error) in [
        ("answered", "answered", 200, None),
        ("answered", "answered", 404, None),
        ("answered", "retries_off", 503, Some("503")),
        ("exhausted", "budget_spent", 429, None),
        ("exhausted", "budget_spent", 500, Some("500")),
        ("cut", "committed", 200, Some("cut")),
        (
            "own_error",
            "engine_unreachable",
            502,
            Some("engine_unreachable"),
        ),
        ("own_error", "invalid_api_key", 401, None),
        ("client_gone", "client_gone", 0, None),
        ("client_gone", "client_gone", 200, None),
    ] {
        let spans = made(&Record {
            status,
            outcome,
            reason,
            ..record(&[])
        });
        let kind = get(&spans[0], "error.type");
        assert_eq!(kind.as_deref(), error, "{outcome} {status}");
        assert_eq!(is_error(&spans[0]), error.is_some(), "{outcome} {status}");
        let seen = get(&spans[0], "http.response.status_code");
        assert_eq!(seen, (status != 0).then(|| status.to_string()));
    }
}

#[test]
fn an_attempt_failed_where_it_brought_no_good_answer() {
    for (outcome, status, error) in [
        ("answered", Some(200), None),
        ("answered", Some(400), Some("400")),
        ("retryable_status", Some(503), Some("503")),
        ("retryable_status", Some(200), Some("retryable_status")),
        ("connect", None, Some("connect")),
        ("closed_after_head", Some(200), Some("closed_after_head")),
        ("cut", Some(200), Some("cut")),
        ("client_gone", None, None),
        ("client_gone", Some(200), None),
        ("internal", None, Some("internal")),
    ] {
        let attempts = [attempt(0, 1, outcome, status)];
        let spans = made(&record(&attempts));
        let kind = get(&spans[1], "error.type");
        assert_eq!(kind.as_deref(), error, "{outcome} {status:?}");
        assert_eq!(is_error(&spans[1]), error.is_some(), "{outcome} {status:?}");
    }
}

#[test]
fn nothing_a_client_makes_up_names_a_span_or_fills_the_memory() {
    let long = format!("/{}", "ä".repeat(5000));
    let odd = Record {
        method: "BREW",
        path: &long,
        route: OTHER_ROUTE,
        model: "",
        client: None,
        ..record(&[])
    };
    let spans = made(&odd);
    assert_eq!(spans[0].name, "HTTP");
    assert_eq!(
        get(&spans[0], "http.request.method").as_deref(),
        Some("_OTHER")
    );
    assert_eq!(
        get(&spans[0], "http.request.method_original").as_deref(),
        Some("BREW")
    );
    let path = get(&spans[0], "url.path").unwrap();
    assert_eq!((path.chars().count(), path.ends_with("ä…")), (1025, true));
    for absent in ["http.route", "gen_ai.request.model", "client.address"] {
        assert_eq!(get(&spans[0], absent), None, "{absent}");
    }
    let known = Record {
        method: "GET",
        ..odd
    };
    assert_eq!(made(&known)[0].name, "GET");
}
