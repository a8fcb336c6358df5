//! When what was written to a connection has left.
//!
//! Whoever writes to a stream of HTTP/2 hands frames to the connection's task, and is not told when
//! it has sent them. A reset overtakes those it has not. So the connection's socket tells when the
//! task has sent everything it knew of, which is what a flush means.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::{
    GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
    TimingDigest, UniqueID, UniqueIDType,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

/// Tells of the flushes of one connection.
#[derive(Clone, Debug)]
pub(super) struct Flushes(Arc<watch::Sender<u64>>);

impl Flushes {
    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        *self.0.borrow()
    }

    /// Waits until there have been more than `seen`.
    pub(super) async fn more_than(&self, seen: u64) {
        let mut flushes = self.0.subscribe();
        // Its sender is ours, so it ends by a flush only.
        let _ = flushes.wait_for(|count| *count > seen).await;
    }
}

/// A socket that counts its flushes.
#[derive(Debug)]
pub(super) struct Flushed {
    socket: Stream,
    flushes: Flushes,
}

impl Flushed {
    pub(super) fn new(socket: Stream) -> Self {
        let flushes = Flushes(Arc::new(watch::Sender::new(0)));
        Self { socket, flushes }
    }

    /// What tells of the flushes, for as long as anybody asks.
    pub(super) fn flushes(&self) -> Flushes {
        self.flushes.clone()
    }
}

impl AsyncRead for Flushed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, out)
    }
}

impl AsyncWrite for Flushed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.flushes.0.send_modify(|count| *count += 1);
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Flushed {
    async fn shutdown(&mut self) {
        Shutdown::shutdown(&mut *self.socket).await;
    }
}

#[async_trait]
impl Peek for Flushed {
    async fn try_peek(&mut self, start: &mut [u8]) -> io::Result<bool> {
        self.socket.try_peek(start).await
    }
}

impl UniqueID for Flushed {
    fn id(&self) -> UniqueIDType {
        self.socket.id()
    }
}

// The public port speaks no TLS, so there is nothing to tell of it.
impl Ssl for Flushed {}

impl GetTimingDigest for Flushed {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.socket.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.socket.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.socket.get_write_pending_time()
    }
}

impl GetProxyDigest for Flushed {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.socket.get_proxy_digest()
    }
}

impl GetSocketDigest for Flushed {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.socket.get_socket_digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    #[tokio::test]
    async fn a_flush_is_told_once_and_not_a_write() {
        let (ours, _client) = tokio::io::duplex(64);
        let mut socket = Flushed::new(Box::new(ours));
        let flushes = socket.flushes();
        socket.write_all(b"abc").await.unwrap();
        assert_eq!(flushes.count(), 0);
        let told = tokio::spawn({
            let flushes = flushes.clone();
            async move { flushes.more_than(0).await }
        });
        socket.flush().await.unwrap();
        told.await.unwrap();
        assert_eq!(flushes.count(), 1);
    }
}
