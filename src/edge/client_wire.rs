//! The client's side of one request, in either version of HTTP.

use bytes::Bytes;
use http::HeaderMap;
use pingora_core::Result;
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::{HttpTask, ServerSession};
use pingora_http::{RequestHeader, ResponseHeader};

use super::h1::H1;
use super::intake::Intake;

/// What a request came on. The methods are those of Pingora's own session.
pub(super) enum ClientWire {
    /// A connection, which is read and written here.
    H1(Box<H1>),
    /// A stream of a connection that Pingora reads and writes.
    H2(Box<ServerSession>),
}

impl ClientWire {
    pub(super) fn request(&self) -> &RequestHeader {
        match self {
            Self::H1(h1) => h1.request(),
            Self::H2(stream) => stream.req_header(),
        }
    }

    pub(super) fn request_mut(&mut self) -> &mut RequestHeader {
        match self {
            Self::H1(h1) => h1.request_mut(),
            Self::H2(stream) => stream.req_header_mut(),
        }
    }

    pub(super) fn request_summary(&self) -> String {
        match self {
            Self::H1(h1) => h1.summary(),
            Self::H2(stream) => stream.request_summary(),
        }
    }

    pub(super) fn raw_head(&self) -> Bytes {
        match self {
            Self::H1(h1) => h1.raw(),
            Self::H2(stream) => stream.to_h1_raw(),
        }
    }

    /// Reads on in the body, as far as `intake` lets it; `None` is its end.
    pub(super) async fn read_body(&mut self, intake: &mut Intake) -> Result<Option<Bytes>> {
        match self {
            Self::H1(h1) => h1.read_body(intake).await,
            Self::H2(stream) => {
                let size = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
                intake.read(stream.read_request_body(), size).await
            }
        }
    }

    pub(super) async fn drain(&mut self) -> Result<()> {
        match self {
            Self::H1(h1) => h1.drain().await,
            Self::H2(stream) => stream.drain_request_body().await,
        }
    }

    pub(super) async fn body_or_departure(
        &mut self,
        no_body_expected: bool,
    ) -> Result<Option<Bytes>> {
        match self {
            Self::H1(h1) => h1.body_or_departure(no_body_expected).await,
            Self::H2(stream) => stream.read_body_or_idle(no_body_expected).await,
        }
    }

    pub(super) fn is_body_done(&mut self) -> bool {
        match self {
            Self::H1(h1) => h1.has_ended(),
            Self::H2(stream) => stream.is_body_done(),
        }
    }

    pub(super) fn body_bytes_read(&self) -> usize {
        match self {
            Self::H1(h1) => h1.body_bytes_read(),
            Self::H2(stream) => stream.body_bytes_read(),
        }
    }

    /// No other request is to come on the connection; means nothing to a stream.
    pub(super) fn close_after(&mut self) {
        if let Self::H1(h1) = self {
            h1.close_after();
        }
    }

    pub(super) async fn respond(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        match self {
            Self::H1(h1) => h1.respond(tasks).await,
            Self::H2(stream) => stream.response_duplex_vec(tasks).await,
        }
    }

    pub(super) async fn write_head(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        match self {
            Self::H1(h1) => h1.write_head(head).await,
            Self::H2(stream) => stream.write_response_header(head).await,
        }
    }

    pub(super) async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        match self {
            Self::H1(h1) => h1.write_body(data, end).await,
            Self::H2(stream) => stream.write_response_body(data, end).await,
        }
    }

    /// Trailers are not passed on to HTTP/1.
    pub(super) async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        match self {
            Self::H1(h1) => h1.finish().await,
            Self::H2(stream) => stream.write_response_trailers(trailers).await,
        }
    }

    pub(super) async fn finish(&mut self) -> Result<()> {
        match self {
            Self::H1(h1) => h1.finish().await,
            Self::H2(stream) => stream.finish_body().await,
        }
    }

    pub(super) fn written(&self) -> Option<&ResponseHeader> {
        match self {
            Self::H1(h1) => h1.written(),
            Self::H2(stream) => stream.response_written(),
        }
    }

    pub(super) fn body_bytes_sent(&self) -> usize {
        match self {
            Self::H1(h1) => h1.body_bytes_sent(),
            Self::H2(stream) => stream.body_bytes_sent(),
        }
    }

    pub(super) fn offers_upgrade(&self) -> bool {
        match self {
            Self::H1(h1) => h1.offers_upgrade(),
            Self::H2(stream) => stream.is_upgrade_req(),
        }
    }

    pub(super) fn is_upgraded(&self) -> bool {
        match self {
            Self::H1(h1) => h1.is_upgraded(),
            Self::H2(stream) => stream.was_upgraded(),
        }
    }

    pub(super) fn digest(&self) -> Option<&Digest> {
        match self {
            Self::H1(h1) => Some(h1.digest()),
            Self::H2(stream) => stream.digest(),
        }
    }

    pub(super) fn digest_mut(&mut self) -> Option<&mut Digest> {
        match self {
            Self::H1(h1) => Some(h1.digest_mut()),
            Self::H2(stream) => stream.digest_mut(),
        }
    }
}
