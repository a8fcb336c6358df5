use super::testing::{attempts, record};
use super::*;
use crate::record::Usage;
use crate::retry::StopReason;
use crate::traces::{Ratio, Trace};

#[test]
fn what_is_not_known_is_a_dash_or_null() {
    let record = Record {
        client: None,
        upload: None,
        first_byte: None,
        usage: Usage::default(),
        model: "",
        ..record(&[])
    };
    let text = Format::Text.line(&record).to_string();
    for field in [
        "client=-",
        "model=\"\"",
        "attempts=-",
        "upload_ms=-",
        "ttft_ms=-",
        "prompt_tokens=-",
    ] {
        assert!(text.contains(&format!(" {field} ")), "{field}: {text}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&Format::Json.line(&record).to_string()).unwrap();
    assert_eq!(json["client"], serde_json::Value::Null);
    assert_eq!(json["upload_ms"], serde_json::Value::Null);
    assert_eq!(json["prompt_tokens"], serde_json::Value::Null);
}

#[test]
fn a_line_leads_to_its_trace_and_tells_why_no_attempt_followed_where_there_is_one() {
    let trace = Trace::begin(&http::HeaderMap::new(), Ratio::ALL, (0xABC, 1));
    let failed = Record {
        trace: Some(&trace),
        status: 502,
        outcome: "own_error",
        reason: "engine_unreachable",
        stop: Some(StopReason::BudgetSpent),
        ..record(&[])
    };
    let text = Format::Text.line(&failed).to_string();
    assert!(
        text.contains(" reason=engine_unreachable stop=budget_spent "),
        "{text}"
    );
    let id = "00000000000000000000000000000abc";
    assert!(text.ends_with(&format!(" trace={id}")), "{text}");
    let json = |record: &Record<'_>| -> serde_json::Value {
        serde_json::from_str(&Format::Json.line(record).to_string()).unwrap()
    };
    let line = json(&failed);
    assert_eq!(line["stop"], "budget_spent");
    assert_eq!(line["trace"], id);
    let neither = Record {
        stop: None,
        ..record(&[])
    };
    let text = Format::Text.line(&neither).to_string();
    assert!(
        !text.contains(" stop=") && !text.contains(" trace="),
        "{text}"
    );
    let line = json(&neither);
    assert!(line.get("stop").is_none() && line.get("trace").is_none());
}

#[test]
fn failures_of_ours_stand_out() {
    for (outcome, expected) in [
        ("answered", Level::Info),
        ("client_gone", Level::Info),
        ("own_error", Level::Warn),
        ("cut", Level::Warn),
        ("exhausted", Level::Warn),
    ] {
        let record = Record {
            outcome,
            ..record(&[])
        };
        assert_eq!(level(&record), expected, "{outcome}");
    }
}

#[test]
fn of_what_went_well_at_once_a_share_is_written_and_of_the_rest_all() {
    let log = AccessLog {
        format: Format::Text,
        sample: 0.25,
    };
    let (attempts, once) = (attempts(), &attempts()[1..]);
    let good = record(once);
    assert!(log.writes(&good, 0.0));
    assert!(log.writes(&good, 0.2));
    assert!(!log.writes(&good, 0.25));
    assert!(!log.writes(&good, 0.99));
    let unasked = Record {
        attempts: &[],
        ..good
    };
    assert!(!log.writes(&unasked, 0.99));
    for told in [
        record(&attempts),
        Record {
            status: 404,
            ..good
        },
        Record {
            outcome: "cut",
            ..good
        },
        Record {
            outcome: "client_gone",
            ..good
        },
        Record {
            outcome: "own_error",
            status: 404,
            ..unasked
        },
        Record {
            outcome: "exhausted",
            status: 503,
            ..good
        },
    ] {
        assert!(log.writes(&told, 0.99), "{told:?}");
    }
    let (all, none) = (
        AccessLog { sample: 1.0, ..log },
        AccessLog { sample: 0.0, ..log },
    );
    assert!(all.writes(&good, 0.999_999_999));
    assert!(!none.writes(&good, 0.0));
    assert!(none.writes(&record(&attempts), 0.0));
}

#[test]
fn no_request_takes_the_room_of_many() {
    let path = format!("/{}", "x".repeat(16 * 1024));
    let record = Record {
        method: &"M".repeat(16 * 1024),
        path: &path,
        ..record(&[])
    };
    let text = Format::Text.line(&record).to_string();
    assert!(text.len() < 3000, "{}", text.len());
    let kept = &path[..1024];
    assert!(
        text.contains(&format!(" path=\"{kept}…\" route=")),
        "{text}"
    );
    let line: serde_json::Value =
        serde_json::from_str(&Format::Json.line(&record).to_string()).unwrap();
    assert_eq!(line["path"], format!("{kept}…"));
    assert_eq!(line["method"].as_str().unwrap().chars().count(), 1025);
}

#[test]
fn no_value_forges_a_line() {
    for hostile in [
        "a\nid=2",
        "a\r\n",
        "a b=c",
        "a\"",
        "\u{1b}[2J",
        "a\u{2028}b",
        "\u{85}",
    ] {
        let record = Record {
            model: hostile,
            path: hostile,
            ..record(&[])
        };
        for format in [Format::Text, Format::Json] {
            let line = format.line(&record).to_string();
            assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line:?}");
        }
        let text = Format::Text.line(&record).to_string();
        assert!(!text.contains(['\u{2028}', '\u{85}']));
        assert!(text.contains(" model=\""), "{text}");
    }
}
