//! A client's connection in HTTP/1: one request after the other, each read and answered here.
//!
//! A head is judged and taken apart in one pass ([`head`](super::head)), a body is read by the one
//! framing its head allows, and what the client sends behind it waits for its turn: nothing of it
//! is ever taken for a part of the request before, and a client that leaves is noticed even behind
//! requests it has sent ahead. Pingora's proxy sees all this through `ClientSession`.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Version;
use http::header::UPGRADE;
use pingora_core::protocols::{Digest, Stream};
use pingora_core::{Error, ErrorType, OrErr as _, Result};
use pingora_http::{RequestHeader, ResponseHeader};

use super::head;
use super::wishes::{asks_for_websocket, asks_to_close, asks_to_stay};
use crate::api_error::ApiError;
use reading::Reading;
use wire::Wire;
use writing::Writing;

mod answer;
mod body;
mod date;
mod reading;
mod wire;
mod writing;

/// See the module's text.
#[derive(Debug)]
pub(super) struct H1 {
    wire: Wire,
    /// The head of the request, and its bytes; `None` between requests.
    request: Option<Box<RequestHeader>>,
    raw: Bytes,
    reading: Reading,
    writing: Writing,
    /// The last response head that was written; behind an interim one another follows.
    written: Option<Box<ResponseHeader>>,
    /// Whether another request may follow.
    stays: bool,
    /// The connection has left HTTP.
    upgraded: bool,
    /// Bytes of the request's body that were read, and of the response's that were written.
    read: usize,
    sent: usize,
}

impl H1 {
    /// The connection of a client of whom this much has been read.
    pub(super) fn new(socket: Stream, ahead: BytesMut) -> Self {
        Self {
            wire: Wire::new(socket, ahead),
            request: None,
            raw: Bytes::new(),
            reading: Reading::Ended,
            writing: Writing::Ended,
            written: None,
            stays: true,
            upgraded: false,
            read: 0,
            sent: 0,
        }
    }

    /// What was read and belongs to no request that was given out.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.wire.ahead
    }

    /// Waits for more of what the client sends, and returns how much it was; nothing is the end.
    pub(super) async fn read_ahead(&mut self) -> std::io::Result<usize> {
        self.wire.read_ahead().await
    }

    /// Reads the head of the next request, whose client is given up once it has taken nothing of
    /// what waits for it for `patience`; `false` when none will come.
    ///
    /// # Errors
    /// The answer to what is no request.
    pub(super) async fn next(&mut self, patience: Option<Duration>) -> Result<bool, ApiError> {
        let Wire { socket, ahead, .. } = &mut self.wire;
        let Some(length) = head::read(socket, ahead).await? else {
            return Ok(false);
        };
        // Of its own: the rest goes sooner.
        let raw = Bytes::copy_from_slice(ahead.get(..length).unwrap_or_default());
        let (request, framing) = head::parse(&raw)?;
        drop(self.wire.take(length));
        self.wire.set_patience(patience);
        self.reading = Reading::new(framing);
        self.writing = Writing::Unknown;
        self.written = None;
        (self.read, self.sent) = (0, 0);
        let knows_to_stay = request.version != Version::HTTP_10 || asks_to_stay(&request);
        // Should an engine decline to leave HTTP, the answer says that it closes.
        self.stays = knows_to_stay && !asks_to_close(&request) && !asks_for_websocket(&request);
        self.request = Some(Box::new(request));
        self.raw = raw;
        Ok(true)
    }

    /// The request has been answered: until the next one comes, nothing of it is kept.
    pub(super) fn rest(&mut self) {
        self.request = None;
        self.raw = Bytes::new();
        self.written = None;
    }

    /// The head of the request; between requests, one that says nothing.
    pub(super) fn request(&self) -> &RequestHeader {
        self.request.as_deref().unwrap_or(&NOTHING)
    }

    /// The same, to change it.
    pub(super) fn request_mut(&mut self) -> &mut RequestHeader {
        self.request
            .get_or_insert_with(|| Box::new(NOTHING.clone()))
    }

    /// The bytes of the head.
    pub(super) fn raw(&self) -> Bytes {
        self.raw.clone()
    }

    /// Its method, target and host, to be logged.
    pub(super) fn summary(&self) -> String {
        let request = self.request();
        let host = request.headers.get(http::header::HOST);
        format!(
            "{} {}, Host: {}",
            request.method,
            String::from_utf8_lossy(request.raw_path()),
            String::from_utf8_lossy(host.map_or(b"", |host| host.as_bytes())),
        )
    }

    /// Whether the client offers to leave HTTP.
    pub(super) fn offers_upgrade(&self) -> bool {
        let request = self.request();
        request.version == Version::HTTP_11 && request.headers.contains_key(UPGRADE)
    }

    /// Whether the connection has left HTTP.
    pub(super) fn is_upgraded(&self) -> bool {
        self.upgraded
    }

    /// No other request is to follow this one.
    pub(super) fn close_after(&mut self) {
        self.stays = false;
    }

    /// Whether another request may follow: neither side has said otherwise, and what comes next
    /// is known to be one.
    pub(super) fn stays(&self) -> bool {
        self.stays
    }

    /// What is known of the connection.
    pub(super) fn digest(&self) -> &Digest {
        &self.wire.digest
    }

    /// The same, to change it.
    pub(super) fn digest_mut(&mut self) -> &mut Digest {
        &mut self.wire.digest
    }

    /// Sends what was written, and closes this side.
    pub(super) async fn shutdown(&mut self) {
        self.wire.shutdown().await;
    }

    /// The connection, once what was written has been sent.
    pub(super) async fn into_socket(mut self: Box<Self>) -> Option<Stream> {
        self.wire.flush().await.ok()?;
        Some(self.wire.socket)
    }
}

static NOTHING: LazyLock<RequestHeader> = LazyLock::new(|| {
    let request = http::Request::new(()).into_parts();
    RequestHeader::from(request.0)
});

/// An error of the client's side.
fn of_client(error: std::io::Error, kind: ErrorType, what: &'static str) -> Box<Error> {
    let failed: Result<()> = Err(error).or_err(kind, what);
    let error = failed
        .err()
        .unwrap_or_else(|| Error::explain(ErrorType::InternalError, what));
    error.into_down()
}

#[cfg(test)]
mod tests;
