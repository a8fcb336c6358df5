//! What becomes of an answer that is not for the client.
//!
//! Where its end is near it is read, and the engine's connection is kept: an engine that is
//! overloaded should not have to accept a new one for everything it refuses. Pingora keeps only
//! connections on which an answer has ended well, so it is told that this one did, and then passes
//! over the request once more.

use std::sync::Arc;

use http::Version;
use http::header::CONTENT_LENGTH;
use pingora_core::Result;
use pingora_http::ResponseHeader;

use super::Router;
use super::context::{Afterwards, Context};
use super::verdict::ask_again;
use crate::edge::connection_options;

/// The longest body, in bytes, that is read to keep a connection.
const SHORT: u64 = 16 * 1024;

/// Discards an answer whose head has come.
///
/// # Errors
/// The one that makes Pingora drop the connection and ask again, where it is not to be kept.
pub(super) fn discard(ctx: &mut Context, response: &ResponseHeader) -> Result<()> {
    let afterwards = ctx.forward.as_ref().map(|forward| forward.afterwards);
    if afterwards != Some(Afterwards::Pooled) || !ends_soon(response) {
        return Err(ask_again(response.status.as_u16()));
    }
    ctx.is_discarding = true;
    ctx.exchange.discard();
    Ok(())
}

impl Router {
    /// Pingora has done with an answer that was discarded, and is to pass over the request again.
    pub(super) fn pass_on(&self, ctx: &mut Box<Context>) {
        ctx.is_discarding = false;
        ctx.exchange.end_attempt();
        let exchange = Arc::clone(&ctx.exchange);
        let plan = Arc::clone(&ctx.plan);
        let nothing = Context::new(
            Arc::clone(&exchange),
            plan,
            Arc::clone(&self.other_route),
            None,
        );
        let known: Box<Context> = std::mem::replace(ctx, Box::new(nothing));
        exchange.pass_on(known);
    }
}

/// Whether the end of a response is near, and its connection good for another.
fn ends_soon(response: &ResponseHeader) -> bool {
    let length = response.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    let closes = |option: &[u8]| option.eq_ignore_ascii_case(b"close");
    response.version == Version::HTTP_11
        && !connection_options(&response.headers).any(closes)
        && length.is_some_and(|length: u64| length <= SHORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_short_answer_on_a_connection_that_stays_is_read() {
        let head = |fields: &[(&'static str, &str)]| {
            let mut head = ResponseHeader::build(503, None).unwrap();
            for (name, value) in fields {
                head.insert_header(*name, *value).unwrap();
            }
            head
        };
        let short = ("Content-Length", "16384");
        assert!(ends_soon(&head(&[short])));
        assert!(ends_soon(&head(&[("Content-Length", "0")])));
        assert!(!ends_soon(&head(&[("Content-Length", "16385")])));
        assert!(!ends_soon(&head(&[("Transfer-Encoding", "chunked")])));
        assert!(!ends_soon(&head(&[])));
        assert!(ends_soon(&head(&[short, ("Connection", "keep-alive")])));
        assert!(!ends_soon(&head(&[short, ("Connection", "x, Close")])));
        let mut old = head(&[short]);
        old.set_version(Version::HTTP_10);
        assert!(!ends_soon(&old));
    }
}
