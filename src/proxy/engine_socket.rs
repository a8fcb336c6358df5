//! The socket of a connection to an engine: a request's head leaves with its body.
//!
//! Pingora writes a head, flushes it, and then looks for a body to send. That is two packets where
//! one would do, and of all that a small request costs, a packet costs most. So a head that declares
//! a body is kept until the body is written, or until it is clear that none will be: no body goes to
//! an engine before it is whole, so it is written in the same turn of the request's task.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    TimingDigest, UniqueID, UniqueIDType,
};
use smallvec::SmallVec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection to an engine, as Pingora reads and writes it. `S` is the stream below.
#[derive(Debug)]
pub(super) struct EngineSocket<S = Stream> {
    stream: S,
    turn: Turn,
    /// The head that is kept.
    head: Vec<u8>,
}

/// What is to come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Turn {
    /// A head: nothing was written since the engine spoke last.
    Head,
    /// The body of the head that is kept.
    Body,
    /// It was asked for an answer before there was a body, as may be in the turn that brings it.
    BodyNow,
    /// Anything, which leaves at once.
    Any,
}

impl<S: AsyncRead + AsyncWrite + Unpin> EngineSocket<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            turn: Turn::Head,
            head: Vec::new(),
        }
    }

    /// Sends the head that is kept.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.turn = Turn::Any;
        while !self.head.is_empty() {
            let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.head))?;
            self.has_left(sent)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes note that this many bytes have left, and gives the number of those that were not the
    /// head's.
    fn has_left(&mut self, count: usize) -> io::Result<usize> {
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if let Some(others) = count.checked_sub(self.head.len()) {
            // Most of a connection's time passes in waiting, for which no memory is kept.
            self.head = Vec::new();
            return Ok(others);
        }
        self.head.drain(..count);
        Ok(0)
    }
}

/// Whether this is the head of a request that has a body.
fn declares_body(head: &[u8]) -> bool {
    let begins = head.first().is_some_and(u8::is_ascii_uppercase);
    if !begins || !head.ends_with(b"\r\n\r\n") {
        return false;
    }
    let is = |line: &[u8], name: &[u8]| {
        let start = line.get(..name.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let mut lines = memchr::memchr_iter(b'\n', head).filter_map(|end| head.get(end + 1..));
    lines.any(|line| match line.first() {
        Some(b'c' | b'C') => is(line, b"content-length: ") && !is(line, b"content-length: 0\r"),
        Some(b't' | b'T') => is(line, b"transfer-encoding: "),
        _ => false,
    })
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for EngineSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.turn == Turn::Body {
            self.turn = Turn::BodyNow;
            return Poll::Pending;
        }
        if !self.head.is_empty()
            && let Poll::Ready(Err(error)) = self.poll_head(cx)
        {
            // The engine may have said why before it closed, and then that is the answer.
            log::debug!("a request did not leave: {error}");
            self.head = Vec::new();
        }
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.turn = Turn::Head;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for EngineSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.turn == Turn::Head && declares_body(data) {
            this.turn = Turn::Body;
            this.head.extend_from_slice(data);
            return Poll::Ready(Ok(data.len()));
        }
        if this.head.is_empty() {
            this.turn = Turn::Any;
            return Pin::new(&mut this.stream).poll_write(cx, data);
        }
        Pin::new(this).poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.turn = Turn::Any;
        while !this.head.is_empty() {
            let sent = {
                let mut all = SmallVec::<[IoSlice<'_>; 4]>::new();
                all.push(IoSlice::new(&this.head));
                all.extend_from_slice(pieces);
                ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, &all))?
            };
            let others = this.has_left(sent)?;
            if others > 0 {
                return Poll::Ready(Ok(others));
            }
        }
        Pin::new(&mut this.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.turn == Turn::Body {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_head(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_head(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for EngineSocket {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut self.stream).await;
    }
}

#[async_trait]
impl Peek for EngineSocket {
    async fn try_peek(&mut self, start: &mut [u8]) -> io::Result<bool> {
        self.stream.try_peek(start).await
    }
}

impl UniqueID for EngineSocket {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

// Engines are spoken to without TLS.
impl Ssl for EngineSocket {}

impl GetTimingDigest for EngineSocket {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream.get_write_pending_time()
    }
}

impl GetProxyDigest for EngineSocket {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for EngineSocket {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

#[cfg(test)]
mod tests;
