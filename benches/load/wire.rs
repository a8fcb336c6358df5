//! Just enough HTTP/1.1 for both ends: heads, and where a body ends.

use std::io;

/// Heads with more fields are refused.
const MOST_FIELDS: usize = 64;

/// Where a body ends.
#[derive(Clone, Copy, Debug)]
pub enum Framing {
    /// After so many bytes.
    Length(usize),
    /// Where its chunks say so.
    Chunks(Chunk),
    /// Where the connection is closed.
    UntilClose,
}

/// What comes next in a chunked body.
#[derive(Clone, Copy, Debug)]
pub enum Chunk {
    /// A line with a size, of which this has been read.
    Size(usize),
    /// The rest of such a line.
    Extension(usize),
    /// Bytes of a chunk.
    Data(usize),
    /// The end of the line after a chunk.
    DataEnd,
    /// A line of the trailer, so long by now.
    Trailer(usize),
}

/// What the head of a request says.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub framing: Framing,
    /// The connection is to be closed afterwards.
    pub close: bool,
}

/// What the head of a response says.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead {
    pub status: u16,
    pub framing: Framing,
    pub close: bool,
}

/// Reads a request's head; `None` where it is not complete, else also how long it is.
pub fn request_head(bytes: &[u8]) -> io::Result<Option<(usize, RequestHead<'_>)>> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    match head.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(length) => {
            let (framing, close) = framing(head.headers)?;
            let head = RequestHead {
                method: head.method.unwrap_or_default(),
                path: head.path.unwrap_or_default(),
                framing: framing.unwrap_or(Framing::Length(0)),
                close,
            };
            Ok(Some((length, head)))
        }
    }
}

/// Reads a response's head, likewise.
pub fn response_head(bytes: &[u8]) -> io::Result<Option<(usize, ResponseHead)>> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut head = httparse::Response::new(&mut fields);
    match head.parse(bytes).map_err(io::Error::other)? {
        httparse::Status::Partial => Ok(None),
        httparse::Status::Complete(length) => {
            let (framing, close) = framing(head.headers)?;
            let head = ResponseHead {
                status: head.code.unwrap_or_default(),
                framing: framing.unwrap_or(Framing::UntilClose),
                close,
            };
            Ok(Some((length, head)))
        }
    }
}

fn framing(fields: &[httparse::Header<'_>]) -> io::Result<(Option<Framing>, bool)> {
    let (mut framing, mut close) = (None, false);
    for field in fields {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let text = std::str::from_utf8(field.value).map_err(io::Error::other)?;
            framing = Some(Framing::Length(text.parse().map_err(io::Error::other)?));
        } else if is("transfer-encoding") {
            framing = Some(Framing::Chunks(Chunk::Size(0)));
        } else if is("connection") {
            close = field.value.eq_ignore_ascii_case(b"close");
        }
    }
    Ok((framing, close))
}

impl Framing {
    /// Whether nothing follows the head.
    pub fn is_empty(self) -> bool {
        matches!(self, Self::Length(0))
    }

    /// Takes what belongs to the body off the front of `bytes` and hands its content to `each`;
    /// gives how much it took and whether the body has ended.
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) -> io::Result<(usize, bool)> {
        match self {
            Self::UntilClose => {
                each(bytes);
                Ok((bytes.len(), false))
            }
            Self::Length(left) => {
                let now = bytes.len().min(*left);
                each(&bytes[..now]);
                *left -= now;
                Ok((now, *left == 0))
            }
            Self::Chunks(chunk) => {
                let mut at = 0;
                while let Some(byte) = bytes.get(at) {
                    if let Chunk::Data(left) = chunk {
                        let now = (bytes.len() - at).min(*left);
                        each(&bytes[at..at + now]);
                        at += now;
                        *left -= now;
                        if *left == 0 {
                            *chunk = Chunk::DataEnd;
                        }
                        continue;
                    }
                    at += 1;
                    if chunk.line(*byte)? {
                        return Ok((at, true));
                    }
                }
                Ok((at, false))
            }
        }
    }
}

impl Chunk {
    /// Takes a byte that is not data; true after the last one of the body.
    fn line(&mut self, byte: u8) -> io::Result<bool> {
        *self = match (*self, byte) {
            (Self::Size(size) | Self::Extension(size), b'\n') if size > 0 => Self::Data(size),
            (Self::Size(_) | Self::Extension(_), b'\n') => Self::Trailer(0),
            (Self::Size(size), b'\r' | b';') => Self::Extension(size),
            (Self::Size(size), digit) => {
                let digit = char::from(digit).to_digit(16);
                let digit = digit.ok_or_else(|| io::Error::other("no size of a chunk"))?;
                Self::Size(size * 16 + digit as usize)
            }
            (Self::DataEnd, b'\n') => Self::Size(0),
            (Self::Trailer(0), b'\n') => return Ok(true),
            (Self::Trailer(_), b'\n') => Self::Trailer(0),
            (Self::Trailer(length), b'\r') => Self::Trailer(length),
            (Self::Trailer(length), _) => Self::Trailer(length + 1),
            (same, _) => same,
        };
        Ok(false)
    }
}
