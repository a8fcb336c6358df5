//! Collects a body of any size.
//!
//! Allocators keep memory that was freed for what may come, which after a few large prompts is
//! hundreds of megabytes. So a large body gets memory of its own from the system, which has it back
//! as soon as the body is let go.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{BufMut as _, Bytes, BytesMut};
use memmap2::MmapMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

/// The smallest body with memory of its own, in bytes: filling that much takes far longer than
/// asking the system for it.
const LARGE: usize = 1 << 20;

/// The least that is read at a time where the room for all of it could not be had at once.
const LEAST_READ: usize = 64 * 1024;

/// Bytes that are written one after the other, and then become one piece.
#[derive(Debug)]
pub struct BodyBuffer(Memory);

#[derive(Debug)]
enum Memory {
    Heap(BytesMut),
    /// So many bytes are written.
    Own(MmapMut, usize),
}

impl BodyBuffer {
    /// An empty buffer with room for this many bytes; it grows beyond them where it must. Room that
    /// is never filled costs no memory where it is large.
    pub fn with_capacity(capacity: usize) -> Self {
        let own = (capacity >= LARGE).then(|| MmapMut::map_anon(capacity));
        Self(match own {
            Some(Ok(map)) => Memory::Own(map, 0),
            // Where the system has no room for all of it, there may be some for what really comes.
            Some(Err(_)) => Memory::Heap(BytesMut::new()),
            None => Memory::Heap(BytesMut::with_capacity(capacity)),
        })
    }

    /// The bytes that have been written.
    pub fn len(&self) -> usize {
        match &self.0 {
            Memory::Heap(bytes) => bytes.len(),
            Memory::Own(_, length) => *length,
        }
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many bytes fit without a move.
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Heap(bytes) => bytes.capacity(),
            Memory::Own(map, _) => map.len(),
        }
    }

    /// Writes `data` behind what there is.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        let needed = self.len() + data.len();
        if needed > self.capacity() {
            let mut larger = Self::with_capacity(needed.max(2 * self.capacity()));
            larger.push(self.as_ref());
            *self = larger;
        }
        self.push(data);
    }

    /// Writes what fits.
    fn push(&mut self, data: &[u8]) {
        match &mut self.0 {
            Memory::Heap(bytes) => bytes.extend_from_slice(data),
            Memory::Own(map, length) => {
                if let Some(room) = map.get_mut(*length..*length + data.len()) {
                    room.copy_from_slice(data);
                    *length += data.len();
                }
            }
        }
    }

    /// Reads what has come, at most `most` bytes, straight to its place, and returns how much it
    /// was; nothing is the end of `reader`.
    pub fn poll_fill<R: AsyncRead + Unpin>(
        &mut self,
        reader: &mut R,
        cx: &mut Context<'_>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        if self.len() == self.capacity() {
            let room = most.clamp(1, LEAST_READ.max(self.len()));
            let mut larger = Self::with_capacity(self.len() + room);
            larger.push(self.as_ref());
            *self = larger;
        }
        match &mut self.0 {
            Memory::Heap(bytes) => {
                let mut room = bytes.limit(most);
                pin!(reader.read_buf(&mut room)).poll(cx)
            }
            Memory::Own(map, length) => {
                let end = map.len().min(length.saturating_add(most));
                let room = map.get_mut(*length..end).unwrap_or_default();
                let mut room = ReadBuf::new(room);
                ready!(Pin::new(reader).poll_read(cx, &mut room))?;
                *length += room.filled().len();
                Poll::Ready(Ok(room.filled().len()))
            }
        }
    }

    /// All of it in one piece, uncopied.
    pub fn freeze(self) -> Bytes {
        match self.0 {
            Memory::Heap(bytes) => bytes.freeze(),
            Memory::Own(map, length) => {
                let mut bytes = Bytes::from_owner(map);
                bytes.truncate(length);
                bytes
            }
        }
    }
}

impl Default for BodyBuffer {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl AsRef<[u8]> for BodyBuffer {
    fn as_ref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap(bytes) => bytes,
            Memory::Own(map, length) => map.get(..*length).unwrap_or_default(),
        }
    }
}

impl io::Write for BodyBuffer {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_out_however_large_it_is() {
        for capacity in [0, 1, 5000, LARGE - 1, LARGE, 3 * LARGE] {
            for piece in [1, 1000, LARGE / 2 + 1, LARGE, 2 * LARGE] {
                let pieces = if piece == 1 { 10 } else { 4 };
                let mut buffer = BodyBuffer::with_capacity(capacity);
                assert!(buffer.is_empty());
                let mut expected = Vec::new();
                for n in 0..pieces {
                    let data = vec![n; piece];
                    buffer.extend_from_slice(&data);
                    expected.extend(data);
                    assert_eq!(buffer.len(), expected.len());
                }
                assert!(buffer.as_ref() == expected, "{capacity}, {piece}");
                assert!(buffer.freeze() == expected, "{capacity}, {piece}");
            }
        }
    }

    #[tokio::test]
    async fn what_is_read_goes_to_its_place_and_no_further() {
        for (capacity, most) in [
            (0, 10),
            (100, 10),
            (100, 100_000),
            (LARGE, LARGE),
            (0, LARGE),
        ] {
            let sent: Vec<u8> = (0..most + 7).map(|n| n.to_le_bytes()[0]).collect();
            let mut reader = sent.as_slice();
            let mut buffer = BodyBuffer::with_capacity(capacity);
            while buffer.len() < most {
                let left = most - buffer.len();
                let read = std::future::poll_fn(|cx| buffer.poll_fill(&mut reader, cx, left));
                assert!(read.await.unwrap() > 0);
            }
            assert_eq!(reader, sent.get(most..).unwrap());
            assert!(sent.starts_with(&buffer.freeze()), "{capacity}, {most}");
        }
    }

    #[tokio::test]
    async fn the_end_of_the_reader_is_nothing_read() {
        for capacity in [0, 100, LARGE] {
            let mut buffer = BodyBuffer::with_capacity(capacity);
            let read = std::future::poll_fn(|cx| buffer.poll_fill(&mut &b""[..], cx, 10));
            assert_eq!(read.await.unwrap(), 0);
            assert!(buffer.is_empty());
        }
    }

    /// A reader that has each piece, or error, only after it was asked once in vain.
    struct Fitful {
        pieces: std::collections::VecDeque<io::Result<Vec<u8>>>,
        ready: bool,
    }

    impl Fitful {
        fn new(pieces: impl IntoIterator<Item = io::Result<Vec<u8>>>) -> Self {
            Self {
                pieces: pieces.into_iter().collect(),
                ready: false,
            }
        }
    }

    impl AsyncRead for Fitful {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            out: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.ready = !self.ready;
            if self.ready {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let Some(piece) = self.pieces.pop_front() else {
                return Poll::Ready(Ok(()));
            };
            let piece = piece?;
            let (now, later) = piece.split_at(piece.len().min(out.remaining()));
            out.put_slice(now);
            if !later.is_empty() {
                self.pieces.push_front(Ok(later.to_vec()));
            }
            Poll::Ready(Ok(()))
        }
    }

    async fn fill(buffer: &mut BodyBuffer, reader: &mut Fitful, most: usize) -> io::Result<usize> {
        std::future::poll_fn(|cx| buffer.poll_fill(reader, cx, most)).await
    }

    fn numbered(size: usize) -> Vec<u8> {
        (0..size).map(|n| (n % 251).to_le_bytes()[0]).collect()
    }

    #[tokio::test]
    async fn no_byte_is_lost_or_said_twice_however_a_body_comes() {
        let whole = numbered(2 * LARGE + 5);
        for capacity in [0, 100, 70_000, LARGE, 2 * LARGE, whole.len(), 3 * LARGE] {
            for piece in [9999, LEAST_READ, LARGE + 1] {
                let pieces = whole.chunks(piece).map(|piece| Ok(piece.to_vec()));
                let mut reader = Fitful::new(pieces);
                let mut buffer = BodyBuffer::with_capacity(capacity);
                while buffer.len() < whole.len() {
                    let before = buffer.len();
                    let left = whole.len() - before;
                    let read = fill(&mut buffer, &mut reader, left).await.unwrap();
                    assert!(read > 0 && buffer.len() == before + read);
                }
                assert_eq!(fill(&mut buffer, &mut reader, 1).await.unwrap(), 0);
                assert!(buffer.freeze() == whole, "{capacity}, {piece}");
            }
        }
    }

    #[tokio::test]
    async fn an_error_takes_nothing_of_what_came_before() {
        for capacity in [0, 3, 100, LARGE] {
            let broken = io::Error::from(io::ErrorKind::ConnectionReset);
            let pieces = [Ok(b"one".to_vec()), Err(broken), Ok(b"two".to_vec())];
            let mut reader = Fitful::new(pieces);
            let mut buffer = BodyBuffer::with_capacity(capacity);
            assert_eq!(fill(&mut buffer, &mut reader, 10).await.unwrap(), 3);
            let error = fill(&mut buffer, &mut reader, 10).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            assert_eq!(buffer.as_ref(), b"one");
            assert_eq!(fill(&mut buffer, &mut reader, 10).await.unwrap(), 3);
            assert_eq!(buffer.freeze(), "onetwo");
        }
    }

    #[tokio::test]
    async fn a_buffer_that_is_filled_to_its_last_byte_is_not_moved_before_more_comes() {
        for capacity in [100, LARGE] {
            let whole = numbered(capacity + 10);
            let mut reader = Fitful::new([Ok(whole.clone())]);
            let mut buffer = BodyBuffer::with_capacity(capacity);
            assert_eq!(buffer.capacity(), capacity);
            let place = buffer.as_ref().as_ptr();
            while buffer.len() < capacity {
                fill(&mut buffer, &mut reader, usize::MAX).await.unwrap();
            }
            assert_eq!((buffer.len(), buffer.as_ref().as_ptr()), (capacity, place));
            assert!(fill(&mut buffer, &mut reader, 4).await.unwrap() <= 4);
            while buffer.len() < whole.len() {
                assert!(fill(&mut buffer, &mut reader, 10).await.unwrap() > 0);
            }
            assert!(buffer.freeze() == whole, "{capacity}");
        }
    }

    #[test]
    fn more_than_the_system_has_may_be_promised_as_long_as_it_does_not_come() {
        let mut buffer = BodyBuffer::with_capacity(usize::MAX / 4);
        buffer.extend_from_slice(b"little");
        assert_eq!(buffer.freeze(), "little");
    }

    #[test]
    fn a_buffer_with_room_for_all_is_never_moved() {
        for capacity in [100, LARGE, 2 * LARGE + 1] {
            let mut buffer = BodyBuffer::with_capacity(capacity);
            buffer.extend_from_slice(b"x");
            let place = buffer.as_ref().as_ptr();
            buffer.extend_from_slice(&vec![b'y'; capacity - 1]);
            assert_eq!(buffer.as_ref().as_ptr(), place);
            assert_eq!(buffer.freeze().as_ptr(), place);
        }
    }
}
