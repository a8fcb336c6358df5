//! The socket of a client, with what was read ahead of its turn and what was written in pieces.
//!
//! A head and its body, or the size, the data and the end of a chunk, leave in one packet. A client
//! that takes nothing of it for too long is given up.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, BytesMut};
use pingora_core::protocols::{Digest, Stream};
use tokio::io::AsyncWrite;

use crate::body_buffer::BodyBuffer;
use crate::edge::scratch::poll_append;
use crate::edge::standstill::Standstill;

/// How much of what a client sends ahead is read before its request's turn.
const MAX_AHEAD: usize = 64 * 1024;

/// How much that is written in pieces is gathered.
const MAX_UNSENT: usize = 16 * 1024;

/// What a chunk takes beside its data, and the last one behind it.
const CHUNK_OVERHEAD: usize = 32;

const HEX: [u8; 16] = *b"0123456789ABCDEF";

/// See the module's text.
pub(super) struct Wire {
    pub(super) socket: Stream,
    pub(super) digest: Box<Digest>,
    /// Read from the socket, and not given out.
    pub(super) ahead: BytesMut,
    /// Written, and not sent.
    pub(super) unsent: BytesMut,
    standstill: Standstill,
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire")
            .field("socket", &self.socket)
            .field("ahead", &self.ahead.len())
            .field("unsent", &self.unsent.len())
            .finish_non_exhaustive()
    }
}

impl Wire {
    pub(super) fn new(socket: Stream, ahead: BytesMut) -> Self {
        let digest = Box::new(Digest {
            ssl_digest: socket.get_ssl_digest(),
            timing_digest: socket.get_timing_digest(),
            proxy_digest: socket.get_proxy_digest(),
            socket_digest: socket.get_socket_digest(),
        });
        let standstill = Standstill::new(None, digest.socket_digest.clone());
        Self {
            socket,
            digest,
            ahead,
            unsent: BytesMut::new(),
            standstill,
        }
    }

    /// From now on the client is given up once it has taken nothing of what waits for it for
    /// `patience`.
    pub(super) fn set_patience(&mut self, patience: Option<Duration>) {
        self.standstill.set_limit(patience);
    }

    /// Takes `length` bytes of what was read ahead; no memory stays behind for what is not there.
    pub(super) fn take(&mut self, length: usize) -> BytesMut {
        if length >= self.ahead.len() {
            return std::mem::take(&mut self.ahead);
        }
        self.ahead.split_to(length)
    }

    /// Reads what has come behind what was read ahead, and returns how much it was; nothing is the
    /// end of the stream. It may be dropped at any time, and nothing is lost.
    pub(super) async fn read_ahead(&mut self) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            self.drain_before_read(cx)?;
            poll_append(Pin::new(&mut self.socket), cx, &mut self.ahead)
        })
        .await
    }

    /// Reads what has come, at most `most` bytes, straight into `body`, and returns how much it was;
    /// nothing is the end of the stream. It may be dropped at any time, and nothing is lost.
    pub(super) async fn fill(&mut self, body: &mut BodyBuffer, most: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| {
            self.drain_before_read(cx)?;
            body.poll_fill(&mut self.socket, cx, most)
        })
        .await
    }

    /// Waits for the end of the stream, and keeps what comes before it.
    pub(super) async fn closed(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            self.drain_before_read(cx)?;
            while self.ahead.len() < MAX_AHEAD {
                let socket = Pin::new(&mut self.socket);
                if ready!(poll_append(socket, cx, &mut self.ahead))? == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
            // Whoever sends this much ahead has to wait for its turn.
            Poll::Pending
        })
        .await
    }

    /// Makes room for so many bytes that are going to be written, as far as they are gathered.
    pub(super) fn make_room(&mut self, bytes: usize) {
        self.unsent
            .reserve((bytes + CHUNK_OVERHEAD).min(MAX_UNSENT));
    }

    /// Writes the line in front of a chunk, to be sent with it.
    pub(super) fn put_chunk_size(&mut self, bytes: usize) {
        // By hand: this is done for every event of a stream.
        let digits = (usize::BITS - bytes.leading_zeros()).div_ceil(4).max(1);
        for place in (0..digits).rev() {
            let digit = bytes >> (4 * place) & 0xf;
            self.unsent
                .put_u8(HEX.get(digit).copied().unwrap_or_default());
        }
        self.unsent.put_slice(b"\r\n");
    }

    /// Sends `data` behind what was written, now or with what follows.
    pub(super) async fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        if self.unsent.len() + data.len() > MAX_UNSENT {
            std::future::poll_fn(|cx| self.poll_drain(cx)).await?;
            while data.len() > MAX_UNSENT {
                let step = |cx: &mut Context<'_>| self.poll_send(cx, Some(data));
                let sent = std::future::poll_fn(step).await?;
                data = data.get(sent..).unwrap_or_default();
            }
        }
        self.unsent.extend_from_slice(data);
        Ok(())
    }

    /// Sends all that was written.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| {
            ready!(self.poll_drain(cx))?;
            let flushed = Pin::new(&mut self.socket).poll_flush(cx);
            self.watch(cx, flushed)
        })
        .await
    }

    /// Sends all that was written, and then the end of the stream.
    pub(super) async fn shutdown(&mut self) {
        if self.flush().await.is_ok() {
            self.socket.shutdown().await;
        }
    }

    /// Sends some of `data`, or else of what has been gathered.
    fn poll_send(&mut self, cx: &mut Context<'_>, data: Option<&[u8]>) -> Poll<io::Result<usize>> {
        let data = data.unwrap_or(&self.unsent);
        let sent = match Pin::new(&mut self.socket).poll_write(cx, data) {
            Poll::Ready(Ok(0)) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            sent => sent,
        };
        self.watch(cx, sent)
    }

    /// Gives the client up that takes nothing for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
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
            let sent = ready!(self.poll_send(cx, None))?;
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
}
