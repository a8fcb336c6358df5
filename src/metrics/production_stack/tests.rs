use super::*;
use crate::config::EngineSpec;
use crate::engines::Policy;
use crate::record::Usage;
use crate::retry::{Attempts, Resend};
use crate::routing::Ask;

const SERVER: &str = "http://e:8000";

fn attempt(outcome: &'static str, status: Option<u16>) -> Attempt {
    Attempt {
        engine: SERVER.into(),
        outcome,
        status,
        begun: Duration::ZERO,
        took: Duration::from_millis(2),
        retry: None,
        reused: Some(true),
    }
}

fn record(attempts: &[Attempt]) -> Record<'_> {
    Record {
        request_id: "r",
        client: None,
        method: "POST",
        path: "/v1/completions",
        route: "/v1/completions",
        model: "m",
        stream: true,
        status: 200,
        outcome: ANSWERED,
        reason: "answered",
        stop: None,
        attempts,
        backoff: Duration::ZERO,
        first_byte: Some(Duration::from_millis(100)),
        total: Duration::from_millis(400),
        bytes_in: 0,
        bytes_out: 0,
        usage: Usage {
            prompt: Some(5),
            cached: None,
            completion: Some(7),
        },
        ..Record::default()
    }
}

fn fleet() -> Arc<Fleet> {
    let spec = EngineSpec::new(SERVER.parse().unwrap(), vec!["m".into()]);
    Arc::new(Fleet::new(
        &[spec],
        &std::collections::BTreeMap::new(),
        Policy::default(),
    ))
}

/// The value of this series, as it is exposed.
fn value(metrics: &Metrics, fleet: &Fleet, series: &str) -> Option<String> {
    let text = String::from_utf8(metrics.expose(fleet)).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map(|rest| rest.trim().to_owned())
}

#[test]
fn requests_are_counted_under_the_other_names_too() {
    let (metrics, fleet) = (Metrics::new().unwrap(), fleet());
    let names = ProductionStack::new(&metrics, Arc::clone(&fleet)).unwrap();
    let told = |outcome, status, attempts: &[Attempt]| {
        names.ended(&Record {
            status,
            outcome,
            ..record(attempts)
        });
    };
    let good = attempt(ANSWERED, Some(200));
    told(ANSWERED, 200, std::slice::from_ref(&good));
    told(
        ANSWERED,
        200,
        &[
            attempt("retryable_status", Some(503)),
            attempt("connect", None),
            good.clone(),
        ],
    );
    told("exhausted", 503, &[attempt("retryable_status", Some(503))]);
    told("client_gone", 0, &[attempt("client_gone", None)]);
    told("own_error", 404, &[]);
    names.ended(&Record {
        model: "",
        ..record(&[good])
    });
    let of = |series: &str| value(&metrics, &fleet, series);
    for (series, expected) in [
        (r#"vllm:num_incoming_requests_total{model="m"}"#, "5"),
        (
            r#"vllm:request_latency_seconds_count{model="m",server="http://e:8000",status="success"}"#,
            "2",
        ),
        (
            r#"vllm:request_latency_seconds_sum{model="m",server="http://e:8000",status="success"}"#,
            "0.8",
        ),
        (
            r#"vllm:request_latency_seconds_count{model="m",server="http://e:8000",status="error"}"#,
            "1",
        ),
        (
            r#"vllm:request_errors_total{error_type="503",model="m",server="http://e:8000"}"#,
            "2",
        ),
        (
            r#"vllm:request_errors_total{error_type="connect",model="m",server="http://e:8000"}"#,
            "1",
        ),
        (
            r#"vllm:input_tokens_total{model="m",server="http://e:8000"}"#,
            "20",
        ),
        (
            r#"vllm:output_tokens_total{model="m",server="http://e:8000"}"#,
            "28",
        ),
        (r#"vllm:healthy_pods_total{server="http://e:8000"}"#, "1"),
        (r#"vllm:avg_latency{server="http://e:8000"}"#, "0"),
    ] {
        assert_eq!(of(series).as_deref(), Some(expected), "{series}");
    }
    let text = String::from_utf8(metrics.expose(&fleet)).unwrap();
    for name in NAMES {
        let line = format!("# TYPE {} {}\n", name.name, name.kind);
        assert!(text.contains(&line), "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn gauges_tell_of_now_and_of_the_last_minute() {
    let (metrics, fleet) = (Metrics::new().unwrap(), fleet());
    let names = ProductionStack::new(&metrics, Arc::clone(&fleet)).unwrap();
    let of = |name: &str| {
        let series = format!("vllm:{name}{{server=\"{SERVER}\"}}");
        value(&metrics, &fleet, &series).unwrap()
    };
    assert_eq!(of("current_qps"), "0");
    let crate::engines::Lookup::Pool(pool, _) = fleet.find("m") else {
        panic!("nobody serves it");
    };
    let place = || {
        let attempts = Attempts::new(None, Resend::Always);
        pool.place(&attempts, &Ask::default()).unwrap().1
    };
    let mut running: Vec<_> = (0..30).map(|_| place()).collect();
    running
        .iter_mut()
        .take(10)
        .for_each(crate::engines::Placed::answers);
    let good = [attempt(ANSWERED, Some(200))];
    names.ended(&record(&good));
    names.ended(&Record {
        total: Duration::from_millis(1300),
        ..record(&good)
    });
    tokio::time::advance(Duration::from_secs(15)).await;
    let gauges = [
        "num_requests_running",
        "num_prefill_requests",
        "num_decoding_requests",
        "current_qps",
        "avg_latency",
        "avg_itl",
    ];
    // Twelve steps between tokens took 0.3 and 1.2 seconds.
    assert_eq!(gauges.map(of), ["30", "20", "10", "2", "0.85", "0.125"]);
    running.clear();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(gauges.map(of), ["0"; 6]);
    // An engine that is out is not healthy.
    for _ in 0..3 {
        fleet.failed(&fleet.engines()[0], crate::retry::Failure::Connect);
    }
    assert_eq!(of("healthy_pods_total"), "0");
}
