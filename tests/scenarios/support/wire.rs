//! HTTP/1.1 on the wire, read strictly: what a lenient parser would forgive is an error here.

use std::fmt;
use std::hash::Hasher;

use bytes::{Bytes, BytesMut};

/// How one side ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// An orderly end: the other side reads EOF.
    Fin,
    /// The other side's next read or write fails.
    Reset,
}

/// How a message says where its body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body at all.
    Empty,
    Length(u64),
    Chunked,
    /// The end of the connection is the end of the body (responses only).
    UntilClose,
}

/// The header lines of a message in the order they came, duplicates and case kept.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// The value of the only line called `name` (any case); panics if there are several.
    pub fn get(&self, name: &str) -> Option<&str> {
        let all = self.all(name);
        assert!(all.len() < 2, "{name} came {} times: {all:?}", all.len());
        all.first().copied()
    }

    /// The values of all lines called `name` (any case), in order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.iter()
            .filter(|(given, _)| given.eq_ignore_ascii_case(name))
            .map(|(_, value)| std::str::from_utf8(value).expect("a header value that is text"))
            .collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.iter()
            .any(|(given, _)| given.eq_ignore_ascii_case(name))
    }

    /// The names as sent, in order.
    pub fn names(&self) -> Vec<&str> {
        self.iter().map(|(name, _)| name).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.to_owned(), value.to_vec()));
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.0
            .retain(|(given, _)| !given.eq_ignore_ascii_case(name));
    }

    pub(super) fn write_to(&self, wire: &mut Vec<u8>) {
        for (name, value) in self.iter() {
            wire.extend_from_slice(name.as_bytes());
            wire.extend_from_slice(b": ");
            wire.extend_from_slice(value);
            wire.extend_from_slice(b"\r\n");
        }
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (name, printable(value))))
            .finish()
    }
}

/// Bytes as an error message can show them, shortened.
pub fn printable(bytes: &[u8]) -> String {
    const SHOWN: usize = 300;
    match bytes.get(..SHOWN) {
        Some(start) => format!("{}… ({} bytes)", start.escape_ascii(), bytes.len()),
        None => bytes.escape_ascii().to_string(),
    }
}

/// A fingerprint of a body, for comparing bodies too large to keep. Equal within one process.
pub fn body_hash(body: &[u8]) -> u64 {
    let mut seen = BodySum::default();
    seen.add(body);
    seen.hash()
}

/// Length and fingerprint of a body seen piece by piece.
#[derive(Clone, Debug, Default)]
pub struct BodySum {
    len: u64,
    hasher: std::hash::DefaultHasher,
}

impl BodySum {
    pub fn add(&mut self, piece: &[u8]) {
        self.len += piece.len() as u64;
        self.hasher.write(piece);
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn hash(&self) -> u64 {
        self.hasher.finish()
    }
}

/// The length of the message head at the start of `buffer`, its blank line included; `None` if
/// it has not all arrived.
pub fn head_end(buffer: &[u8]) -> Result<Option<usize>, String> {
    let mut line_start = 0;
    while let Some(line) = next_line(buffer, line_start)? {
        if line == line_start {
            if line_start == 0 {
                return Err("an empty line where a message should begin".into());
            }
            return Ok(Some(line + 2));
        }
        line_start = line + 2;
    }
    Ok(None)
}

/// Where the CRLF that ends the line beginning at `start` is; `None` if it has not arrived.
fn next_line(buffer: &[u8], start: usize) -> Result<Option<usize>, String> {
    let rest = buffer.get(start..).unwrap_or_default();
    let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return Ok(None);
    };
    match (rest[at], rest.get(at + 1)) {
        (b'\r', Some(b'\n')) => Ok(Some(start + at)),
        (b'\r', None) => Ok(None),
        (b'\r', Some(_)) => Err(format!("a bare CR after {:?}", printable(&rest[..at]))),
        _ => Err(format!("a bare LF after {:?}", printable(&rest[..at]))),
    }
}

/// Splits a head found by [`head_end`] into its first line and its header lines.
pub fn parse_head(head: &[u8]) -> Result<(String, Headers), String> {
    let first_end = next_line(head, 0)?.ok_or("a head without a first line")?;
    let first = std::str::from_utf8(&head[..first_end]).map_err(|_| {
        format!(
            "first line is not text: {:?}",
            printable(&head[..first_end])
        )
    })?;
    let headers = parse_header_lines(&head[first_end + 2..])?;
    Ok((first.to_owned(), headers))
}

fn parse_header_lines(mut lines: &[u8]) -> Result<Headers, String> {
    let mut headers = Headers::default();
    while let Some(end) = next_line(lines, 0)?.filter(|&end| end > 0) {
        let (line, rest) = (&lines[..end], &lines[end + 2..]);
        let shown = printable(line);
        if matches!(line[0], b' ' | b'\t') {
            return Err(format!("a folded header line: {shown:?}"));
        }
        let colon = line.iter().position(|&byte| byte == b':');
        let colon = colon.ok_or_else(|| format!("a header line without a colon: {shown:?}"))?;
        let name = &line[..colon];
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return Err(format!("a header name that is no token: {shown:?}"));
        }
        let value = line[colon + 1..].trim_ascii();
        if value
            .iter()
            .any(|&byte| byte != b'\t' && byte.is_ascii_control())
        {
            return Err(format!("a control character in a header value: {shown:?}"));
        }
        headers.push(std::str::from_utf8(name).expect("tokens are ASCII"), value);
        lines = rest;
    }
    Ok(headers)
}

pub fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// What the header lines say about the body; `None` if they say nothing.
pub fn framing(headers: &Headers) -> Result<Option<Framing>, String> {
    let (lengths, codings) = (
        headers.all("content-length"),
        headers.all("transfer-encoding"),
    );
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
        ([digits], []) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
            let length = digits
                .parse()
                .map_err(|_| format!("content-length {digits}"))?;
            Ok(Some(Framing::Length(length)))
        }
        _ => Err(format!(
            "ambiguous framing: content-length {lengths:?}, transfer-encoding {codings:?}"
        )),
    }
}

/// Takes a body off the buffer as its bytes arrive.
#[derive(Clone, Debug)]
pub struct BodyReader {
    state: State,
    /// Size of each data chunk, in order.
    pub chunk_sizes: Vec<u64>,
    /// Chunk extensions, as sent.
    pub extensions: Vec<String>,
    pub trailers: Headers,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Counted(u64),
    UntilClose,
    ChunkSize,
    ChunkData(u64),
    ChunkEnd,
    Trailers,
    Done,
}

impl BodyReader {
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::Empty | Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Counted(length),
            Framing::Chunked => State::ChunkSize,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            chunk_sizes: vec![],
            extensions: vec![],
            trailers: Headers::default(),
        }
    }

    /// Whether the end of the body, terminator included, has been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether the end of the connection now would be the proper end of the body.
    pub fn may_end_here(&self) -> bool {
        matches!(self.state, State::Done | State::UntilClose)
    }

    /// Takes what `buffer` holds of the body, passing the decoded bytes to `sink`.
    pub fn take(
        &mut self,
        buffer: &mut BytesMut,
        mut sink: impl FnMut(Bytes),
    ) -> Result<(), String> {
        loop {
            match self.state {
                State::Done => return Ok(()),
                State::UntilClose => {
                    if !buffer.is_empty() {
                        sink(buffer.split().freeze());
                    }
                    return Ok(());
                }
                State::Counted(left) | State::ChunkData(left) => {
                    if buffer.is_empty() {
                        return Ok(());
                    }
                    let taken = buffer
                        .len()
                        .min(usize::try_from(left).unwrap_or(usize::MAX));
                    sink(buffer.split_to(taken).freeze());
                    let left = left - taken as u64;
                    self.state = match self.state {
                        State::Counted(_) if left == 0 => State::Done,
                        State::Counted(_) => State::Counted(left),
                        _ if left == 0 => State::ChunkEnd,
                        _ => State::ChunkData(left),
                    };
                }
                State::ChunkSize => {
                    let Some(line) = self.line(buffer)? else {
                        return Ok(());
                    };
                    self.state = match self.chunk_size(&line)? {
                        0 => State::Trailers,
                        size => State::ChunkData(size),
                    };
                }
                State::ChunkEnd => {
                    let Some(end) = buffer.get(..2) else {
                        return Ok(());
                    };
                    if end != b"\r\n" {
                        return Err(format!("{:?} where a chunk should end", printable(end)));
                    }
                    let _ = buffer.split_to(2);
                    self.state = State::ChunkSize;
                }
                State::Trailers => {
                    let Some(line) = self.line(buffer)? else {
                        return Ok(());
                    };
                    if line.is_empty() {
                        self.state = State::Done;
                    } else {
                        let line = [&line[..], b"\r\n"].concat();
                        for (name, value) in parse_header_lines(&line)?.iter() {
                            self.trailers.push(name, value);
                        }
                    }
                }
            }
        }
    }

    fn line(&self, buffer: &mut BytesMut) -> Result<Option<Bytes>, String> {
        let end = next_line(buffer, 0).map_err(|e| format!("{e} in {:?}", self.state))?;
        let Some(end) = end else {
            if buffer.len() > 8192 {
                return Err("a chunk size or trailer line of more than 8 KiB".into());
            }
            return Ok(None);
        };
        let line = buffer.split_to(end).freeze();
        let _ = buffer.split_to(2);
        Ok(Some(line))
    }

    fn chunk_size(&mut self, line: &[u8]) -> Result<u64, String> {
        let bad = || format!("a malformed chunk size line: {:?}", printable(line));
        let text = std::str::from_utf8(line).map_err(|_| bad())?;
        let (digits, extension) = text.split_once(';').unwrap_or((text, ""));
        if digits.is_empty() || digits.len() > 16 || !digits.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Err(bad());
        }
        if !extension.is_empty() {
            self.extensions.push(extension.to_owned());
        }
        let size = u64::from_str_radix(digits, 16).map_err(|_| bad())?;
        if size > 0 {
            self.chunk_sizes.push(size);
        }
        Ok(size)
    }
}
