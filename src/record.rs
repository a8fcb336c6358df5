//! What is known of a request at its end, and who is told.
//!
//! Every request has one [`Record`], made once it is over: answered, refused, cut or left. The
//! metrics count it, the access log writes it down; whoever else wants to know is one more
//! [`Observer`], and none of them is asked anything while the request runs.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::retry::StopReason;
use crate::traces::Trace;

/// The route of requests that no route serves.
pub const OTHER_ROUTE: &str = "other";

/// The longest text of a client's choice that is written down, in characters: its request head may be
/// a hundred times as long.
const LONGEST: usize = 1024;

/// The outcome of requests that were answered: by an engine, or by the router as asked.
pub const ANSWERED: &str = "answered";

/// Whether an attempt that ended so has failed. That a client left, or the router itself did wrong,
/// says nothing of the engine.
pub fn is_failure(outcome: &str) -> bool {
    !matches!(outcome, ANSWERED | "client_gone" | "internal")
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Record<'a> {
    /// The request's id: 1 to 128 visible ASCII characters.
    pub request_id: &'a str,
    /// Its place in a trace, where there are traces.
    pub trace: Option<&'a Trace>,
    /// The client's address.
    pub client: Option<SocketAddr>,
    /// The method.
    pub method: &'a str,
    /// The path as the client spelled it, without its query.
    pub path: &'a str,
    /// The path of the route that served it, or [`OTHER_ROUTE`].
    pub route: &'a str,
    /// The model by the name engines know; empty where there is none. Never what a client made
    /// up.
    pub model: &'a str,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// The status the client saw; 0 where it saw none.
    pub status: u16,
    /// How it ended: one of a closed list.
    pub outcome: &'static str,
    /// Why it made no further attempt, or the code of our own error.
    pub reason: &'a str,
    /// Why the retry policy let no further attempt follow; `None` where it was not asked.
    pub stop: Option<StopReason>,
    /// The attempts, in order.
    pub attempts: &'a [Attempt],
    /// From the head read to the last byte of the client's body, or to where that broke off; `None`
    /// where no body was asked for.
    pub upload: Option<Duration>,
    /// Time spent waiting between attempts.
    pub backoff: Duration,
    /// These waits, in order; the last may have been broken off.
    pub backoffs: &'a [Backoff],
    /// Time spent waiting for an engine to come up.
    pub held: Duration,
    /// These waits, in order.
    pub holds: &'a [Hold],
    /// From the head read to the first body byte sent.
    pub first_byte: Option<Duration>,
    /// From the head read to the end.
    pub total: Duration,
    /// When the end was, where that has been looked up: now is as good.
    pub at: Option<Instant>,
    /// Body bytes received from the client.
    pub bytes_in: usize,
    /// Body bytes sent to the client.
    pub bytes_out: usize,
    /// The tokens the engine has counted, as far as its answer told.
    pub usage: Usage,
}

impl Record<'_> {
    /// Whether an engine's answer went through, and was a success.
    pub fn is_success(&self) -> bool {
        self.outcome == ANSWERED && (200..300).contains(&self.status)
    }
}

/// As much as is written down of a text that a client chose, with a sign where it was longer.
pub fn shortened(text: &str) -> Cow<'_, str> {
    // Nearly all are, and are not looked at.
    if text.len() <= LONGEST {
        return text.into();
    }
    let end = text.char_indices().nth(LONGEST);
    match end.and_then(|(end, _)| text.get(..end)) {
        Some(kept) => format!("{kept}…").into(),
        None => text.into(),
    }
}

/// Tokens of a request; `None` is what was not told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompt, cached ones among them.
    pub prompt: Option<u64>,
    /// Those of them that were in the engine's cache.
    pub cached: Option<u64>,
    /// Tokens that were generated.
    pub completion: Option<u64>,
}

/// One attempt of a request.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The engine, as logs and metrics call it.
    pub engine: Arc<str>,
    /// How it ended.
    pub outcome: &'static str,
    /// The engine's status, where it answered.
    pub status: Option<u16>,
    /// From the request's head read to its start.
    pub begun: Duration,
    /// From its start to its end.
    pub took: Duration,
    /// What made it necessary, and the wait before it; `None` for a request's first.
    pub retry: Option<(&'static str, Duration)>,
    /// Whether its connection had carried a request before; `None` where it got none.
    pub reused: Option<bool>,
}

/// One wait between two attempts of a request.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// From the request's head read to its start.
    pub begun: Duration,
    /// How long it was to be.
    pub delay: Duration,
    /// What made it necessary.
    pub reason: &'static str,
}

/// One wait of a request for an engine to come up.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// From the request's head read to its start.
    pub begun: Duration,
    /// From its start to its end.
    pub took: Duration,
    /// How it ended: one of a closed list.
    pub result: &'static str,
}

/// Is told how each request ended, once.
pub trait Observer: Send + Sync {
    /// The request of this record has ended.
    fn ended(&self, record: &Record<'_>);
}

/// All who are told.
#[derive(Clone)]
pub struct Observers(Arc<[Box<dyn Observer>]>);

impl Observers {
    /// Tells these, in this order.
    pub fn new(observers: Vec<Box<dyn Observer>>) -> Self {
        Self(observers.into())
    }
}

impl Observer for Observers {
    fn ended(&self, record: &Record<'_>) {
        for observer in &*self.0 {
            observer.ended(record);
        }
    }
}

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observers").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_too_long_is_cut_and_never_within_a_character() {
        for letter in ["a", "ä", "語", "🦀"] {
            let longest = letter.repeat(LONGEST);
            assert_eq!(shortened(&longest), longest);
            let cut = shortened(&letter.repeat(LONGEST + 1)).into_owned();
            assert_eq!(cut, format!("{longest}…"));
            assert_eq!(shortened(&letter.repeat(16 * LONGEST)), cut);
        }
        assert_eq!(shortened(""), "");
    }
}
