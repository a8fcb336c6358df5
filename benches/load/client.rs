//! A client that keeps its connection.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::wire::{self, Framing};

const READ: usize = 16 << 10;

/// One client; it connects when it first asks, and again where the connection has been closed.
#[derive(Debug)]
pub struct Client {
    to: SocketAddr,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    /// What has been read and not been looked at.
    unseen: std::ops::Range<usize>,
    body: Framing,
    close: bool,
    /// The last byte of the body was the end of a line.
    line_ended: bool,
}

/// What a piece of an answer brought.
#[derive(Clone, Copy, Debug, Default)]
pub struct Piece {
    /// Body bytes.
    pub bytes: usize,
    /// Events that ended in it.
    pub events: u64,
}

/// A whole answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub status: u16,
    pub bytes: usize,
    pub events: u64,
}

impl Client {
    /// A client of this server.
    pub fn new(to: SocketAddr) -> Self {
        Self {
            to,
            stream: None,
            buffer: vec![0; READ],
            unseen: 0..0,
            body: Framing::Length(0),
            close: false,
            line_ended: false,
        }
    }

    /// Sends a request and reads its answer to the end.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<Answer> {
        let status = self.begin(request).await?;
        let (mut bytes, mut events) = (0, 0);
        while let Some(piece) = self.more().await? {
            bytes += piece.bytes;
            events += piece.events;
        }
        Ok(Answer {
            status,
            bytes,
            events,
        })
    }

    /// Sends a request and reads the head of its answer; gives the status. Where a kept connection
    /// turns out closed, it is sent on another one.
    pub async fn begin(&mut self, request: &[u8]) -> io::Result<u16> {
        let kept = self.stream.is_some();
        match self.try_begin(request).await {
            Err(_) if kept => {
                self.stream = None;
                self.try_begin(request).await
            }
            result => result,
        }
    }

    async fn try_begin(&mut self, request: &[u8]) -> io::Result<u16> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.to).await?,
        };
        let stream = self.stream.insert(stream);
        stream.write_all(request).await?;
        let mut filled = 0;
        loop {
            let read = stream.read(&mut self.buffer[filled..]).await?;
            filled += read;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((length, head)) = wire::response_head(&self.buffer[..filled])? {
                self.unseen = length..filled;
                (self.body, self.close) = (head.framing, head.close);
                self.line_ended = false;
                return Ok(head.status);
            }
        }
    }

    /// Reads on in the answer; `None` where it has ended.
    pub async fn more(&mut self) -> io::Result<Option<Piece>> {
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        if self.body.is_empty() {
            self.ended();
            return Ok(None);
        }
        if self.unseen.is_empty() {
            let read = stream.read(&mut self.buffer).await?;
            self.unseen = 0..read;
            if read == 0 {
                self.stream = None;
                return match self.body {
                    Framing::UntilClose => Ok(None),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                };
            }
        }
        let (mut piece, mut line_ended) = (Piece::default(), self.line_ended);
        let (took, ended) = self.body.take(&self.buffer[self.unseen.clone()], |bytes| {
            piece.bytes += bytes.len();
            piece.events += events(bytes, &mut line_ended);
        })?;
        self.line_ended = line_ended;
        self.unseen.start += took;
        if ended {
            self.body = Framing::Length(0);
        }
        Ok(Some(piece))
    }

    fn ended(&mut self) {
        if self.close {
            self.stream = None;
        }
    }
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Counts empty lines, with which events end.
fn events(bytes: &[u8], line_ended: &mut bool) -> u64 {
    let mut count = 0;
    let mut last = None;
    for at in memchr::memchr_iter(b'\n', bytes) {
        let follows = match at.checked_sub(1) {
            None => *line_ended,
            before => last == before,
        };
        count += u64::from(follows);
        last = Some(at);
    }
    *line_ended = last == bytes.len().checked_sub(1) && !bytes.is_empty();
    count
}
