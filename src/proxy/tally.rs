//! What is counted of an answer while it passes: its tokens, and the pace of a stream.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use pingora_http::ResponseHeader;
use tokio::time::Instant;

use super::usage::UsageSearch;
use super::verdict::is_event_stream;
use crate::metrics::Pace;
use crate::record::Usage;

/// The counts of one request's answer.
#[derive(Debug)]
pub(super) struct Tally {
    generates: bool,
    usage: Option<UsageSearch>,
    pace: Option<Pace>,
}

impl Tally {
    /// The counts of a request that `generates` tokens, or else has none to count: it only reads again
    /// what an earlier one has generated.
    pub(super) fn new(generates: bool) -> Self {
        Self {
            generates,
            usage: None,
            pace: None,
        }
    }

    /// An answer with this head begins. What was counted of another attempt's is void; `pace` makes
    /// the one of a stream, where that is wanted.
    pub(super) fn begin(&mut self, head: &ResponseHeader, pace: impl FnOnce() -> Option<Pace>) {
        let is_success = head.status.is_success();
        let is_stream = is_success && is_event_stream(head);
        let may_tell = self.generates && (is_stream || (is_success && is_json(head)));
        self.usage = may_tell.then(UsageSearch::default);
        self.pace = is_stream.then(pace).flatten();
    }

    /// A piece of the body passes; `taken` says when the client had taken what came before.
    pub(super) fn push(&mut self, data: &[u8], taken: impl FnOnce() -> Option<Instant>) {
        if let Some(usage) = &mut self.usage {
            usage.push(data);
        }
        if let Some(pace) = &mut self.pace {
            pace.piece(Instant::now(), taken());
        }
    }

    /// The tokens the engine has told of so far.
    pub(super) fn usage(&self) -> Usage {
        let usage = self.usage.as_ref();
        usage.map_or_else(Usage::default, UsageSearch::found)
    }
}

fn is_json(head: &ResponseHeader) -> bool {
    let json = |value: &HeaderValue| value.as_bytes().starts_with(b"application/json");
    head.headers.get(CONTENT_TYPE).is_some_and(json) && !head.headers.contains_key(CONTENT_ENCODING)
}
