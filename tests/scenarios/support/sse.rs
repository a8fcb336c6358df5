//! Server-sent events as a client sees them, each with its time of arrival.

use bytes::Bytes;
use tokio::time::Instant;

/// One event: everything up to and including its blank line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When the last byte of the event arrived.
    pub at: Instant,
    /// The `data:` lines, joined by line feeds.
    pub data: String,
    /// The event as sent, blank line included.
    pub raw: Vec<u8>,
}

impl Event {
    pub fn is_done(&self) -> bool {
        self.data == "[DONE]"
    }
}

/// The complete events in a body that arrived in these pieces. A cut last event is left out.
pub fn events(arrivals: &[(Instant, Bytes)]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut raw: Vec<u8> = Vec::new();
    for (at, piece) in arrivals {
        for &byte in piece {
            raw.push(byte);
            if raw.ends_with(b"\n\n") || raw.ends_with(b"\r\n\r\n") {
                let raw = std::mem::take(&mut raw);
                events.push(Event {
                    at: *at,
                    data: data(&raw),
                    raw,
                });
            }
        }
    }
    events
}

fn data(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(raw);
    let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
    lines
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}
