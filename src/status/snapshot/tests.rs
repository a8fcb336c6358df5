use serde_json::{Value, json};

use super::*;
use crate::engines::Condition;
use crate::record::Record;
use crate::retry::Failure;
use crate::status::testing::{ms, record, retried};

fn now(seconds: u64) -> Now {
    Now {
        version: "0",
        unix_ms: 1_000_000 + seconds * 1000,
        uptime: Duration::from_secs(seconds),
        draining: false,
        retries_enabled: true,
        requests_in_flight: 2,
    }
}

fn standing(place: usize) -> Standing {
    Standing {
        id: Some(place.to_string().into()),
        place: Some(place),
        models: vec!["m".to_owned()],
        weight: Some(1),
        condition: "up",
        reason: "answers",
        since: Some(Duration::ZERO),
        in_flight: 0,
        load: 0.0,
    }
}

/// The fleet of these engines.
fn fleet(labels: &[&str]) -> Vec<(Arc<str>, Standing)> {
    let labels = labels.iter().enumerate();
    labels
        .map(|(place, label)| (format!("http://{label}").into(), standing(place)))
        .collect()
}

fn told(history: &History, labels: &[&str], seconds: u64) -> Value {
    serde_json::to_value(Snapshot::new(history, fleet(labels), now(seconds))).unwrap()
}

fn none() -> Value {
    json!({"p50": null, "p95": null, "p99": null})
}

#[test]
fn without_requests_there_is_nothing_to_tell_of_them() {
    let told = told(&History::default(), &["a"], 3);
    assert_eq!(told["uptime_ms"], 3000.0);
    assert_eq!(told["requests_in_flight"], 2);
    for list in ["cells", "requests", "changes"] {
        assert_eq!(told[list], json!([]), "{list}");
    }
    for (window, seconds) in told["windows"].as_array().unwrap().iter().zip(WINDOWS) {
        let expected = json!({
            "seconds": seconds, "requests": 0, "outcomes": {}, "errors": [], "attempts": 0,
            "faults": {"fleet": 0, "router": 0, "client": 0},
            "retries": {"extra_attempts": 0, "reasons": {}, "saved": 0, "lost": 0,
                        "backoff_ms": 0.0, "discarded_ms": 0.0},
            "ttft_ms": none(), "total_ms": none(),
        });
        assert_eq!(*window, expected);
    }
}

#[test]
fn each_window_tells_of_its_own_time() {
    let mut history = History::default();
    let attempts = retried(&["answered"], 10);
    for second in [1, 400, 800, 890] {
        history.ended(&record(&attempts), Duration::from_secs(second));
    }
    let counts = |seconds| -> Vec<u64> {
        let told = told(&history, &["a"], seconds);
        let windows = told["windows"].as_array().unwrap().clone();
        let engine = told["engines"][0]["windows"].as_array().unwrap();
        let attempts: Vec<_> = engine.iter().map(|it| it["attempts"].clone()).collect();
        let requests: Vec<_> = windows.iter().map(|it| it["requests"].clone()).collect();
        assert_eq!(requests, attempts);
        requests.iter().map(|it| it.as_u64().unwrap()).collect()
    };
    assert_eq!(counts(899), [1, 2, 4]);
    assert_eq!(counts(940), [1, 2, 3]);
    assert_eq!(counts(960), [0, 2, 3]);
    assert_eq!(counts(5000), [0, 0, 0]);
}

#[test]
fn an_engine_is_told_with_what_it_did_and_stays_for_a_while_when_it_has_left() {
    let mut history = History::default();
    let attempts = retried(&["connect", "answered"], 10);
    history.ended(
        &Record {
            first_byte: Some(attempts[1].begun + ms(100)),
            ..record(&attempts)
        },
        Duration::from_secs(20),
    );
    let engines = told(&history, &["b"], 21)["engines"].clone();
    let [b, a] = engines.as_array().unwrap().as_slice() else {
        panic!("{engines}");
    };
    assert_eq!(
        (&b["engine"], &a["engine"]),
        (&json!("http://b"), &json!("http://a"))
    );
    assert_eq!(
        (&b["condition"], &a["condition"]),
        (&json!("up"), &json!("gone"))
    );
    assert_eq!((&b["place"], &a["place"]), (&json!(0), &json!(null)));
    assert_eq!(
        (&b["cells"], &a["cells"]),
        (&json!([[1, 1, 0]]), &json!([[1, 1, 1]]))
    );
    let expected =
        json!({"seconds": 60, "attempts": 1, "errors": 1, "retried": 1, "ttft_ms": none()});
    assert_eq!(a["windows"][0], expected);
    let first = b["windows"][0]["ttft_ms"]["p95"].as_f64().unwrap();
    assert!((87.0..113.0).contains(&first), "{first}");
    history.tidy(Duration::from_secs(2000));
    let told = told(&history, &["b"], 2000);
    assert_eq!(told["engines"].as_array().unwrap().len(), 1);
}

#[test]
fn the_most_frequent_error_comes_first() {
    let mut history = History::default();
    for (reason, status, times) in [("invalid_api_key", 401, 2), ("engine_timeout", 504, 3)] {
        for _ in 0..times {
            let record = Record {
                outcome: "own_error",
                reason,
                status,
                ..record(&[])
            };
            history.ended(&record, Duration::from_secs(1));
        }
    }
    let window = told(&history, &[], 1)["windows"][0].clone();
    let expected = json!([
        {"fault": "fleet", "error": "engine_timeout", "count": 3},
        {"fault": "client", "error": "invalid_api_key", "count": 2},
    ]);
    assert_eq!(window["errors"], expected);
    assert_eq!(
        window["faults"],
        json!({"fleet": 3, "router": 0, "client": 2})
    );
    assert_eq!(window["outcomes"], json!({"own_error": 5}));
}

#[test]
fn an_update_tells_what_is_new_and_nothing_else() {
    let mut history = History::default();
    let attempts = retried(&["connect", "answered"], 10);
    history.ended(&record(&attempts), Duration::from_secs(1));
    let labels = ["a", "b", "c"];
    let before = Snapshot::new(&history, fleet(&labels), now(2));
    let quiet = Snapshot::new(&history, fleet(&labels), now(4));
    let update = serde_json::to_value(quiet.since(&before)).unwrap();
    assert_eq!(update, serde_json::to_value(now(4)).unwrap());

    history.ended(&record(&attempts[..1]), Duration::from_secs(4));
    history.ended(&record(&attempts), Duration::from_secs(6));
    history.changed(
        &"http://c".into(),
        Condition::Ejected(Failure::Connect),
        ms(6000),
    );
    let after = Snapshot::new(&history, fleet(&["a", "c"]), now(6));
    let update = serde_json::to_value(after.since(&before)).unwrap();
    let numbers = |list: &str, field: &str| -> Vec<Value> {
        let list = update[list].as_array().unwrap().iter();
        list.map(|it| it[field].clone()).collect()
    };
    // The cell that was told of has grown.
    assert_eq!(numbers("cells", "cell"), [0, 1]);
    assert_eq!(numbers("requests", "number"), [1]);
    assert_eq!(numbers("changes", "number"), [0]);
    // One has left, and is still told of; one has another place.
    assert_eq!(
        numbers("engines", "engine"),
        ["http://a", "http://c", "http://b"]
    );
    assert_eq!(update["windows"].as_array().unwrap().len(), 3);
    assert_eq!(update.get("forgotten"), None);
    let later = Snapshot::new(&History::default(), fleet(&["a", "c"]), now(7));
    let update = serde_json::to_value(later.since(&after)).unwrap();
    assert_eq!(update["forgotten"], json!(["http://b"]));
}

#[test]
fn updates_put_together_are_the_whole() {
    // What a page does with them.
    let mut history = History::default();
    let labels = ["a", "b"];
    let mut before = Snapshot::new(&history, fleet(&labels), now(0));
    let mut cells = BTreeMap::new();
    let mut requests = Vec::new();
    for second in 1..200 {
        let attempts = retried(&["connect", "answered"], 10);
        if second % 7 < 3 {
            history.ended(
                &record(&attempts[second % 2..]),
                Duration::from_secs(second as u64),
            );
        }
        let after = Snapshot::new(&history, fleet(&labels), now(second as u64));
        let update = after.since(&before);
        cells.extend(update.cells.iter().map(|cell| (cell.cell, (*cell).clone())));
        requests.extend(update.requests.iter().rev().map(|request| request.number));
        before = after;
    }
    assert_eq!(cells.into_values().collect::<Vec<_>>(), before.cells);
    requests.reverse();
    let all: Vec<_> = before
        .requests
        .iter()
        .map(|request| request.number)
        .collect();
    assert_eq!(requests, all);
    assert!(all.len() > 20);
}
