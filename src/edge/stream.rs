//! The client's socket, as far as the request at hand may read from it.
//!
//! Pingora's session reads what has come, finds the end of a body by rules that are laxer than
//! ours, and keeps what is behind it. This stream gives it the bytes of one request and no more:
//! what the client sends behind them waits here. So a body has the one reading that its head and
//! [`Chunks`] allow, nothing behind it is ever taken for a part of it, and a client that leaves is
//! noticed even behind requests it has sent ahead.
//!
//! In the other direction it gathers what is written in pieces: a head and its body, or the size,
//! the data and the end of a chunk, leave in one packet.

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

/// How far the stream may be read; shared by the stream and those who know the requests on it.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    mode: Mode,
    /// Read from the socket, and not given out.
    ahead: BytesMut,
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
    /// A request begins: its head has been read, and `rest` behind it.
    pub(super) fn begin(&self, framing: BodyFraming, rest: BytesMut) {
        let mut state = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ClientStream {
    inner: Stream,
    gate: Arc<Gate>,
    unsent: BytesMut,
}

impl ClientStream {
    pub(super) fn new(inner: Stream, gate: Arc<Gate>) -> Self {
        Self {
            inner,
            gate,
            unsent: BytesMut::new(),
        }
    }

    /// Sends what has been gathered.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.unsent))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(sent);
        }
        // A stream that waits for its next event keeps no memory for it.
        self.unsent = BytesMut::new();
        Poll::Ready(Ok(()))
    }
}

impl State {
    /// Reads into `out` what the mode allows, first from what was read ahead.
    fn poll_read(
        &mut self,
        inner: Pin<&mut Stream>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = match &self.mode {
            Mode::Open | Mode::Chunked(_) => usize::MAX,
            Mode::Length(left) => usize::try_from(*left).unwrap_or(usize::MAX),
            Mode::Ended => return self.poll_ahead(inner, cx),
            Mode::Broken => return Poll::Ready(Err(malformed())),
        };
        let before = out.filled().len();
        if self.ahead.is_empty() && most >= out.remaining() {
            ready!(inner.poll_read(cx, out))?;
        } else if self.ahead.is_empty() {
            let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
            ready!(inner.poll_read(cx, &mut part))?;
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

    /// Keeps what comes for the next request, and gives out nothing but the end of the stream.
    fn poll_ahead(
        &mut self,
        mut inner: Pin<&mut Stream>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_AHEAD {
            if ready!(poll_append(inner.as_mut(), cx, &mut self.ahead))? == 0 {
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
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Whoever reads has written all there is for now.
        if !this.unsent.is_empty()
            && let Poll::Ready(Err(error)) = this.poll_drain(cx)
        {
            return Poll::Ready(Err(error));
        }
        this.gate
            .lock()
            .poll_read(Pin::new(&mut this.inner), cx, out)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.unsent.len() + data.len() > MAX_UNSENT {
            ready!(self.poll_drain(cx))?;
        }
        if data.len() > MAX_UNSENT {
            return Pin::new(&mut self.inner).poll_write(cx, data);
        }
        self.unsent.extend_from_slice(data);
        Poll::Ready(Ok(data.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        if self.flush().await.is_ok() {
            Shutdown::shutdown(&mut *self.inner).await;
        }
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

// The public port speaks no TLS, so there is nothing to tell of it.
impl Ssl for ClientStream {}
impl Peek for ClientStream {}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.inner.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.inner.get_write_pending_time()
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}
