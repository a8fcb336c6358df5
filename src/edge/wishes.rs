//! What a request says of the connection it came on.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue};
use pingora_http::RequestHeader;

/// Whether the client may have gone on in another protocol.
pub fn asks_for_websocket(request: &RequestHeader) -> bool {
    let websocket = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"websocket");
    request.headers.get(UPGRADE).is_some_and(websocket)
}

/// Whether the client wants no other answer than this one.
pub(super) fn asks_to_close(request: &RequestHeader) -> bool {
    connection_options(&request.headers).any(|option| option.eq_ignore_ascii_case(b"close"))
}

/// Whether the client of HTTP/1.0 asks for the connection to stay.
pub(super) fn asks_to_stay(request: &RequestHeader) -> bool {
    connection_options(&request.headers).any(|option| option.eq_ignore_ascii_case(b"keep-alive"))
}

/// The options of a connection: one list, in however many fields they come (RFC 9110 sections 5.3
/// and 7.6.1). Pingora reads the first.
pub fn connection_options(fields: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let values = fields.get_all(CONNECTION).into_iter();
    let options = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    options
        .map(<[u8]>::trim_ascii)
        .filter(|option| !option.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_close_may_stand_in_any_of_several_fields() {
        for (fields, expected) in [
            (&[][..], false),
            (&["keep-alive"], false),
            (&["close"], true),
            (&["keep-alive, Close"], true),
            (&["keep-alive", "x-case,\tCLOSE ,te"], true),
            (&["x-\u{e9}", "close"], true),
            (&["x-\u{e9},close"], true),
            (&["closed", "not-close", "close keep-alive"], false),
        ] {
            let mut request = RequestHeader::build("GET", b"/", None).unwrap();
            for field in fields {
                let value = HeaderValue::from_bytes(field.as_bytes()).unwrap();
                request.append_header("Connection", value).unwrap();
            }
            assert_eq!(asks_to_close(&request), expected, "{fields:?}");
        }
    }
}
