//! The client's socket, as far as the request at hand may read from it.
//!
//! Pingora's session reads what has come, finds the end of a body by rules that are laxer than
//! ours, and keeps what is behind it. This stream gives it the bytes of one request and no more:
//! what the client sends behind them waits here. So a body has the one reading that its head and
//! [`Chunks`] allow, nothing behind it is ever taken for a part of it, and a client that leaves is
//! noticed even behind requests it has sent ahead.
//!
//! A body of known length can also be collected past Pingora, straight to where it is kept.
//!
//! In the other direction it gathers what is written in pieces: a head and its body, or the size,
//! the data and the end of a chunk, leave in one packet. A client that takes nothing of it for too
//! long is given up.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Buf as _, BytesMut};
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::chunks::Chunks;
use super::scratch::poll_append;
use super::standstill::Standstill;
use crate::body_buffer::BodyBuffer;

/// How much of what a client sends ahead is read before its request's turn.
const MAX_AHEAD: usize = 64 * 1024;

/// How much that is written in pieces is gathered.
const MAX_UNSENT: usize = 16 * 1024;

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// By its length; zero where there is no body.
    Length(u64),
    /// By chunks.
    Chunked,
}

/// The socket, and how far it may be read; shared by Pingora's stream and those who know the
/// requests on it.
#[derive(Debug)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug)]
struct State {
    /// `None` while it is being shut down.
    socket: Option<Stream>,
    mode: Mode,
    /// Read from the socket, and not given out.
    ahead: BytesMut,
    /// Written, and not sent.
    unsent: BytesMut,
    standstill: Standstill,
}

#[derive(Debug, Default)]
enum Mode {
    /// Everything goes through: between requests, and after an upgrade.
    #[default]
    Open,
    /// This much of a body is left.
    Length(u64),
    /// A chunked body is being followed.
    Chunked(Chunks),
    /// The request has ended; what comes is kept for the next one.
    Ended,
    /// The body is malformed, so nothing behind it can be read.
    Broken,
}

impl Gate {
    /// The client is given up once it has taken nothing of what waits for it for `patience`.
    pub(super) fn new(socket: Stream, patience: Option<Duration>) -> Self {
        let standstill = Standstill::new(patience, socket.get_socket_digest());
        Self(Mutex::new(State {
            socket: Some(socket),
            mode: Mode::default(),
            ahead: BytesMut::new(),
            unsent: BytesMut::new(),
            standstill,
        }))
    }

    /// A request begins: its head has been read, and `rest` behind it; its answer may wait for the
    /// client for `patience`.
    pub(super) fn begin(&self, framing: BodyFraming, rest: BytesMut, patience: Option<Duration>) {
        let mut state = self.lock();
        state.standstill.set_limit(patience);
        state.mode = match framing {
            BodyFraming::Length(0) => Mode::Ended,
            BodyFraming::Length(length) => Mode::Length(length),
            BodyFraming::Chunked => Mode::Chunked(Chunks::default()),
        };
        state.ahead = rest;
    }

    /// Opens the gate, for what is no request.
    pub(super) fn open(&self) {
        self.lock().mode = Mode::Open;
    }

    /// Whether the request has been read to its end.
    pub(super) fn ended(&self) -> bool {
        matches!(self.lock().mode, Mode::Ended)
    }

    /// Whether the request's body is malformed.
    pub(super) fn broken(&self) -> bool {
        matches!(self.lock().mode, Mode::Broken)
    }

    /// Opens the gate for the next request, and returns what has come of it.
    pub(super) fn take_ahead(&self) -> BytesMut {
        let mut state = self.lock();
        state.mode = Mode::Open;
        std::mem::take(&mut state.ahead)
    }

    /// The length of a body of which a part has not come yet.
    pub(super) fn length_to_come(&self) -> Option<usize> {
        let state = self.lock();
        match state.mode {
            Mode::Length(left) => {
                let left = usize::try_from(left).ok()?;
                (left > state.ahead.len()).then_some(left)
            }
            _ => None,
        }
    }

    /// Reads what has come of a body of known length into `body`, and returns how much it was;
    /// nothing is the end of the stream. It may be dropped at any time, and nothing is lost.
    pub(super) async fn collect(&self, body: &mut BodyBuffer) -> io::Result<usize> {
        std::future::poll_fn(|cx| self.lock().poll_collect(cx, body)).await
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the socket says of itself.
    fn of_socket<T>(&self, ask: impl FnOnce(&Stream) -> T) -> Option<T> {
        self.lock().socket.as_ref().map(ask)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ClientStream(Arc<Gate>);

impl ClientStream {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self(gate)
    }
}

impl State {
    fn socket(&mut self) -> io::Result<Pin<&mut Stream>> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(socket))
    }

    /// Has the socket send something, as long as the client takes something now and then.
    fn poll_send<T>(
        &mut self,
        cx: &mut Context<'_>,
        step: impl FnOnce(Pin<&mut Stream>, &mut Context<'_>, &[u8]) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let sent = step(Pin::new(socket), cx, &self.unsent);
        if sent.is_ready() {
            self.standstill.moved();
            return sent;
        }
        let gives_up = self.standstill.poll(cx);
        gives_up.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends what has been gathered.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(self.poll_send(cx, AsyncWrite::poll_write))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(sent);
        }
        // A stream that waits for its next event keeps no memory for it.
        self.unsent = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Sends what has been gathered, as far as that can be done at once: whoever reads has
    /// written all there is for now.
    fn drain_before_read(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if !self.unsent.is_empty()
            && let Poll::Ready(Err(error)) = self.poll_drain(cx)
        {
            return Err(error);
        }
        Ok(())
    }

    /// Reads into `out` what the mode allows, first from what was read ahead.
    fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.drain_before_read(cx)?;
        let most = match &self.mode {
            Mode::Open | Mode::Chunked(_) => usize::MAX,
            Mode::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Mode::Ended => return self.poll_ahead(cx),
            Mode::Broken => return Poll::Ready(Err(malformed())),
        };
        let before = out.filled().len();
        if self.ahead.is_empty() && most >= out.remaining() {
            ready!(self.socket()?.poll_read(cx, out))?;
        } else if self.ahead.is_empty() {
            let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
            ready!(self.socket()?.poll_read(cx, &mut part))?;
            let read = part.filled().len();
            out.advance(read);
        } else {
            let most = most.min(out.remaining()).min(self.ahead.len());
            out.put_slice(self.ahead.get(..most).unwrap_or_default());
            self.ahead.advance(most);
            if self.ahead.is_empty() {
                // Else its memory would stay for as long as the answer takes.
                self.ahead = BytesMut::new();
            }
        }
        self.account(out, before)?;
        Poll::Ready(Ok(()))
    }

    /// Takes note of the bytes of `out` from `before` on, and takes back those behind the body.
    fn account(&mut self, out: &mut ReadBuf<'_>, before: usize) -> io::Result<()> {
        let read = out.filled().get(before..).unwrap_or_default();
        match &mut self.mode {
            Mode::Length(left) => {
                *left = left.saturating_sub(read.len() as u64);
                if *left == 0 {
                    self.mode = Mode::Ended;
                }
            }
            Mode::Chunked(chunks) => {
                let Ok(taken) = chunks.follow(read) else {
                    out.set_filled(before);
                    self.mode = Mode::Broken;
                    return Err(malformed());
                };
                if chunks.ended() {
                    let behind = read.get(taken..).unwrap_or_default();
                    let ahead = std::mem::take(&mut self.ahead);
                    self.ahead.extend_from_slice(behind);
                    self.ahead.extend_from_slice(&ahead);
                    out.set_filled(before + taken);
                    self.mode = Mode::Ended;
                }
            }
            Mode::Open | Mode::Ended | Mode::Broken => {}
        }
        Ok(())
    }

    /// See [`Gate::collect`].
    fn poll_collect(
        &mut self,
        cx: &mut Context<'_>,
        body: &mut BodyBuffer,
    ) -> Poll<io::Result<usize>> {
        let Mode::Length(left) = self.mode else {
            return Poll::Ready(Ok(0));
        };
        self.drain_before_read(cx)?;
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let read = if self.ahead.is_empty() {
            let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            ready!(body.poll_fill(socket, cx, left))?
        } else {
            let here = self.ahead.split_to(left.min(self.ahead.len()));
            body.extend_from_slice(&here);
            if self.ahead.is_empty() {
                self.ahead = BytesMut::new();
            }
            here.len()
        };
        self.mode = match left - read {
            0 => Mode::Ended,
            left => Mode::Length(left as u64),
        };
        Poll::Ready(Ok(read))
    }

    /// Keeps what comes for the next request, and gives out nothing but the end of the stream.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_AHEAD {
            let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            if ready!(poll_append(Pin::new(socket), cx, &mut self.ahead))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        // Whoever sends this much ahead has to wait for its turn.
        Poll::Pending
    }
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the request body is malformed")
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.lock().poll_read(cx, out)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.unsent.len() + data.len() > MAX_UNSENT {
            ready!(state.poll_drain(cx))?;
        }
        if data.len() > MAX_UNSENT {
            return state.poll_send(cx, |socket, cx, _| socket.poll_write(cx, data));
        }
        state.unsent.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        ready!(state.poll_drain(cx))?;
        state.poll_send(cx, |socket, cx, _| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        ready!(state.poll_drain(cx))?;
        state.socket()?.poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        if self.flush().await.is_err() {
            return;
        }
        let socket = self.0.lock().socket.take();
        if let Some(mut socket) = socket {
            Shutdown::shutdown(&mut *socket).await;
            self.0.lock().socket = Some(socket);
        }
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.0.of_socket(|socket| socket.id()).unwrap_or(-1)
    }
}

// The public port speaks no TLS, so there is nothing to tell of it.
impl Ssl for ClientStream {}
impl Peek for ClientStream {}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        let of = self.0.of_socket(|socket| socket.get_timing_digest());
        of.unwrap_or_default()
    }

    fn get_read_pending_time(&self) -> Duration {
        let of = self.0.of_socket(|socket| socket.get_read_pending_time());
        of.unwrap_or_default()
    }

    fn get_write_pending_time(&self) -> Duration {
        let of = self.0.of_socket(|socket| socket.get_write_pending_time());
        of.unwrap_or_default()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.0.of_socket(|socket| socket.get_proxy_digest())?
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.0.of_socket(|socket| socket.get_socket_digest())?
    }
}
