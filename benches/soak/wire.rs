//! HTTP/1 on a raw socket, as a client may speak it: fast, slowly, or only in part.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use httparse::{EMPTY_HEADER, Status};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use super::answer::{Answer, End, NoAnswer};

/// The most that one read of a body takes.
const PIECE: usize = 16 * 1024;

/// How a client takes its answer.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// As fast as it comes.
    Fast,
    /// A little at a time, with one longer pause after so many bytes.
    Slow(usize, Duration),
    /// Up to this many bytes of the body; then the client goes away.
    Leave(usize),
}

/// A client's connection.
#[derive(Debug)]
pub struct Line {
    stream: TcpStream,
    inbox: BytesMut,
    taken: usize,
}

impl Line {
    /// Connects.
    pub async fn connect(to: SocketAddr) -> io::Result<Self> {
        Self::new(TcpSocket::new_v4()?, to).await
    }

    /// Connects with as little room for unread bytes as the system allows.
    pub async fn connect_narrow(to: SocketAddr) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(8 * 1024)?;
        Self::new(socket, to).await
    }

    async fn new(socket: TcpSocket, to: SocketAddr) -> io::Result<Self> {
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbox: BytesMut::new(),
            taken: 0,
        })
    }

    /// Sends all of it. A router that has answered already may have stopped reading.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        use tokio::io::AsyncWriteExt as _;
        self.stream.write_all(bytes).await
    }

    /// Closes the connection with a reset.
    pub fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// Ends its own side only.
    pub async fn half_close(&mut self) {
        use tokio::io::AsyncWriteExt as _;
        let _ = self.stream.shutdown().await;
    }

    /// Whether the other end has closed; does not wait.
    pub fn is_closed(&self) -> bool {
        let mut byte = [0];
        !matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Reads one answer.
    pub async fn answer(&mut self, reading: Reading) -> Result<Answer, NoAnswer> {
        let (status, framing, keeps) = loop {
            let head = self.head().await?;
            if head.0 >= 200 {
                break head;
            }
        };
        self.taken = 0;
        let mut body = Vec::new();
        let end = self.body(framing, reading, &mut body).await;
        Ok(Answer {
            status,
            keeps: keeps && end == End::Complete,
            body,
            end,
        })
    }

    async fn head(&mut self) -> Result<(u16, Framing, bool), NoAnswer> {
        loop {
            if !self.inbox.is_empty()
                && let Some((head, length)) = parse(&self.inbox)?
            {
                self.inbox.advance(length);
                return Ok(head);
            }
            let empty = self.inbox.is_empty();
            let why = match self.stream.read_buf(&mut self.inbox).await {
                Ok(0) => "closed".to_owned(),
                Ok(_) => continue,
                Err(error) => error.to_string(),
            };
            return Err(if empty {
                NoAnswer::Closed(why)
            } else {
                NoAnswer::Garbage(format!("{why} after {:?}", self.inbox))
            });
        }
    }

    async fn body(&mut self, framing: Framing, reading: Reading, body: &mut Vec<u8>) -> End {
        match framing {
            Framing::Length(length) => self.take(length, reading, body).await,
            Framing::Close => loop {
                let ready = self.inbox.split();
                body.extend_from_slice(&ready);
                match self.more(reading).await {
                    More::Bytes => {}
                    More::Closed => return End::WithConnection,
                    More::Broken => return End::Cut,
                    More::Left => return End::Left,
                }
            },
            Framing::Chunked => loop {
                let (line, size) = loop {
                    match httparse::parse_chunk_size(&self.inbox) {
                        Ok(Status::Complete(found)) => break found,
                        Ok(Status::Partial) => match self.more(reading).await {
                            More::Bytes => {}
                            More::Closed | More::Broken => return End::Cut,
                            More::Left => return End::Left,
                        },
                        Err(_) => return End::Cut,
                    }
                };
                self.inbox.advance(line);
                let size = usize::try_from(size).expect("a chunk fits in memory");
                let mut end = self.take(size, reading, body).await;
                if end == End::Complete {
                    end = self.take(2, reading, &mut Vec::new()).await;
                }
                if end != End::Complete || size == 0 {
                    return end;
                }
            },
        }
    }

    /// Moves this many bytes to `body`.
    async fn take(&mut self, length: usize, reading: Reading, body: &mut Vec<u8>) -> End {
        let mut missing = length;
        loop {
            let ready = self.inbox.split_to(missing.min(self.inbox.len()));
            missing -= ready.len();
            body.extend_from_slice(&ready);
            if missing == 0 {
                return End::Complete;
            }
            match self.more(reading).await {
                More::Bytes => {}
                More::Closed | More::Broken => return End::Cut,
                More::Left => return End::Left,
            }
        }
    }

    async fn more(&mut self, reading: Reading) -> More {
        let before = self.taken;
        let most = match reading {
            Reading::Leave(after) if before >= after => return More::Left,
            Reading::Leave(after) => PIECE.min(after - before),
            Reading::Slow(..) => {
                sleep(Duration::from_millis(2)).await;
                PIECE
            }
            Reading::Fast => PIECE,
        };
        // Without it a read takes what room happens to be left, down to 64 bytes.
        self.inbox.reserve(most);
        let mut little = (&mut self.stream).take(most as u64);
        match little.read_buf(&mut self.inbox).await {
            Ok(0) => return More::Closed,
            Ok(read) => self.taken += read,
            Err(_) => return More::Broken,
        }
        if let Reading::Slow(at, pause) = reading
            && (before..self.taken).contains(&at)
        {
            sleep(pause).await;
        }
        More::Bytes
    }
}

enum More {
    Bytes,
    Closed,
    Broken,
    Left,
}

#[derive(Clone, Copy)]
enum Framing {
    Length(usize),
    Chunked,
    Close,
}

type Head = ((u16, Framing, bool), usize);

/// The head at the start of `bytes`: status, framing, whether the connection stays; and its length.
fn parse(bytes: &[u8]) -> Result<Option<Head>, NoAnswer> {
    let mut fields = [EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut fields);
    let garbage = |what: &str| {
        let start = &bytes[..bytes.len().min(200)];
        NoAnswer::Garbage(format!("{what}: {:?}", String::from_utf8_lossy(start)))
    };
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(garbage(&error.to_string())),
    };
    let status = response.code.unwrap_or(0);
    let mut lengths = Vec::new();
    let mut chunked = false;
    let mut keeps = response.version == Some(1);
    for field in response.headers.iter() {
        let value = String::from_utf8_lossy(field.value).to_ascii_lowercase();
        match field.name.to_ascii_lowercase().as_str() {
            "content-length" => lengths.push(value),
            "transfer-encoding" => chunked = value == "chunked",
            "connection" => keeps = value != "close" && (keeps || value == "keep-alive"),
            _ => {}
        }
    }
    let framing = match (lengths.as_slice(), chunked) {
        _ if status < 200 || status == 204 => Framing::Length(0),
        ([], true) => Framing::Chunked,
        ([], false) => Framing::Close,
        ([length], false) => Framing::Length(length.parse().map_err(|_| garbage("length"))?),
        _ => return Err(garbage("framed twice")),
    };
    let keeps = keeps && !matches!(framing, Framing::Close);
    Ok(Some(((status, framing, keeps), length)))
}
