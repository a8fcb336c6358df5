//! Reads a request head and judges its bytes before anything interprets them.
//!
//! Pingora's parser is lenient where intermediaries have learnt not to be: it takes bare line
//! feeds, drops a Content-Length beside a Transfer-Encoding, and times each read instead of the
//! whole head. What passes here has one reading only, by RFC 9112; everything else is refused
//! with a status that says why, and the connection is closed.

use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Version};
use memchr::memmem::Finder;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::authority::validate_request_authority;
use pingora_http::RequestHeader;
use smallvec::SmallVec;

use super::scratch::append;
use crate::api_error::ApiError;
use framing::Framing;
use spelling::{has_any, is_token, trim_spaces};

mod framing;
mod spelling;

pub use framing::BodyFraming;
pub(super) use spelling::is_forbidden_in_value;
pub(crate) use spelling::is_token_byte;

/// The longest request line, in bytes.
pub const MAX_REQUEST_LINE: usize = 16 * 1024;
/// The largest request head, request line included, in bytes.
pub const MAX_HEAD: usize = 64 * 1024;
/// The most header fields of a request.
pub const MAX_FIELDS: usize = 128;

/// How many fields are added on the way to an engine.
const ADDED_FIELDS: usize = 6;

/// What is answered to CONNECT and TRACE, which no route takes.
pub(super) const METHODS: &str = "GET, HEAD, POST";

const END: &[u8] = b"\r\n\r\n";

static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(END));

/// Reads until `buf` starts with a whole request head, and returns its length in bytes, the final
/// empty line included.
///
/// `None` means that the client closed the connection or broke it off.
///
/// # Errors
/// The answer to what is too large for one, or can no longer become one.
pub async fn read(stream: &mut Stream, buf: &mut BytesMut) -> Result<Option<usize>, ApiError> {
    let mut searched = 0;
    loop {
        // Empty lines before a request line are to be ignored (RFC 9112 section 2.2).
        while buf.starts_with(b"\r\n") {
            let _ = buf.split_to(2);
            searched = 0;
        }
        if let Some(end) = find_end(buf, searched) {
            return Ok(Some(end));
        }
        check_partial(buf)?;
        searched = buf.len();
        if append(stream, buf).await.unwrap_or(0) == 0 {
            return Ok(None);
        }
    }
}

/// Where the head ends, if it is complete; `searched` bytes have been looked at before.
fn find_end(buf: &[u8], searched: usize) -> Option<usize> {
    let from = searched.saturating_sub(END.len() - 1);
    let at = FINDER.find(buf.get(from..)?)?;
    Some(from + at + END.len())
}

/// Refuses what is too large already, or is no HTTP at all.
fn check_partial(buf: &[u8]) -> Result<(), ApiError> {
    if buf.len() > MAX_HEAD {
        return Err(too_large());
    }
    let line_end = memchr::memchr(b'\n', buf);
    if line_end.unwrap_or(buf.len()) > MAX_REQUEST_LINE {
        return Err(ApiError::uri_too_long(MAX_REQUEST_LINE));
    }
    match line_end {
        Some(at) if at == 0 || buf.get(at - 1) != Some(&b'\r') => Err(bare_line_feed()),
        Some(at) => check_request_line(buf.get(..at - 1).unwrap_or_default()).map(|_| ()),
        None => Ok(()),
    }
}

/// Judges a complete request head, its final empty line included, and says how the body behind
/// it is delimited.
///
/// # Errors
/// The answer to a head that is too large, malformed, or can be read in two ways.
pub fn check(head: &[u8]) -> Result<BodyFraming, ApiError> {
    take_apart(head, |_, _| {}).map(|(_, framing)| framing)
}

/// The same, and returns what it says. Its values are parts of `head`.
///
/// # Errors
/// The same, and the answer to a target that is none.
pub fn parse(head: &Bytes) -> Result<(RequestHeader, BodyFraming), ApiError> {
    let mut fields = Fields::new();
    let mut has_length = false;
    let (line, framing) = take_apart(head, |name, value| {
        let mut value = value;
        if name.eq_ignore_ascii_case(b"content-length") {
            // It may be said more than once, as long as it is the same.
            if std::mem::replace(&mut has_length, true) {
                return;
            }
            value = value.split(|byte| *byte == b',').next().unwrap_or_default();
        }
        fields.push((name, value.trim_ascii()));
    })?;
    let malformed = || ApiError::invalid_request("the request head is malformed");
    let room = Some(fields.len() + ADDED_FIELDS);
    let request = RequestHeader::build(line.method, line.target, room);
    let mut request = request.map_err(|_| malformed())?;
    request.set_version(match line.minor {
        Minor::Zero => Version::HTTP_10,
        Minor::One => Version::HTTP_11,
    });
    for (name, value) in fields {
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value));
        let value = value.map_err(|_| malformed())?;
        let added = request.append_header(head.slice_ref(name), value);
        added.map_err(|_| malformed())?;
    }
    // The host may also stand in the target.
    validate_request_authority(&request).map_err(|_| malformed())?;
    Ok((request, framing))
}

/// Most requests have no more than these.
type Fields<'a> = SmallVec<[(&'a [u8], &'a [u8]); 16]>;

/// What a request line says.
struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    minor: Minor,
}

/// Judges a head, and hands each field's name and value on.
fn take_apart<'a>(
    head: &'a [u8],
    mut field: impl FnMut(&'a [u8], &'a [u8]),
) -> Result<(RequestLine<'a>, BodyFraming), ApiError> {
    if head.len() > MAX_HEAD {
        return Err(too_large());
    }
    let head = head.strip_suffix(END).unwrap_or(head);
    let mut lines = Lines(Some(head));
    let request_line = lines.next().unwrap_or_default();
    if request_line.len() > MAX_REQUEST_LINE {
        return Err(ApiError::uri_too_long(MAX_REQUEST_LINE));
    }
    let line = check_request_line(request_line)?;
    let mut framing = Framing::default();
    for (count, text) in lines.enumerate() {
        if count == MAX_FIELDS {
            return Err(ApiError::headers_too_large(format!(
                "the request has more than {MAX_FIELDS} header fields"
            )));
        }
        let (name, value) = split_field(text)?;
        framing.take(name, value)?;
        field(name, value);
    }
    let framing = framing.check(line.minor)?;
    Ok((line, framing))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Minor {
    Zero,
    One,
}

/// The lines between CRLFs; a lone CR or LF stays inside its line and is refused there.
struct Lines<'a>(Option<&'a [u8]>);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0?;
        let end = memchr::memchr_iter(b'\n', rest)
            .filter_map(|at| at.checked_sub(1))
            .find(|at| rest.get(*at) == Some(&b'\r'));
        let (line, rest) = match end {
            Some(at) => (rest.get(..at)?, rest.get(at + 2..)),
            None => (rest, None),
        };
        self.0 = rest;
        Some(line)
    }
}

fn check_request_line(line: &[u8]) -> Result<RequestLine<'_>, ApiError> {
    let refuse = || ApiError::invalid_request("the request line is malformed");
    let mut parts = line.split(|byte| *byte == b' ');
    let (method, target, version) = (parts.next(), parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(refuse());
    }
    let method = method.ok_or_else(refuse)?;
    if !is_token(method) {
        return Err(refuse());
    }
    let target = target.ok_or_else(refuse)?;
    let is_invisible = |byte: u8| byte <= b' ' || byte >= 0x7f;
    if target.is_empty() || has_any(target, is_invisible) {
        return Err(refuse());
    }
    let minor = match version {
        Some(b"HTTP/1.1") => Minor::One,
        Some(b"HTTP/1.0") => Minor::Zero,
        _ => return Err(refuse()),
    };
    if method != b"CONNECT" && !is_target(target) {
        return Err(refuse());
    }
    match method {
        b"CONNECT" => Err(ApiError::method_not_allowed("CONNECT", METHODS)),
        b"TRACE" => Err(ApiError::method_not_allowed("TRACE", METHODS)),
        _ => Ok(RequestLine {
            method,
            target,
            minor,
        }),
    }
}

/// Whether this is a path, a whole URL of ours, or the asterisk of `OPTIONS`; none has a fragment.
fn is_target(target: &[u8]) -> bool {
    if target.contains(&b'#') {
        return false;
    }
    let scheme = |scheme: &[u8]| {
        let start = target.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    target.starts_with(b"/") || target == b"*" || scheme(b"http://") || scheme(b"https://")
}

/// A field's name and its value without the blanks around it.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), ApiError> {
    let refuse = || ApiError::invalid_request("a header field is malformed");
    let colon = memchr::memchr(b':', line).ok_or_else(refuse)?;
    let (name, value) = line.split_at(colon);
    // This also refuses a folded line and blanks before the colon.
    if !is_token(name) {
        return Err(refuse());
    }
    let value = value.get(1..).unwrap_or_default();
    if has_any(value, is_forbidden_in_value) {
        return Err(refuse());
    }
    Ok((name, trim_spaces(value)))
}

fn bare_line_feed() -> ApiError {
    ApiError::invalid_request("a line of the head does not end in CR LF")
}

fn too_large() -> ApiError {
    ApiError::headers_too_large(format!(
        "the request head is larger than the limit of {MAX_HEAD} bytes"
    ))
}

#[cfg(test)]
mod tests;
