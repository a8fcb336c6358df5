//! One line per request: who asked what, which attempts it took, how it ended.
//!
//! Neither keys nor prompts appear. Whatever a client chose is quoted, so that no value can
//! forge a line.

use std::fmt::Write as _;
use std::time::Duration;

use log::Level;
use serde_json::json;

use crate::record::{Observer, Record};

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

/// Writes every request to the log.
#[derive(Clone, Copy, Debug)]
pub struct AccessLog(pub Format);

impl Observer for AccessLog {
    fn ended(&self, record: &Record<'_>) {
        let level = match record.outcome {
            "own_error" | "cut" => Level::Warn,
            _ => Level::Info,
        };
        if log::log_enabled!(target: TARGET, level) {
            log::log!(target: TARGET, level, "{}", self.0.line(record));
        }
    }
}

impl Format {
    /// The line of a request, without its end.
    pub fn line(self, record: &Record<'_>) -> String {
        match self {
            Self::Text => text(record),
            Self::Json => json(record),
        }
    }
}

fn text(record: &Record<'_>) -> String {
    let mut line = String::with_capacity(320);
    let _ = write!(line, "id={} client=", record.request_id);
    let _ = match record.client {
        Some(client) => write!(line, "{client}"),
        None => write!(line, "-"),
    };
    let _ = write!(
        line,
        " method={} path={} model={} stream={} status={} outcome={} reason={} attempts=",
        record.method,
        quoted(record.path),
        quoted(record.model),
        record.stream,
        record.status,
        record.outcome,
        record.reason,
    );
    if record.attempts.is_empty() {
        line.push('-');
    }
    for (n, attempt) in record.attempts.iter().enumerate() {
        let comma = if n == 0 { "" } else { "," };
        let _ = write!(line, "{comma}{}:{}", attempt.engine, attempt.outcome);
        if let Some(status) = attempt.status {
            let _ = write!(line, "/{status}");
        }
        let _ = write!(line, ":{:.1}ms", ms(attempt.took));
    }
    let _ = write!(line, " backoff_ms={:.1} ttft_ms=", ms(record.backoff));
    let _ = match record.first_byte {
        Some(first) => write!(line, "{:.1}", ms(first)),
        None => write!(line, "-"),
    };
    let _ = write!(
        line,
        " total_ms={:.1} bytes_in={} bytes_out={}",
        ms(record.total),
        record.bytes_in,
        record.bytes_out
    );
    line
}

fn json(record: &Record<'_>) -> String {
    let attempts: Vec<_> = record
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "engine": &*attempt.engine,
                "outcome": attempt.outcome,
                "status": attempt.status,
                "ms": rounded(attempt.took),
            })
        })
        .collect();
    json!({
        "id": record.request_id,
        "client": record.client.map(|client| client.to_string()),
        "method": record.method,
        "path": record.path,
        "model": record.model,
        "stream": record.stream,
        "status": record.status,
        "outcome": record.outcome,
        "reason": record.reason,
        "attempts": attempts,
        "backoff_ms": rounded(record.backoff),
        "ttft_ms": record.first_byte.map(rounded),
        "total_ms": rounded(record.total),
        "bytes_in": record.bytes_in,
        "bytes_out": record.bytes_out,
    })
    .to_string()
}

/// A value as it is where that is unmistakable, else as a JSON string.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && c != '"' && c != '\\';
    if !value.is_empty() && value.chars().all(plain) {
        value.to_owned()
    } else {
        // JSON leaves these line ends as they are.
        let quoted = serde_json::Value::from(value).to_string();
        quoted
            .replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029")
            .replace('\u{85}', "\\u0085")
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn rounded(duration: Duration) -> f64 {
    (ms(duration) * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Attempt;

    fn attempts() -> [Attempt; 2] {
        [
            Attempt {
                engine: "http://a".into(),
                outcome: "connect",
                status: None,
                begun: Duration::ZERO,
                took: Duration::from_micros(250),
                retry: None,
            },
            Attempt {
                engine: "http://b".into(),
                outcome: "answered",
                status: Some(200),
                begun: Duration::from_millis(1),
                took: Duration::from_millis(12),
                retry: Some(("connect", Duration::ZERO)),
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
            attempts,
            backoff: Duration::ZERO,
            backoffs: &[],
            first_byte: Some(Duration::from_millis(11)),
            total: Duration::from_millis(13),
            bytes_in: 20,
            bytes_out: 300,
        }
    }

    #[test]
    fn a_text_line_tells_the_whole_story() {
        assert_eq!(
            Format::Text.line(&record(&attempts())),
            "id=r-1 client=127.0.0.1:5000 method=POST path=/v1/completions model=m stream=true \
             status=200 outcome=answered reason=answered \
             attempts=http://a:connect:0.2ms,http://b:answered/200:12.0ms backoff_ms=0.0 \
             ttft_ms=11.0 total_ms=13.0 bytes_in=20 bytes_out=300"
        );
    }

    #[test]
    fn a_json_line_holds_the_same() {
        let line: serde_json::Value =
            serde_json::from_str(&Format::Json.line(&record(&attempts()))).unwrap();
        assert_eq!(line["attempts"][0]["outcome"], "connect");
        assert_eq!(line["attempts"][1]["status"], 200);
        assert_eq!(line["ttft_ms"], 11.0);
        assert_eq!(line["outcome"], "answered");
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
                let line = format.line(&record);
                assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line:?}");
            }
            let text = Format::Text.line(&record);
            assert!(!text.contains(['\u{2028}', '\u{85}']));
            assert!(text.contains(" model=\""), "{text}");
        }
    }
}
