//! One client connection: requests in, bytes out, and an eye on the client leaving.
//!
//! Left to others: what to answer (`route`, `generate`). There is no task per request; while an
//! answer waits for its time, the same task watches the socket, so a close or half-close by the
//! client ends the answer at once, as on a real engine.

use std::io;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::head::{self, Framing, Head, MAX_HEAD, Malformed};

/// The longest body that is read.
pub(super) const MAX_BODY: usize = 256 << 20;
/// How much of a pipelined next request is read while an answer is still going on.
const MAX_AHEAD: usize = 64 << 10;

/// One request, read whole.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) head: Head,
    pub(super) body: Bytes,
}

/// Why there is no next request.
#[derive(Debug, PartialEq)]
pub(super) enum End {
    /// The client left, or said nothing for the keep-alive time.
    Closed,
    /// What came is not HTTP.
    Malformed,
    /// The head or the body is longer than is read.
    TooLarge,
}

/// The client closed or half-closed its side.
#[derive(Debug, PartialEq)]
pub(super) struct Gone;

/// One client connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    inbox: BytesMut,
    /// What is to be sent next; [`Connection::flush`] sends it.
    pub(super) out: Vec<u8>,
    keep_alive: Duration,
    timer: Pin<Box<Sleep>>,
    date: (u64, String),
}

// === impl Connection ===

impl Connection {
    pub(super) fn new(stream: TcpStream, keep_alive: Duration) -> Self {
        Self {
            stream,
            inbox: BytesMut::with_capacity(4096),
            out: Vec::with_capacity(4096),
            // So that no deadline is beyond what a clock can hold.
            keep_alive: keep_alive.min(Duration::from_secs(86_400)),
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
            date: (0, String::new()),
        }
    }

    /// The seconds since 1970 and the `date` header for them.
    pub(super) fn date(&mut self) -> (u64, &str) {
        let now = SystemTime::now();
        let seconds = now
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        if self.date.0 != seconds {
            self.date = (seconds, httpdate::fmt_http_date(now));
        }
        (self.date.0, &self.date.1)
    }

    /// Reads the next request. After an answer, an idle client is closed when the keep-alive time
    /// is over; a client that has not been answered yet, or has begun a request, may take its time.
    pub(super) async fn next_request(&mut self, answered: bool) -> Result<Request, End> {
        if answered && self.inbox.is_empty() {
            self.timer.as_mut().reset(Instant::now() + self.keep_alive);
            tokio::select! {
                biased;
                read = read_some(&self.stream, &mut self.inbox) => read.map_err(|Gone| End::Closed)?,
                () = self.timer.as_mut() => return Err(End::Closed),
            }
        }
        let head = loop {
            match head::parse(&self.inbox) {
                Ok(Some((head, length))) => {
                    self.inbox.advance(length);
                    break head;
                }
                Ok(None) if self.inbox.len() > MAX_HEAD => return Err(End::TooLarge),
                Ok(None) => self.read().await?,
                Err(Malformed) => return Err(End::Malformed),
            }
        };
        if head.expects_continue && head.framing != Framing::None {
            self.out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            self.flush().await.map_err(|Gone| End::Closed)?;
        }
        let body = match head.framing {
            Framing::None => Bytes::new(),
            Framing::Length(length) => self.read_exactly(length).await?,
            Framing::Chunked => self.read_chunks().await?,
        };
        Ok(Request { head, body })
    }

    async fn read(&mut self) -> Result<(), End> {
        read_some(&self.stream, &mut self.inbox)
            .await
            .map_err(|Gone| End::Closed)
    }

    async fn read_exactly(&mut self, length: usize) -> Result<Bytes, End> {
        if length > MAX_BODY {
            return Err(End::TooLarge);
        }
        // A promise of much is believed a little at a time.
        let missing = length.saturating_sub(self.inbox.len());
        self.inbox.reserve(missing.min(1 << 20));
        while self.inbox.len() < length {
            self.read().await?;
        }
        Ok(self.inbox.split_to(length).freeze())
    }

    async fn read_chunks(&mut self) -> Result<Bytes, End> {
        let mut body = BytesMut::new();
        loop {
            let (line, size) = loop {
                match httparse::parse_chunk_size(&self.inbox) {
                    Ok(httparse::Status::Complete(found)) => break found,
                    Ok(httparse::Status::Partial) if self.inbox.len() > MAX_HEAD => {
                        return Err(End::TooLarge);
                    }
                    Ok(httparse::Status::Partial) => self.read().await?,
                    Err(_) => return Err(End::Malformed),
                }
            };
            self.inbox.advance(line);
            if size == 0 {
                self.skip_trailers().await?;
                return Ok(body.freeze());
            }
            let size = usize::try_from(size).map_err(|_| End::TooLarge)?;
            if size > MAX_BODY.saturating_sub(body.len()) {
                return Err(End::TooLarge);
            }
            body.extend_from_slice(&self.read_exactly(size).await?);
            if self.read_exactly(2).await?.as_ref() != b"\r\n" {
                return Err(End::Malformed);
            }
        }
    }

    async fn skip_trailers(&mut self) -> Result<(), End> {
        loop {
            match self.inbox.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let line = self.inbox.split_to(end + 1);
                    if line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                        return Ok(());
                    }
                }
                None if self.inbox.len() > MAX_HEAD => return Err(End::TooLarge),
                None => self.read().await?,
            }
        }
    }

    /// Sends all of `out`, unless the client leaves first.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        let mut rest = self.out.as_slice();
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        biased;
                        ready = self.stream.writable() => ready.map_err(|_| Gone)?,
                        Gone = client_leaves(&self.stream, &mut self.inbox) => return Err(Gone),
                    }
                }
                Err(_) => return Err(Gone),
            }
        }
        self.out.clear();
        Ok(())
    }

    /// Whether the client has left already; does not wait.
    pub(super) fn client_left(&mut self) -> bool {
        if self.inbox.len() >= MAX_AHEAD {
            return false;
        }
        match self.stream.try_read_buf(&mut self.inbox) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Waits for `future`, unless the client leaves first.
    pub(super) async fn until<T>(&mut self, future: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::select! {
            biased;
            done = future => Ok(done),
            Gone = client_leaves(&self.stream, &mut self.inbox) => Err(Gone),
        }
    }

    /// Waits until `instant`, unless the client leaves first.
    pub(super) async fn sleep_until(&mut self, instant: Instant) -> Result<(), Gone> {
        self.timer.as_mut().reset(instant);
        tokio::select! {
            biased;
            () = self.timer.as_mut() => Ok(()),
            Gone = client_leaves(&self.stream, &mut self.inbox) => Err(Gone),
        }
    }

    /// Ends the connection with a reset instead of a close.
    pub(super) fn reset(self) {
        if let Err(error) = self.stream.set_zero_linger() {
            log::warn!("a connection is closed instead of reset: {error}");
        }
    }
}

/// Reads what there is, at least one byte.
async fn read_some(stream: &TcpStream, inbox: &mut BytesMut) -> Result<(), Gone> {
    loop {
        inbox.reserve(4096);
        match stream.try_read_buf(inbox) {
            Ok(0) => return Err(Gone),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.readable().await.map_err(|_| Gone)?;
            }
            Err(_) => return Err(Gone),
        }
    }
}

/// Waits until the client closes or half-closes its side. What it sends ahead is kept.
async fn client_leaves(stream: &TcpStream, inbox: &mut BytesMut) -> Gone {
    while inbox.len() < MAX_AHEAD {
        if read_some(stream, inbox).await.is_err() {
            return Gone;
        }
    }
    std::future::pending().await
}
