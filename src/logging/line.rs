//! What a line looks like: text for people, or one JSON object.

use std::fmt::Write as _;
use std::time::SystemTime;

use log::{Level, Record};

use super::timestamp::Timestamps;
use crate::access_log;
use crate::config::LogFormat;

/// Makes lines, one after the other in the same memory.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: String,
    times: Timestamps,
}

impl Lines {
    /// The line of `record`, its end included.
    pub(super) fn make(&mut self, format: LogFormat, record: &Record<'_>, now: SystemTime) -> &str {
        self.line.clear();
        match format {
            LogFormat::Text => self.text(record, now),
            LogFormat::Json => self.json(record, now),
        }
        self.line.push('\n');
        &self.line
    }

    fn text(&mut self, record: &Record<'_>, now: SystemTime) {
        self.times.write(now, &mut self.line);
        self.line.push_str(match record.level() {
            Level::Error => " ERROR ",
            Level::Warn => " WARN  ",
            Level::Info => " INFO  ",
            Level::Debug => " DEBUG ",
            Level::Trace => " TRACE ",
        });
        self.line.push_str(record.target());
        self.line.push(' ');
        let message = self.line.len();
        let _ = self.line.write_fmt(*record.args());
        // The access log quotes what needs it itself.
        if record.target() != access_log::TARGET {
            self.keep_on_one_line(message);
        }
    }

    fn json(&mut self, record: &Record<'_>, now: SystemTime) {
        self.line.push_str("{\"time\":\"");
        self.times.write(now, &mut self.line);
        let level = record.level();
        let target = serde_json::Value::from(record.target());
        let _ = write!(self.line, "\",\"level\":\"{level}\",\"target\":{target},");
        let message = self.line.len();
        let _ = self.line.write_fmt(*record.args());
        let text = self.line.get(message..).unwrap_or_default();
        // The lines of the access log are objects themselves.
        if record.target() == access_log::TARGET && text.starts_with('{') {
            self.line.remove(message);
        } else {
            let text = serde_json::Value::from(text);
            let text = format!("\"message\":{text}}}");
            self.line.truncate(message);
            self.line.push_str(&text);
        }
    }

    /// Escapes what would end the line, or do something to a terminal: what a peer sent may be part
    /// of a message.
    fn keep_on_one_line(&mut self, message: usize) {
        let text = self.line.get(message..).unwrap_or_default();
        // 0xC2 begins the controls beyond ASCII, among others.
        let suspect = |byte: u8| byte < 0x20 || byte == 0x7F || byte == 0xC2;
        if !text.bytes().any(suspect) {
            return;
        }
        let mut escaped = String::with_capacity(text.len() + 16);
        for c in text.chars() {
            if c.is_control() {
                escaped.extend(c.escape_default());
            } else {
                escaped.push(c);
            }
        }
        self.line.truncate(message);
        self.line.push_str(&escaped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const BEFORE: &str = "1970-01-01T00:00:00.000Z INFO ";

    fn line(format: LogFormat, target: &str, message: &str) -> String {
        let mut lines = Lines::default();
        // The memory of an earlier, longer line is used.
        let earlier = "a line with \u{1b} and more than the one that matters".repeat(3);
        for message in [&earlier, message] {
            let args = format_args!("{message}");
            let mut record = Record::builder();
            let record = record.level(Level::Info).target(target).args(args).build();
            lines.make(format, &record, UNIX_EPOCH);
        }
        lines.line
    }

    #[test]
    fn a_text_line_has_a_time_a_level_a_target_and_a_message() {
        assert_eq!(
            line(LogFormat::Text, "t", "m é"),
            format!("{BEFORE} t m é\n")
        );
    }

    #[test]
    fn no_message_ends_its_line_or_moves_the_cursor() {
        for (message, escaped) in [
            ("a\nb", "a\\nb"),
            ("a\r\n", "a\\r\\n"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("\u{7f}", "\\u{7f}"),
            ("\u{85}é\u{9b}", "\\u{85}é\\u{9b}"),
        ] {
            assert_eq!(
                line(LogFormat::Text, "t", message),
                format!("{BEFORE} t {escaped}\n")
            );
            let json = line(LogFormat::Json, "t", message);
            assert_eq!(json.matches(|c| c < ' ').count(), 1, "{json}");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["message"], message);
        }
    }

    #[test]
    fn a_json_line_is_one_object() {
        for (target, message, expected) in [
            ("t", "m", r#""target":"t","message":"m"}"#),
            ("t", "{", r#""target":"t","message":"{"}"#),
            ("access", r#"{"a":1}"#, r#""target":"access","a":1}"#),
            ("access", "", r#""target":"access","message":""}"#),
        ] {
            let line = line(LogFormat::Json, target, message);
            let before = r#"{"time":"1970-01-01T00:00:00.000Z","level":"INFO","#;
            assert_eq!(line, format!("{before}{expected}\n"));
        }
    }
}
