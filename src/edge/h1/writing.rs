//! How a response is written: its head, and how its body is delimited.

use bytes::{BufMut as _, BytesMut};
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{Method, StatusCode, Version};
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;

use super::date;

/// What is left of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    /// Its head has not been written.
    Unknown,
    /// This much.
    Length(u64),
    /// More chunks.
    Chunked,
    /// All until the connection closes.
    UntilClose,
    /// Nothing.
    Ended,
}

impl Writing {
    /// How the body behind `head` is delimited (RFC 9112 section 6.3), in answer to `method`.
    pub(super) fn of(head: &ResponseHeader, method: &Method) -> Self {
        if *method == Method::HEAD
            || matches!(
                head.status,
                StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
            )
        {
            return Self::Length(0);
        }
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            return Self::UntilClose;
        }
        // What engines say of both has been checked, and one of them taken away.
        if head.headers.contains_key(TRANSFER_ENCODING) {
            return Self::Chunked;
        }
        let length = head.headers.get(CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        length.map_or(Self::UntilClose, Self::Length)
    }

    /// Whether nothing more of the body can be written.
    pub(super) fn has_ended(self) -> bool {
        matches!(self, Self::Length(0) | Self::Ended)
    }

    /// How many of this many bytes may be written.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        match self {
            Self::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes);
                *left -= taken as u64;
                taken
            }
            Self::Chunked | Self::UntilClose => bytes,
            Self::Unknown | Self::Ended => 0,
        }
    }

    /// The body has come to its end; returns whether its last chunk is to be written.
    ///
    /// # Errors
    /// A part of what its head declares is missing.
    pub(super) fn end(&mut self) -> Result<bool> {
        match std::mem::replace(self, Self::Ended) {
            Self::Length(left @ 1..) => {
                let what = format!("{left} bytes of the response are missing");
                Error::e_explain(ErrorType::new("PrematureBodyEnd"), what)
            }
            Self::Chunked => Ok(true),
            _ => Ok(false),
        }
    }
}

/// Writes a response head. One that is final says the time, and whether the connection stays.
///
/// # Errors
/// It is of a version that is not spoken here.
pub(super) fn put_head(wire: &mut BytesMut, head: &ResponseHeader, stays: bool) -> Result<()> {
    let version: &[u8] = match head.version {
        Version::HTTP_11 => b"HTTP/1.1 ",
        Version::HTTP_10 => b"HTTP/1.0 ",
        _ => return Error::e_explain(ErrorType::WriteError, "a response of no HTTP/1"),
    };
    wire.reserve(512);
    wire.put_slice(version);
    wire.put_slice(head.status.as_str().as_bytes());
    wire.put_u8(b' ');
    wire.put_slice(head.get_reason_phrase().unwrap_or_default().as_bytes());
    wire.put_slice(b"\r\n");
    let is_final = !head.status.is_informational();
    let mut put = |name: &[u8], value: &[u8]| {
        if is_final && is_ours(name) {
            return;
        }
        wire.put_slice(name);
        wire.put_slice(b": ");
        wire.put_slice(value);
        wire.put_slice(b"\r\n");
    };
    if head.has_case() {
        for (name, value) in head.case_header_iter() {
            put(name.as_slice(), value.as_bytes());
        }
    } else {
        for (name, value) in &head.headers {
            put(name.as_str().as_bytes(), value.as_bytes());
        }
    }
    if is_final {
        date::with_now(|date| {
            wire.put_slice(b"Date: ");
            wire.put_slice(date.as_bytes());
        });
        let connection: &[u8] = if stays { b"keep-alive" } else { b"close" };
        wire.put_slice(b"\r\nConnection: ");
        wire.put_slice(connection);
        wire.put_slice(b"\r\n");
    }
    wire.put_slice(b"\r\n");
    Ok(())
}

/// Whether a field is for us to say, whatever the engine says.
fn is_ours(name: &[u8]) -> bool {
    match name.len() {
        4 => name.eq_ignore_ascii_case(b"date"),
        10 => name.eq_ignore_ascii_case(b"connection"),
        _ => false,
    }
}
