//! One line per request: who asked what, which attempts it took, how it ended.
//!
//! Neither keys nor prompts appear. Whatever a client chose is quoted, so that no value can
//! forge a line.
//!
//! - `text`: the form for people;
//! - `json`: the same as an object.

mod json;
#[cfg(test)]
mod testing;
mod text;

use std::fmt::{self, Display, Formatter};

use log::Level;

use crate::record::{ANSWERED, Observer, Record};

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
            Format::Text => f.write_str(&text::line(self.1)),
            Format::Json => f.write_str(&json::line(self.1)),
        }
    }
}

#[cfg(test)]
mod tests;
