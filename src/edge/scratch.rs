//! Reads from a client's connection without a buffer of its own.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use pingora_core::protocols::Stream;
use tokio::io::{AsyncRead as _, ReadBuf};

/// As much as most requests are together with their bodies.
const SIZE: usize = 16 * 1024;

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SIZE].into());
}

/// Reads what has come, up to 16 KiB, to the end of `buf`, and returns how much it was; nothing is
/// the end of the stream.
///
/// It takes one call of the system, however little `buf` has room for, and a connection that waits
/// keeps no memory for what may come.
pub(super) fn poll_append(
    stream: Pin<&mut Stream>,
    cx: &mut Context<'_>,
    buf: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut piece = ReadBuf::new(scratch);
        ready!(stream.poll_read(cx, &mut piece))?;
        buf.extend_from_slice(piece.filled());
        Poll::Ready(Ok(piece.filled().len()))
    })
}

/// The same as a future. It may be dropped at any time, and nothing is lost.
pub(super) async fn append(stream: &mut Stream, buf: &mut BytesMut) -> io::Result<usize> {
    std::future::poll_fn(|cx| poll_append(Pin::new(stream), cx, buf)).await
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn all_that_has_come_is_read_at_once_and_kept_in_order() {
        let (mut client, ours) = tokio::io::duplex(2 * SIZE);
        let mut ours: Stream = Box::new(ours);
        let sent: Vec<u8> = (0..SIZE + 7).map(|n| n.to_le_bytes()[0]).collect();
        client.write_all(&sent).await.unwrap();
        let mut buf = BytesMut::from(&b"before"[..]);
        assert_eq!(append(&mut ours, &mut buf).await.unwrap(), SIZE);
        assert_eq!(append(&mut ours, &mut buf).await.unwrap(), 7);
        assert_eq!(buf, [b"before", &sent[..]].concat());
        drop(client);
        assert_eq!(append(&mut ours, &mut buf).await.unwrap(), 0);
    }
}
