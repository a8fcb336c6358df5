//! The socket of a request with a large body.
//!
//! Pingora writes what it has of a body before it looks for the answer. An engine that has
//! answered already, and reads no further, would hold back its own answer for as long as the body
//! does not fit the buffers between us. On this socket a write that cannot go on fails once there
//! is something to read, and Pingora reads the answer after a failed write.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use pingora_core::protocols::l4::virt::{VirtualSockOpt, VirtualSocket};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How an interim response begins; it asks for the rest of the body, if for anything.
const INTERIM: &[u8] = b"HTTP/1.1 1";

/// A connection to an engine that carries one request.
#[derive(Debug)]
pub(super) struct UploadSocket(TcpStream);

impl UploadSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// Fails once the engine has answered, or closed its side.
    fn poll_answered(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut start = [0; INTERIM.len()];
        let mut start = ReadBuf::new(&mut start);
        match self.0.poll_peek(cx, &mut start) {
            Poll::Ready(Ok(0)) => {}
            Poll::Ready(Ok(_)) if INTERIM.starts_with(start.filled()) => return Poll::Pending,
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        let answered = "the engine has answered before it has read the body";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::BrokenPipe, answered)))
    }
}

impl AsyncRead for UploadSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for UploadSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.0).poll_write(cx, data) {
            Poll::Pending => self.poll_answered(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl VirtualSocket for UploadSocket {
    fn set_socket_option(&self, option: VirtualSockOpt) -> io::Result<()> {
        match option {
            VirtualSockOpt::NoDelay => self.0.set_nodelay(true),
            // Nothing asks for any other.
            _ => Ok(()),
        }
    }
}
