//! How a connection ends when there is something to say.

use std::time::Duration;

use bytes::BytesMut;
use pingora_core::protocols::Stream;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use crate::api_error::ApiError;

/// How long a connection that is being closed is still read from in all, so that the answer
/// reaches a client which is still sending.
pub(super) const LINGER: Duration = Duration::from_secs(30);
/// The longest silence of the client in that time.
const LINGER_SILENCE: Duration = Duration::from_secs(5);

/// As above, for a connection that is one too many: the answer is most likely taken in that time,
/// and many of them cost little.
pub(super) const LINGER_BRIEFLY: Duration = Duration::from_millis(200);

/// The header fields of an error that is logged as `request_id`, with a body of this length.
pub(super) fn fields(
    refusal: &ApiError,
    request_id: &str,
    length: usize,
) -> Vec<(&'static str, String)> {
    let allow = refusal.allow().map(|allow| ("allow", allow.to_owned()));
    let rest = [
        ("content-type", "application/json".to_owned()),
        ("content-length", length.to_string()),
        ("x-request-id", request_id.to_owned()),
    ];
    allow.into_iter().chain(rest).collect()
}

/// Whether what has come of a request asks for a head only.
pub(super) fn asks_for_head(request: &[u8]) -> bool {
    request.starts_with(b"HEAD ")
}

/// The bytes of an error on a connection that closes after it; without its body where it is not
/// asked for.
pub(super) fn to_wire(refusal: &ApiError, request_id: &str, head_only: bool) -> Vec<u8> {
    use std::fmt::Write as _;

    let body = refusal.body();
    let status =
        http::StatusCode::from_u16(refusal.status()).unwrap_or(http::StatusCode::BAD_REQUEST);
    let mut head = format!(
        "HTTP/1.1 {} {}\r\n",
        status.as_str(),
        status.canonical_reason().unwrap_or("")
    );
    for (name, value) in fields(refusal, request_id, body.len()) {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("connection: close\r\n\r\n");
    let mut wire = head.into_bytes();
    if !head_only {
        wire.extend_from_slice(&body);
    }
    wire
}

/// Closes our side and reads what the client still sends, since closing with unread bytes would
/// reset the connection and take the answer away from it; not `longest` in all.
pub(super) async fn linger(mut stream: Stream, longest: Duration) {
    let drain = async {
        stream.shutdown().await;
        let mut sink = BytesMut::with_capacity(16 * 1024);
        while let Ok(Ok(1..)) = timeout(LINGER_SILENCE, stream.read_buf(&mut sink)).await {
            sink.clear();
        }
    };
    let _ = timeout(longest, drain).await;
}
