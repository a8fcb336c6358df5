//! One line per request: who asked what, which attempts it took, how it ended.
//!
//! Neither keys nor prompts appear. Whatever a client chose is quoted, so that no value can
//! forge a line.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;

/// The target of these lines in the `log` crate.
pub const TARGET: &str = "access";

/// What is known of a request at its end.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The request's id: 1 to 128 visible ASCII characters.
    pub request_id: &'a str,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The method.
    pub method: &'a str,
    /// The path as the client spelled it, without its query.
    pub path: &'a str,
    /// The model by the name engines know; empty where there is none.
    pub model: &'a str,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The status the client saw; 0 where it saw none.
    pub status: u16,
    /// How it ended: the outcome it is counted under.
    pub outcome: &'a str,
    /// Why it made no further attempt, or the code of our own error.
    pub reason: &'a str,
    /// The attempts, in order.
    pub attempts: &'a [Attempt<'a>],
    /// Time spent waiting between attempts.
    pub backoff: Duration,
    /// From the head read to the first body byte sent.
    pub first_byte: Option<Duration>,
    /// From the head read to the end.
    pub total: Duration,
    /// Body bytes received from the client.
    pub bytes_in: usize,
    /// Body bytes sent to the client.
    pub bytes_out: usize,
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The engine.
    pub engine: &'a str,
    /// How it ended.
    pub outcome: &'a str,
    /// The engine's status, where it answered.
    pub status: Option<u16>,
    /// From its start to its end.
    pub took: Duration,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people: `key=value`.
    Text,
    /// One JSON object.
    Json,
}

impl Entry<'_> {
    /// The line, without its end.
    pub fn line(&self, format: Format) -> String {
        match format {
            Format::Text => self.text(),
            Format::Json => self.json(),
        }
    }

    fn text(&self) -> String {
        let mut line = String::with_capacity(320);
        let _ = write!(line, "id={} client=", self.request_id);
        let _ = match self.client {
            Some(client) => write!(line, "{client}"),
            None => write!(line, "-"),
        };
        let _ = write!(
            line,
            " method={} path={} model={} stream={} status={} outcome={} reason={} attempts=",
            self.method,
            quoted(self.path),
            quoted(self.model),
            self.stream,
            self.status,
            self.outcome,
            self.reason,
        );
        if self.attempts.is_empty() {
            line.push('-');
        }
        for (n, attempt) in self.attempts.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            let _ = write!(line, "{comma}{}:{}", attempt.engine, attempt.outcome);
            if let Some(status) = attempt.status {
                let _ = write!(line, "/{status}");
            }
            let _ = write!(line, ":{:.1}ms", ms(attempt.took));
        }
        let _ = write!(line, " backoff_ms={:.1} ttft_ms=", ms(self.backoff));
        let _ = match self.first_byte {
            Some(first) => write!(line, "{:.1}", ms(first)),
            None => write!(line, "-"),
        };
        let _ = write!(
            line,
            " total_ms={:.1} bytes_in={} bytes_out={}",
            ms(self.total),
            self.bytes_in,
            self.bytes_out
        );
        line
    }

    fn json(&self) -> String {
        let attempts: Vec<_> = self
            .attempts
            .iter()
            .map(|attempt| {
                json!({
                    "engine": attempt.engine,
                    "outcome": attempt.outcome,
                    "status": attempt.status,
                    "ms": rounded(attempt.took),
                })
            })
            .collect();
        json!({
            "id": self.request_id,
            "client": self.client.map(|client| client.to_string()),
            "method": self.method,
            "path": self.path,
            "model": self.model,
            "stream": self.stream,
            "status": self.status,
            "outcome": self.outcome,
            "reason": self.reason,
            "attempts": attempts,
            "backoff_ms": rounded(self.backoff),
            "ttft_ms": self.first_byte.map(rounded),
            "total_ms": rounded(self.total),
            "bytes_in": self.bytes_in,
            "bytes_out": self.bytes_out,
        })
        .to_string()
    }
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

    const ATTEMPTS: [Attempt<'_>; 2] = [
        Attempt {
            engine: "http://a",
            outcome: "connect",
            status: None,
            took: Duration::from_micros(250),
        },
        Attempt {
            engine: "http://b",
            outcome: "answered",
            status: Some(200),
            took: Duration::from_millis(12),
        },
    ];

    fn entry() -> Entry<'static> {
        Entry {
            request_id: "r-1",
            client: Some("127.0.0.1:5000".parse().unwrap()),
            method: "POST",
            path: "/v1/completions",
            model: "m",
            stream: true,
            status: 200,
            outcome: "answered",
            reason: "answered",
            attempts: &ATTEMPTS,
            backoff: Duration::ZERO,
            first_byte: Some(Duration::from_millis(11)),
            total: Duration::from_millis(13),
            bytes_in: 20,
            bytes_out: 300,
        }
    }

    #[test]
    fn a_text_line_tells_the_whole_story() {
        assert_eq!(
            entry().line(Format::Text),
            "id=r-1 client=127.0.0.1:5000 method=POST path=/v1/completions model=m stream=true \
             status=200 outcome=answered reason=answered \
             attempts=http://a:connect:0.2ms,http://b:answered/200:12.0ms backoff_ms=0.0 \
             ttft_ms=11.0 total_ms=13.0 bytes_in=20 bytes_out=300"
        );
    }

    #[test]
    fn a_json_line_holds_the_same() {
        let line: serde_json::Value = serde_json::from_str(&entry().line(Format::Json)).unwrap();
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
            let entry = Entry {
                model: hostile,
                path: hostile,
                ..entry()
            };
            for format in [Format::Text, Format::Json] {
                let line = entry.line(format);
                assert!(!line.contains(['\n', '\r', '\u{1b}']), "{line:?}");
            }
            let text = entry.line(Format::Text);
            assert!(!text.contains(['\u{2028}', '\u{85}']));
            assert!(text.contains(" model=\""), "{text}");
        }
    }
}
