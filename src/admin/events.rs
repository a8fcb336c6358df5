//! The stream that keeps the status page up to date: server-sent events.
//!
//! The first event of a stream, `status`, is all that `/status` tells; each one that follows,
//! `update`, is what has changed since the one before. So whoever comes back has everything again.
//! A reader that is slow gets fewer and larger updates: nothing is kept for it but what it was told
//! last.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, TRANSFER_ENCODING};
use http::{Method, Version};
use pingora_core::protocols::http::ServerSession;
use pingora_core::{Error, ErrorType, OrErr as _, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::{comes_from_a_page, head};
use crate::api_error::ApiError;
use crate::status::Status;

/// Where it is.
pub(super) const PATH: &str = "/status/events";
/// From one update to the next.
pub const PERIOD: Duration = Duration::from_secs(2);
/// How many streams there may be at the same time.
pub const MOST_STREAMS: usize = 32;

/// How long an event may take to be written, before its reader is taken to be gone.
const WRITE_LIMIT: Duration = Duration::from_secs(15);
/// Tells proxies of a kind that would collect the stream not to.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The streams that are open.
#[derive(Debug)]
pub struct Streams(Arc<Semaphore>);

impl Default for Streams {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_STREAMS)))
    }
}

impl Streams {
    /// Counts a stream that is asked for with these fields, until the permit is dropped.
    ///
    /// # Errors
    /// There are too many, or a page of another site asks.
    pub(super) fn enter(&self, fields: &HeaderMap) -> Result<OwnedSemaphorePermit, ApiError> {
        if comes_from_a_page(fields) {
            return Err(ApiError::foreign_origin());
        }
        let permit = Arc::clone(&self.0).try_acquire_owned();
        permit.map_err(|_| ApiError::too_many_streams(MOST_STREAMS))
    }
}

/// Tells of `status` until the reader has gone, or the process ends.
///
/// # Errors
/// The reader is too slow, or gone in the middle of an event.
pub(super) async fn stream(status: &Status, session: &mut ServerSession) -> Result<()> {
    let request = session.req_header();
    let (version, method) = (request.version, request.method.clone());
    let mut head = head(200, "text/event-stream")?;
    head.insert_header(ACCEL_BUFFERING, "no")?;
    if version == Version::HTTP_11 {
        head.insert_header(TRANSFER_ENCODING, "chunked")?;
    }
    // Its end is that of the connection.
    session.set_keepalive(None);
    session.write_response_header(Box::new(head)).await?;
    if method == Method::HEAD {
        return Ok(());
    }
    let mut told = Arc::new(status.snapshot());
    write(session, event("status", &*told)?).await?;
    loop {
        tokio::select! {
            biased;
            // Nothing more is expected of the reader.
            _ = session.read_body_or_idle(true) => return Ok(()),
            () = sleep(status.next_period(PERIOD)) => {}
        }
        let now = status.shared(PERIOD);
        write(session, event("update", &now.since(&told))?).await?;
        told = now;
    }
}

async fn write(session: &mut ServerSession, event: Bytes) -> Result<()> {
    match timeout(WRITE_LIMIT, session.write_response_body(event, false)).await {
        Ok(written) => written,
        Err(_) => Err(Error::new_down(ErrorType::WriteTimedout)),
    }
}

/// An event; JSON has no line ends of its own.
fn event(name: &str, data: &impl serde::Serialize) -> Result<Bytes> {
    let data = serde_json::to_string(data);
    let data = data.or_err(ErrorType::InternalError, "writing an event")?;
    Ok(format!("event: {name}\ndata: {data}\n\n").into())
}
