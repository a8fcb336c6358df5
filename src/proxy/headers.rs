//! The header fields we set and remove, on the way to engines and back.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderName, HeaderValue,
    TRANSFER_ENCODING,
};
use pingora_core::{ErrorType, OrErr as _, Result};
use pingora_http::{RequestHeader, ResponseHeader};

use crate::engines::Engine;

// Names that are set are kept as text: Pingora keeps the spelling of each, and copies that of any
// other kind of name.

/// Names a request, on its way in, to engines, back, and in the log.
pub(super) const REQUEST_ID: &str = "x-request-id";
/// Tells the client how many attempts its answer took.
pub(super) const ATTEMPTS: &str = "x-vllm-pingora-attempts";
/// Names an engine: the one a client chooses, and in answers to such clients the one that answered.
pub(super) const ENGINE: &str = "x-vllm-pingora-engine";
/// The same names, to look fields up by.
static REQUEST_ID_FIELD: HeaderName = HeaderName::from_static(REQUEST_ID);
pub(super) static ENGINE_FIELD: HeaderName = HeaderName::from_static(ENGINE);
static FORWARDED_FOR_FIELD: HeaderName = HeaderName::from_static(FORWARDED_FOR);
const FORWARDED_FOR: &str = "x-forwarded-for";
const FORWARDED_HOST: &str = "x-forwarded-host";
const FORWARDED_PROTO: &str = "x-forwarded-proto";
const HTTP: HeaderValue = HeaderValue::from_static("http");

/// The longest request id that is taken from a client.
const MAX_REQUEST_ID: usize = 128;

/// The largest response head that is taken from an engine, in bytes.
const MAX_RESPONSE_HEAD: usize = 256 * 1024;

/// Whether a response's fields are more than an engine ever has to say.
pub(super) fn is_oversized(response: &ResponseHeader) -> bool {
    // A colon, a blank and CRLF go with each.
    let fields = response.headers.iter();
    let size: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    size > MAX_RESPONSE_HEAD
}

/// Whether it is open to doubt where a response's body ends. Pingora overlooks a length where there
/// is a coding, and removes it.
pub(super) fn is_ambiguous(response: &ResponseHeader) -> bool {
    let mut codings = response.headers.get_all(TRANSFER_ENCODING).iter();
    let mut lengths = response.headers.get_all(CONTENT_LENGTH).iter();
    let chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    let number =
        |value: &HeaderValue| !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
    match (codings.next(), lengths.next()) {
        (Some(coding), _) => !chunked(coding) || codings.next().is_some(),
        (None, Some(length)) => !number(length) || lengths.next().is_some(),
        (None, None) => false,
    }
}

/// The client's request id if it is one line of 1 to 128 visible ASCII characters, given once;
/// else the one `fresh` makes.
pub(super) fn request_id(fields: &HeaderMap, fresh: impl FnOnce() -> String) -> String {
    let mut given = fields.get_all(&REQUEST_ID_FIELD).iter();
    let acceptable = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=MAX_REQUEST_ID).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    };
    match (given.next().filter(acceptable), given.next()) {
        (Some(value), None) => value.to_str().map_or_else(|_| fresh(), str::to_owned),
        _ => fresh(),
    }
}

/// What engines are told of a request beside what the client said, whichever is asked.
#[derive(Debug)]
pub(super) struct Forwarding<'a> {
    pub(super) request_id: &'a str,
    /// The client's address.
    pub(super) client: Option<&'a HeaderValue>,
    /// The body's length; `None` where the request has none to declare.
    pub(super) length: Option<usize>,
    /// The body lost its content coding on the way.
    pub(super) decoded: bool,
    pub(super) credential: Credential<'a>,
}

/// The key an engine sees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Credential<'a> {
    /// The router's own, as the whole value of the header.
    Own(&'a HeaderValue),
    /// Whatever the client sent.
    Clients,
    /// None: the client's key is for the router alone.
    Nobodys,
}

/// Rewrites a request's head for all attempts, once: each copies it, and what is added to a copy
/// costs more. Hop-by-hop fields are gone already.
pub(super) fn to_engines(request: &mut RequestHeader, forward: &Forwarding<'_>) -> Result<()> {
    if let Some(host) = host_of(request) {
        request.insert_header(FORWARDED_HOST, host)?;
    }
    request.insert_header(REQUEST_ID, forward.request_id)?;
    request.insert_header(FORWARDED_PROTO, HTTP)?;
    if let Some(client) = forward.client {
        let chain = forwarded_for(&request.headers, client)?;
        request.insert_header(FORWARDED_FOR, chain)?;
    }
    match forward.credential {
        Credential::Own(value) => request.insert_header(AUTHORIZATION, value.clone())?,
        Credential::Clients => {}
        Credential::Nobodys => drop(request.remove_header(&AUTHORIZATION)),
    }
    request.remove_header(&ENGINE_FIELD);
    // The body has been read, so the engine need not be asked for leave to send it.
    request.remove_header(&EXPECT);
    if forward.decoded {
        request.remove_header(&CONTENT_ENCODING);
    }
    match forward.length {
        Some(length) if is_told(&request.headers, length) => {}
        Some(length) => request.insert_header(CONTENT_LENGTH, length)?,
        None => drop(request.remove_header(&CONTENT_LENGTH)),
    }
    Ok(())
}

/// Rewrites it for one of them; `target` is the path and query to ask for, where they are not the
/// client's.
pub(super) fn to_engine(
    request: &mut RequestHeader,
    engine: &Engine,
    target: Option<&str>,
) -> Result<()> {
    let url = engine.url();
    let is_origin_form = request.raw_path().starts_with(b"/");
    if target.is_some() || !url.prefix().is_empty() || !is_origin_form {
        let clients = request
            .uri
            .path_and_query()
            .map_or("/", http::uri::PathAndQuery::as_str);
        let path = target.unwrap_or(clients);
        let target = format!("{}{path}", url.prefix());
        request.set_raw_path(target.as_bytes())?;
    }
    request.insert_header(HOST, url.authority())
}

/// The host the client asked for.
fn host_of(request: &RequestHeader) -> Option<HeaderValue> {
    match request.headers.get(HOST) {
        Some(host) => Some(host.clone()),
        None => HeaderValue::from_str(request.uri.authority()?.as_str()).ok(),
    }
}

/// Whether the fields declare just this length, in its only spelling.
fn is_told(fields: &HeaderMap, length: usize) -> bool {
    let mut told = fields.get_all(CONTENT_LENGTH).iter();
    let is_it = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        let is_plain = text == "0" || text.starts_with(|first| matches!(first, '1'..='9'));
        is_plain && text.parse() == Ok(length)
    };
    told.next().is_some_and(is_it) && told.next().is_none()
}

/// The client's own chain, with its address behind it.
fn forwarded_for(fields: &HeaderMap, client: &HeaderValue) -> Result<HeaderValue> {
    let mut clients = fields.get_all(&FORWARDED_FOR_FIELD).iter().peekable();
    if clients.peek().is_none() {
        return Ok(client.clone());
    }
    let mut chain = Vec::new();
    for value in clients {
        chain.extend_from_slice(value.as_bytes());
        chain.extend_from_slice(b", ");
    }
    chain.extend_from_slice(client.as_bytes());
    HeaderValue::from_maybe_shared(Bytes::from(chain))
        .or_err(ErrorType::InvalidHTTPHeader, "the chain of addresses")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineSpec;
    use crate::engines::EngineId;

    fn fields(list: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in list {
            map.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    #[test]
    fn a_clients_request_id_is_kept_only_if_it_is_harmless() {
        let id = |list: &[(&'static str, &[u8])]| request_id(&fields(list), || "fresh".to_owned());
        assert_eq!(id(&[("x-request-id", b"abc-1")]), "abc-1");
        assert_eq!(id(&[("x-request-id", &[b'a'; 128])]), "a".repeat(128));
        assert_eq!(id(&[]), "fresh");
        assert_eq!(id(&[("x-request-id", b"")]), "fresh");
        assert_eq!(id(&[("x-request-id", &[b'a'; 129])]), "fresh");
        assert_eq!(id(&[("x-request-id", b"a b")]), "fresh");
        assert_eq!(id(&[("x-request-id", b"a\xe9")]), "fresh");
        assert_eq!(
            id(&[("x-request-id", b"a"), ("x-request-id", b"b")]),
            "fresh"
        );
    }

    fn forwarded(
        prefix: &str,
        credential: Credential<'_>,
        list: &[(&'static str, &str)],
    ) -> RequestHeader {
        let url = format!("http://engine:9001{prefix}");
        let engine = Engine::new(
            EngineId::new(0),
            &EngineSpec::new(url.parse().unwrap(), Vec::new()),
            &crate::engines::HealthLimits::default(),
        );
        let mut request = RequestHeader::build("POST", b"/v1/completions?a=%2F&b=+", None).unwrap();
        for (name, value) in list {
            request.append_header(*name, *value).unwrap();
        }
        let forward = Forwarding {
            request_id: "id",
            client: Some(&HeaderValue::from_static("10.1.2.3")),
            length: Some(7),
            decoded: false,
            credential,
        };
        to_engines(&mut request, &forward).unwrap();
        to_engine(&mut request, &engine, None).unwrap();
        request
    }

    #[test]
    fn the_engine_sees_its_own_name_and_where_the_request_came_from() {
        let request = forwarded(
            "/base",
            Credential::Clients,
            &[
                ("Host", "edge.test"),
                ("X-Forwarded-For", "1.2.3.4"),
                ("Expect", "100-continue"),
            ],
        );
        assert_eq!(request.raw_path(), b"/base/v1/completions?a=%2F&b=+");
        let get = |name: &str| {
            request
                .headers
                .get(name)
                .map(|value| value.to_str().unwrap())
        };
        assert_eq!(get("host"), Some("engine:9001"));
        assert_eq!(get("x-forwarded-host"), Some("edge.test"));
        assert_eq!(get("x-forwarded-for"), Some("1.2.3.4, 10.1.2.3"));
        assert_eq!(get("x-forwarded-proto"), Some("http"));
        assert_eq!(get("x-request-id"), Some("id"));
        assert_eq!(get("content-length"), Some("7"));
        assert_eq!(get("expect"), None);
    }

    #[test]
    fn the_engine_sees_the_key_meant_for_it_and_no_other() {
        let own = HeaderValue::from_static("Bearer engine");
        let seen = |credential| {
            let request = forwarded("", credential, &[("Authorization", "Bearer client")]);
            request
                .headers
                .get(AUTHORIZATION)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(
            seen(Credential::Own(&own)).as_deref(),
            Some("Bearer engine")
        );
        assert_eq!(seen(Credential::Clients).as_deref(), Some("Bearer client"));
        assert_eq!(seen(Credential::Nobodys), None);
    }
}
