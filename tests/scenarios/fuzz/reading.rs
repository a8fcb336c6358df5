//! The one strict reading of what a client sends: where another is possible, it ends.

use bytes::BytesMut;

use crate::support::*;

/// A request, as far as it must be the same for every reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub body: Vec<u8>,
}

impl Reading {
    /// Says which request it is, in a line.
    pub fn told(&self) -> String {
        let hash = body_hash(&self.body);
        format!("of {} {} {hash:x}", self.method, self.target)
    }
}

impl From<&Delivery> for Reading {
    fn from(delivery: &Delivery) -> Self {
        Self {
            method: delivery.method.clone(),
            target: delivery.target.clone(),
            body: delivery.body.to_vec(),
        }
    }
}

/// The requests on a connection, up to the first byte that is not as RFC 9112 wants it, or the
/// request after which the connection closes.
pub fn requests(bytes: &[u8]) -> Vec<Reading> {
    let mut rest = BytesMut::from(bytes);
    let mut readings = Vec::new();
    while let Some((reading, goes_on)) = request(&mut rest) {
        readings.push(reading);
        if !goes_on {
            break;
        }
    }
    readings
}

/// Takes a whole request, and says whether another may follow it.
fn request(rest: &mut BytesMut) -> Option<(Reading, bool)> {
    // Section 2.2 has servers ignore empty lines here.
    while rest.starts_with(b"\r\n") {
        let _ = rest.split_to(2);
    }
    let end = wire::head_end(rest).ok()??;
    let head = rest.split_to(end);
    let (line, headers) = wire::parse_head(&head).ok()?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = parts[..] else {
        return None;
    };
    let framing = framing(&headers, version)?;
    let mut reader = wire::BodyReader::new(framing);
    let mut body = Vec::new();
    reader.take(rest, |piece| body.extend(piece)).ok()?;
    let reading = Reading {
        method: method.to_owned(),
        target: path_and_query(target).to_owned(),
        body,
    };
    let goes_on = match version {
        "HTTP/1.1" => !says(&headers, b"close"),
        _ => says(&headers, b"keep-alive"),
    };
    reader.is_done().then_some((reading, goes_on))
}

/// Where the body ends; `None` where that can be read in two ways.
fn framing(headers: &Headers, version: &str) -> Option<Framing> {
    let values = |name: &'static str| {
        let named = headers
            .iter()
            .filter(move |(given, _)| given.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value).collect::<Vec<_>>()
    };
    let codings = values("transfer-encoding");
    // Section 6.3 lets a list of equal lengths pass.
    let lengths: Vec<&[u8]> = values("content-length")
        .into_iter()
        .flat_map(|value| value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii))
        .collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Some(Framing::Empty),
        ([], [coding]) if coding.eq_ignore_ascii_case(b"chunked") && version == "HTTP/1.1" => {
            Some(Framing::Chunked)
        }
        ([first, others @ ..], []) if first.iter().all(u8::is_ascii_digit) => {
            let length = std::str::from_utf8(first).ok()?.parse().ok()?;
            let equal = others.iter().all(|other| other == first);
            equal.then_some(Framing::Length(length))
        }
        _ => None,
    }
}

/// Whether the Connection field has this word.
fn says(headers: &Headers, word: &[u8]) -> bool {
    let has = |value: &[u8]| {
        let mut words = value.split(|byte| *byte == b',');
        words.any(|given| given.trim_ascii().eq_ignore_ascii_case(word))
    };
    let mut fields = headers.iter();
    fields.any(|(name, value)| name.eq_ignore_ascii_case("connection") && has(value))
}

/// What an engine is asked for, of a target that may be a whole URL.
fn path_and_query(target: &str) -> &str {
    let Some((_, rest)) = target.split_once("://") else {
        return target;
    };
    rest.find('/').map_or("/", |at| &rest[at..])
}

#[test]
fn a_reading_ends_where_another_begins() {
    let good = "POST /any?m=1 HTTP/1.1\r\nHost: e\r\nContent-Length: 2\r\n\r\n{}";
    let found = |bytes: String| requests(bytes.as_bytes()).len();
    assert_eq!(found(format!("{good}{good}")), 2);
    for (from, to) in [
        ("Content-Length: 2", "Content-Length: +2"),
        (
            "Content-Length: 2",
            "Content-Length: 2\r\nContent-Length: 3",
        ),
        (
            "Content-Length: 2",
            "Content-Length: 2\r\nTransfer-Encoding: chunked",
        ),
        ("Content-Length: 2", "Content-Length: 3"),
        ("Host: e\r\n", "Host: e\n"),
        ("Host: e", "Host : e"),
        (" HTTP/1.1", " HTTP/1.2"),
    ] {
        let bad = good.replace(from, to);
        let behind = if to.ends_with('3') { "" } else { good };
        assert_eq!(found(format!("{bad}{behind}")), 0, "{bad:?}");
    }
    let closing = good.replace("Host", "Connection: x, close\r\nHost");
    assert_eq!(found(format!("{closing}{good}")), 1);
}
