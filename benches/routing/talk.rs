//! A conversation on its way through the router.

use vllm_pingora::engines::Placed;
use vllm_pingora::retry::{Attempts, Resend};

use super::conversation::{Conversation, Turn};

/// A conversation and its request, if one runs.
pub struct Talk {
    pub conversation: Conversation,
    pub next: Turn,
    /// Where the last request went.
    pub last: Option<usize>,
    pub attempts: Attempts,
    pub running: Option<Placed>,
    pub sent: u64,
    pub first: Option<u64>,
}

impl Talk {
    /// A conversation whose first request is not sent yet.
    pub fn new(conversation: Conversation, next: Turn) -> Self {
        Self {
            conversation,
            next,
            last: None,
            attempts: Attempts::new(None, Resend::Always),
            running: None,
            sent: 0,
            first: None,
        }
    }
}
