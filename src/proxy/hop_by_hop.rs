//! Fields that concern one connection only: they end here, in both directions.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, StatusCode, Version};
use pingora_core::Result;
use pingora_http::{RequestHeader, ResponseHeader};
use smallvec::SmallVec;

use crate::edge::head::is_token_byte;
use crate::edge::{asks_for_websocket, connection_options};

/// The fields that end here, whoever names them, beside `Connection` and `Upgrade`.
static HOP_BY_HOP: [HeaderName; 7] = [
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("http2-settings"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
];

/// What a client must not have removed: it tells engines what is asked, and by whom.
const KEPT: [&str; 4] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// How many nominations are too many.
const TOO_MANY: usize = 10;

/// Whether what a client's `Connection` names may end here.
pub(super) fn is_acceptable(fields: &HeaderMap) -> bool {
    let mut names = (1..).zip(connection_options(fields));
    names.all(|(count, name)| count < TOO_MANY && may_end(name))
}

fn may_end(name: &[u8]) -> bool {
    let is = |kept: &&str| name.eq_ignore_ascii_case(kept.as_bytes());
    name.iter().all(|byte| is_token_byte(*byte)) && !KEPT.iter().any(is)
}

/// Removes from a request what concerned the client's connection only, and says how the engine's is
/// to go on: in HTTP, or as a WebSocket, where `may_upgrade` and the client asks for that.
pub(super) fn end_of_client(request: &mut RequestHeader, may_upgrade: bool) -> Result<()> {
    let upgrades =
        may_upgrade && request.version == Version::HTTP_11 && asks_for_websocket(request);
    for name in named(&request.headers) {
        request.remove_header(&name);
    }
    // The body goes on in one piece.
    request.remove_header(&TRANSFER_ENCODING);
    if upgrades {
        request.insert_header(CONNECTION, "Upgrade")?;
        request.insert_header(UPGRADE, "websocket")?;
    }
    Ok(())
}

/// Removes from an engine's response what concerned the connection it came on only.
pub(super) fn end_of_engine(response: &mut ResponseHeader) {
    let upgraded = response.status == StatusCode::SWITCHING_PROTOCOLS;
    for name in named(&response.headers) {
        let goes_on = upgraded && (name == CONNECTION || name == UPGRADE);
        // How its body is delimited is not for a nomination to say.
        if !goes_on && name != TRANSFER_ENCODING && name != CONTENT_LENGTH {
            response.remove_header(&name);
        }
    }
}

/// The fields that end here, and those that `Connection` nominates. Most messages have none of
/// them, or one.
fn named(fields: &HeaderMap) -> SmallVec<[HeaderName; 2]> {
    let ends =
        |name: &&HeaderName| **name == CONNECTION || **name == UPGRADE || HOP_BY_HOP.contains(name);
    let mut named: SmallVec<[HeaderName; 2]> = fields.keys().filter(ends).cloned().collect();
    if named.contains(&CONNECTION) {
        let options = connection_options(fields);
        named.extend(options.filter_map(|name| HeaderName::from_bytes(name).ok()));
    }
    named
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn accepts(lines: &[&[u8]]) -> bool {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(CONNECTION, HeaderValue::from_bytes(line).unwrap());
        }
        is_acceptable(&fields)
    }

    #[test]
    fn what_clients_say_is_accepted() {
        let cases: [&[&[u8]]; 6] = [
            &[],
            &[b""],
            &[b"close"],
            &[b"keep-alive, Upgrade"],
            &[b" ,TE,, X-Mine ,"],
            &[b"1,2,3,4,5", b"6,7,8,9"],
        ];
        for lines in cases {
            assert!(accepts(lines), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_name_or_must_not_go_is_refused() {
        let cases: [&[&[u8]]; 8] = [
            &[b"two words"],
            &[b"\"x-mine\""],
            &[b":authority"],
            &[b"x-m\xffne"],
            &[b"Host"],
            &[b"close", b"X-FORWARDED-FOR"],
            &[b"x-forwarded-proto,close"],
            &[b"1,2,3,4,5", b"6,7,8,9,10"],
        ];
        for lines in cases {
            assert!(!accepts(lines), "{lines:?}");
        }
    }

    #[test]
    fn fields_of_the_engines_connection_stay_there() {
        let mut response = ResponseHeader::build(200, None).unwrap();
        for (name, value) in [
            ("Connection", "X-Y, close"),
            ("X-Y", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authenticate", "Basic"),
            ("Content-Length", "3"),
            ("X-Z", "kept"),
        ] {
            response.append_header(name, value).unwrap();
        }
        end_of_engine(&mut response);
        let mut left: Vec<_> = response.headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-z"]);
    }

    fn left_of(fields: &[(&'static str, &'static str)], may_upgrade: bool) -> Vec<String> {
        let mut request = RequestHeader::build("GET", b"/", None).unwrap();
        for (name, value) in fields {
            request.append_header(*name, *value).unwrap();
        }
        end_of_client(&mut request, may_upgrade).unwrap();
        let fields = request.headers.iter();
        let mut left: Vec<_> = fields
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
            .collect();
        left.sort_unstable();
        left
    }

    #[test]
    fn fields_of_the_clients_connection_go_to_no_engine() {
        let fields = [
            ("Connection", "close, X-Hop"),
            ("connection", "content-length"),
            ("X-Hop", "1"),
            ("Content-Length", "3"),
            ("Keep-Alive", "5"),
            ("Proxy-Connection", "keep-alive"),
            ("Proxy-Authorization", "x"),
            ("TE", "trailers"),
            ("Trailer", "X"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "AA"),
            ("X-Kept", "2"),
        ];
        for may_upgrade in [false, true] {
            assert_eq!(left_of(&fields, may_upgrade), ["x-kept: 2"]);
        }
    }

    #[test]
    fn a_websocket_is_asked_for_where_there_may_be_one_and_in_no_other_words() {
        let fields = [
            ("Connection", "keep-alive, Upgrade, X-Hop"),
            ("Upgrade", "WebSocket"),
            ("X-Hop", "1"),
            ("Sec-WebSocket-Version", "13"),
        ];
        let version = "sec-websocket-version: 13";
        let asked = ["connection: Upgrade", version, "upgrade: websocket"];
        assert_eq!(left_of(&fields, true), asked);
        assert_eq!(left_of(&fields, false), [version]);
    }
}
