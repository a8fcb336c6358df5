//! Where log lines go, and what they look like.

use std::io::Write as _;

use env_logger::Builder;
use env_logger::fmt::Formatter;
use log::{LevelFilter, Record};

use crate::access_log;
use crate::config::{LogFormat, LogLevel};

/// The target of our own lines, but for those of the access log.
const OWN: &str = "vllm_pingora";

/// What is logged of the lines of `target` when `level` is asked for.
///
/// Lines of other crates are kept down to warnings at every level: what Pingora tells of a request
/// is in the access log, and its debugging prints whole heads, keys included, and bodies.
pub fn limit(target: &str, level: LevelFilter) -> LevelFilter {
    let own = target == access_log::TARGET || target.split("::").next() == Some(OWN);
    if own {
        level
    } else {
        level.min(LevelFilter::Warn)
    }
}

/// Starts logging to the standard error.
pub fn start(level: LogLevel, format: LogFormat) {
    let mut builder = Builder::new();
    builder.filter_level(limit("", level.0));
    for target in [OWN, access_log::TARGET] {
        builder.filter_module(target, limit(target, level.0));
    }
    builder.format(match format {
        LogFormat::Text => text,
        LogFormat::Json => json,
    });
    // A second start, as in a test, keeps the first logger.
    let _ = builder.try_init();
}

fn text(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    let (time, message) = (out.timestamp_millis(), one_line(record));
    writeln!(
        out,
        "{time} {:<5} {} {message}",
        record.level(),
        record.target()
    )
}

fn json(out: &mut Formatter, record: &Record<'_>) -> std::io::Result<()> {
    let time = out.timestamp_millis();
    let level = record.level();
    let target = serde_json::Value::from(record.target());
    let head = format!(r#"{{"time":"{time}","level":"{level}","target":{target},"#);
    let message = record.args().to_string();
    // The access log's lines are objects themselves.
    match message.strip_prefix('{') {
        Some(fields) if record.target() == access_log::TARGET => writeln!(out, "{head}{fields}"),
        _ => writeln!(
            out,
            r#"{head}"message":{}}}"#,
            serde_json::Value::from(message)
        ),
    }
}

/// A message without line ends: what a peer sent may be part of it.
fn one_line(record: &Record<'_>) -> String {
    let message = record.args().to_string();
    if !message.contains(char::is_control) {
        return message;
    }
    message
        .chars()
        .flat_map(|c| {
            let escaped = c.is_control().then(|| c.escape_default());
            let plain = (!c.is_control()).then_some(c);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
