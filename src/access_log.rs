//! One line per request: who asked what, which attempts it took, how it ended.
//!
//! Neither keys nor prompts appear. Whatever a client chose is quoted, so that no value can
//! forge a line.

use std::borrow::Cow;
use std::fmt::{self, Display, Formatter, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use log::Level;
use serde::Serialize;

use crate::record::{ANSWERED, Observer, Record, shortened};
use crate::retry::StopReason;

/// The target of these lines in the `log` crate.
pub const TARGET: &str = "access";

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: `key=value`.
    Text,
    /// One JSON object.
    Json,
}

/// Writes requests to the log.
#[derive(Clone, Copy, Debug)]
pub struct AccessLog {
    /// The form of a line.
    pub format: Format,
    /// The share, from 0 to 1, of the requests that went well at the first attempt that is written.
    /// All others are written always.
    pub sample: f64,
}

impl AccessLog {
    /// Whether this request is written; `draw` is uniform in `[0, 1)`.
    pub fn writes(&self, record: &Record<'_>, draw: f64) -> bool {
        let went_well = record.outcome == ANSWERED && record.status < 400;
        draw < self.sample || !went_well || record.attempts.len() > 1
    }
}

impl Observer for AccessLog {
    fn ended(&self, record: &Record<'_>) {
        let draw = if self.sample < 1.0 {
            rand::random()
        } else {
            0.0
        };
        if !self.writes(record, draw) {
            return;
        }
        let level = level(record);
        log::log!(target: TARGET, level, "{}", self.format.line(record));
    }
}

/// Requests that somebody may have to look after stand out.
fn level(record: &Record<'_>) -> Level {
    match record.outcome {
        "own_error" | "cut" | "exhausted" => Level::Warn,
        _ => Level::Info,
    }
}

impl Format {
    /// The line of a request, without its end.
    pub fn line<'a>(self, record: &'a Record<'a>) -> impl Display + 'a {
        Line(self, record)
    }
}

struct Line<'a>(Format, &'a Record<'a>);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Format::Text => f.write_str(&text(self.1)),
            Format::Json => f.write_str(&json(self.1)),
        }
    }
}

/// Put together by hand, since it is made for every request: the standard formatter takes four times
/// as long.
fn text(record: &Record<'_>) -> String {
    let mut line = String::with_capacity(512);
    field(&mut line, "id=", record.request_id);
    line.push_str(" client=");
    match record.client {
        Some(client) => push_address(&mut line, client),
        None => line.push('-'),
    }
    field(&mut line, " method=", &shortened(record.method));
    line.push_str(" path=");
    push_quoted(&mut line, &shortened(record.path));
    line.push_str(" route=");
    push_quoted(&mut line, record.route);
    line.push_str(" model=");
    push_quoted(&mut line, record.model);
    field(
        &mut line,
        " stream=",
        if record.stream { "true" } else { "false" },
    );
    line.push_str(" status=");
    push_number(&mut line, record.status.into());
    field(&mut line, " outcome=", record.outcome);
    field(&mut line, " reason=", record.reason);
    if let Some(stop) = record.stop {
        field(&mut line, " stop=", stop.label());
    }
    line.push_str(" attempts=");
    if record.attempts.is_empty() {
        line.push('-');
    }
    for (n, attempt) in record.attempts.iter().enumerate() {
        field(&mut line, if n == 0 { "" } else { "," }, &attempt.engine);
        field(&mut line, ":", attempt.outcome);
        if let Some(status) = attempt.status {
            line.push('/');
            push_number(&mut line, status.into());
        }
        line.push(':');
        push_millis(&mut line, attempt.took);
        line.push_str("ms");
    }
    line.push_str(" upload_ms=");
    push_or_dash(&mut line, record.upload, push_millis);
    line.push_str(" backoff_ms=");
    push_millis(&mut line, record.backoff);
    line.push_str(" hold_ms=");
    push_millis(&mut line, record.held);
    line.push_str(" ttft_ms=");
    push_or_dash(&mut line, record.first_byte, push_millis);
    line.push_str(" total_ms=");
    push_millis(&mut line, record.total);
    line.push_str(" bytes_in=");
    push_number(&mut line, record.bytes_in as u64);
    line.push_str(" bytes_out=");
    push_number(&mut line, record.bytes_out as u64);
    line.push_str(" prompt_tokens=");
    push_or_dash(&mut line, record.usage.prompt, push_number);
    line.push_str(" completion_tokens=");
    push_or_dash(&mut line, record.usage.completion, push_number);
    if let Some(trace) = record.trace {
        field(&mut line, " trace=", &trace.id().to_string());
    }
    line
}

fn field(line: &mut String, name: &str, value: &str) {
    line.push_str(name);
    line.push_str(value);
}

fn push_or_dash<T>(line: &mut String, value: Option<T>, push: impl FnOnce(&mut String, T)) {
    match value {
        Some(value) => push(line, value),
        None => line.push('-'),
    }
}

/// A value as it is where that is unmistakable, else as a JSON string.
fn push_quoted(line: &mut String, value: &str) {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
    if !value.is_empty() && value.bytes().all(plain) {
        return line.push_str(value);
    }
    // JSON leaves these line ends as they are.
    let quoted = serde_json::Value::from(value).to_string();
    let quoted = quoted
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
        .replace('\u{85}', "\\u0085");
    line.push_str(&quoted);
}

fn push_address(line: &mut String, address: SocketAddr) {
    let SocketAddr::V4(address) = address else {
        let _ = write!(line, "{address}");
        return;
    };
    for (n, octet) in address.ip().octets().into_iter().enumerate() {
        if n > 0 {
            line.push('.');
        }
        push_number(line, octet.into());
    }
    line.push(':');
    push_number(line, address.port().into());
}

/// Milliseconds with one digit after the point.
fn push_millis(line: &mut String, time: Duration) {
    let tenths = time.as_secs() * 10_000 + u64::from((time.subsec_nanos() + 50_000) / 100_000);
    push_number(line, tenths / 10);
    line.push('.');
    push_number(line, tenths % 10);
}

fn push_number(line: &mut String, mut number: u64) {
    // As many digits as the largest has.
    let mut digits = [b'0'; 20];
    let mut length = 0;
    for digit in digits.iter_mut().rev() {
        #[allow(clippy::cast_possible_truncation)] // one digit
        let last = (number % 10) as u8;
        *digit = b'0' + last;
        length += 1;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let digits = digits.get(digits.len() - length..).unwrap_or_default();
    line.push_str(str::from_utf8(digits).unwrap_or_default());
}

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

fn json(record: &Record<'_>) -> String {
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
    use crate::record::{Attempt, Usage};
    use crate::traces::{Ratio, Trace};

    fn attempts() -> [Attempt; 2] {
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

    fn record(attempts: &[Attempt]) -> Record<'_> {
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
            bytes_in: 20,
            bytes_out: 300,
            usage: Usage {
                prompt: Some(5),
                cached: None,
                completion: Some(7),
            },
        }
    }

    #[test]
    fn a_text_line_tells_the_whole_story() {
        assert_eq!(
            Format::Text.line(&record(&attempts())).to_string(),
            "id=r-1 client=127.0.0.1:5000 method=POST path=/v1/completions route=/v1/completions \
             model=m stream=true status=200 outcome=answered reason=answered stop=answered \
             attempts=http://a:connect:0.3ms,http://b:answered/200:12.0ms upload_ms=0.7 \
             backoff_ms=0.0 hold_ms=1.5 ttft_ms=11.0 total_ms=13.0 bytes_in=20 bytes_out=300 prompt_tokens=5 \
             completion_tokens=7"
        );
    }

    #[test]
    fn a_json_line_holds_the_same() {
        let line: serde_json::Value =
            serde_json::from_str(&Format::Json.line(&record(&attempts())).to_string()).unwrap();
        assert_eq!(line["attempts"][0]["outcome"], "connect");
        assert_eq!(line["attempts"][1]["status"], 200);
        assert_eq!(line["ttft_ms"], 11.0);
        assert_eq!(line["hold_ms"], 1.5);
        assert_eq!(line["upload_ms"], 0.7);
        assert_eq!(line["stop"], "answered");
        assert_eq!(line["outcome"], "answered");
        assert_eq!(line["route"], "/v1/completions");
        assert_eq!(line["completion_tokens"], 7);
        assert_eq!(line["client"], "127.0.0.1:5000");
    }

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
    fn numbers_and_addresses_are_written_as_ever() {
        let text = |push: &dyn Fn(&mut String)| {
            let mut line = String::new();
            push(&mut line);
            line
        };
        for number in [0, 9, 10, 65_535, 1_234_567_890, u64::MAX] {
            assert_eq!(text(&|line| push_number(line, number)), number.to_string());
        }
        for address in [
            "0.0.0.0:0",
            "255.1.20.3:65535",
            "[::1]:80",
            "[2001:db8::a]:8001",
        ] {
            let parsed = address.parse().unwrap();
            assert_eq!(text(&|line| push_address(line, parsed)), address);
        }
        for (micros, millis) in [
            (0, "0.0"),
            (49, "0.0"),
            (50, "0.1"),
            (999_950, "1000.0"),
            (61_000_040, "61000.0"),
        ] {
            let time = Duration::from_micros(micros);
            assert_eq!(text(&|line| push_millis(line, time)), millis);
        }
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
}
