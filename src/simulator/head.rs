//! Reads the head of an HTTP/1.1 request and says how its body is framed.
//!
//! Given: the bytes received so far. Left to others: getting more of them (`connection`).
//! As lenient as the HTTP layer of a real engine (no Host needed, heads of hundreds of KiB), and
//! as strict where it matters: a request with both a length and chunks is refused.

use httparse::{EMPTY_HEADER, Status};

/// The longest head that is read.
pub(super) const MAX_HEAD: usize = 1 << 20;

/// What the simulator wants to know of a request head.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Head {
    pub(super) method: String,
    /// The path without its query.
    pub(super) path: String,
    pub(super) query: String,
    /// Whether the connection ends after the answer.
    pub(super) close: bool,
    pub(super) framing: Framing,
    pub(super) expects_continue: bool,
    /// Whether the content type is JSON.
    pub(super) json: bool,
    pub(super) request_id: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) host: Option<String>,
}

/// How the body is framed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Framing {
    #[default]
    None,
    Length(usize),
    Chunked,
}

/// The bytes are not an HTTP request that can be read.
#[derive(Debug, PartialEq)]
pub(super) struct Malformed;

/// The head at the start of `bytes` and its length, or `None` while it is not complete.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Head, usize)>, Malformed> {
    let mut few = [EMPTY_HEADER; 48];
    match parse_into(bytes, &mut few) {
        Err(httparse::Error::TooManyHeaders) => {
            let mut many = vec![EMPTY_HEADER; 4096];
            parse_into(bytes, &mut many).map_err(|_| Malformed)
        }
        other => other.map_err(|_| Malformed),
    }
}

fn parse_into<'b>(
    bytes: &'b [u8],
    headers: &mut [httparse::Header<'b>],
) -> Result<Option<(Head, usize)>, httparse::Error> {
    let mut request = httparse::Request::new(headers);
    let Status::Complete(length) = request.parse(bytes)? else {
        return Ok(None);
    };
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut head = Head {
        method: request.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        close: request.version == Some(0),
        ..Head::default()
    };
    for header in request.headers.iter() {
        head.note(header.name, header.value)?;
    }
    Ok(Some((head, length)))
}

// === impl Head ===

impl Head {
    fn note(&mut self, name: &str, value: &[u8]) -> Result<(), httparse::Error> {
        let text = || String::from_utf8_lossy(value).trim().to_owned();
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        // The length of a name sorts out most headers before any comparison.
        match name.len() {
            4 if is("host") => self.host = Some(text()),
            6 if is("expect") => {
                self.expects_continue = text().eq_ignore_ascii_case("100-continue");
            }
            10 if is("connection") => {
                for word in text().split(',').map(str::trim) {
                    if word.eq_ignore_ascii_case("close") {
                        self.close = true;
                    } else if word.eq_ignore_ascii_case("keep-alive") {
                        self.close = false;
                    }
                }
            }
            12 if is("content-type") => {
                let text = text();
                let kind = text.split(';').next().unwrap_or_default().trim();
                self.json = kind.eq_ignore_ascii_case("application/json");
            }
            12 if is("x-request-id") => self.request_id = Some(text()),
            13 if is("authorization") => self.authorization = Some(text()),
            14 if is("content-length") => {
                let digits = text();
                let only_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
                let length = digits.parse().ok().filter(|_| only_digits);
                let framing = Framing::Length(length.ok_or(httparse::Error::HeaderValue)?);
                if self.framing != Framing::None && self.framing != framing {
                    return Err(httparse::Error::HeaderValue);
                }
                self.framing = framing;
            }
            17 if is("transfer-encoding") => {
                let chunked = text().eq_ignore_ascii_case("chunked");
                if !chunked || self.framing != Framing::None {
                    return Err(httparse::Error::HeaderValue);
                }
                self.framing = Framing::Chunked;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let text = b"POST /v1/completions?x=1 HTTP/1.1\r\nX-Request-ID: a1\r\n\
            Content-Type: application/json; charset=utf-8\r\ncontent-length: 12\r\n\r\n{}";
        for cut in 0..text.len() - 2 {
            assert_eq!(parse(&text[..cut]), Ok(None), "cut at {cut}");
        }
        let (head, length) = parse(text).unwrap().unwrap();
        assert_eq!(length, text.len() - 2);
        assert_eq!(
            (head.path.as_str(), head.query.as_str()),
            ("/v1/completions", "x=1")
        );
        assert_eq!(head.framing, Framing::Length(12));
        assert_eq!(head.request_id.as_deref(), Some("a1"));
        assert!(head.json && !head.close && !head.expects_continue);
    }

    #[test]
    fn conflicting_or_odd_framing_is_refused() {
        for headers in [
            "content-length: 3\r\ntransfer-encoding: chunked",
            "transfer-encoding: chunked\r\ncontent-length: 3",
            "content-length: 3\r\ncontent-length: 4",
            "content-length: +3",
            "content-length: -3",
            "content-length:",
            "transfer-encoding: gzip",
        ] {
            let text = format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n");
            assert_eq!(parse(text.as_bytes()), Err(Malformed), "{headers}");
        }
    }

    #[test]
    fn http_1_0_closes_unless_it_asks_otherwise_and_many_headers_are_fine() {
        let close = |text: &str| parse(text.as_bytes()).unwrap().unwrap().0.close;
        assert!(close("GET / HTTP/1.0\r\n\r\n"));
        assert!(!close("GET / HTTP/1.0\r\nconnection: Keep-Alive\r\n\r\n"));
        assert!(close("GET / HTTP/1.1\r\nconnection: te, Close\r\n\r\n"));
        let many = "a: b\r\n".repeat(1000);
        assert!(!close(&format!("GET / HTTP/1.1\r\n{many}\r\n")));
    }
}
