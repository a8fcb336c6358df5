//! Reads a request body of known length past Pingora.
//!
//! Pingora reads a body into a buffer and hands out copies of it in pieces, to be copied together
//! again. For a long prompt that is a good part of what forwarding it costs, so such a body is
//! read from the socket to where it is kept.

use http::header::CONTENT_LENGTH;
use pingora_core::protocols::http::ServerSession;
use pingora_core::{Error, ErrorType, OrErr as _, Result};

use super::intake::Intake;
use super::stream::Gate;
use crate::body_buffer::BodyBuffer;

/// Reads until `body` has `length` bytes, as far as `intake` lets it.
///
/// # Errors
/// Those of Pingora's own reading: the client has closed too early, or its connection has failed;
/// and those of `intake`. What came before is in `body`.
pub(super) async fn collect(
    gate: &Gate,
    length: usize,
    intake: &mut Intake,
    body: &mut BodyBuffer,
) -> Result<()> {
    while body.len() < length {
        let read = async {
            let read = gate.collect(body).await;
            read.or_err(ErrorType::ReadError, "reading a request body")
        };
        if intake.read(read, |bytes| *bytes).await? == 0 {
            let what = "the client closed before the end of its request body";
            return Error::e_explain(ErrorType::ConnectionClosed, what);
        }
    }
    Ok(())
}

/// Has Pingora's session, which has not looked for it yet, take a body of this length for none.
///
/// The head says the length again afterwards, as one number: a client may also write it twice.
///
/// # Errors
/// The head cannot be changed.
pub(super) fn hide_body(session: &mut ServerSession, length: usize) -> Result<()> {
    // The field is looked at once, when the body is first asked for.
    session.req_header_mut().insert_header(CONTENT_LENGTH, 0)?;
    session.is_body_done();
    session
        .req_header_mut()
        .insert_header(CONTENT_LENGTH, length)
}
