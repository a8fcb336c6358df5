use std::collections::VecDeque;
use std::task::Waker;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// A stream below, each write of which is a packet.
#[derive(Debug, Default)]
struct Below {
    packets: Vec<Vec<u8>>,
    /// Most bytes that the next writes take; none at all is a buffer that is full, once.
    takes: VecDeque<usize>,
    broken: bool,
    answer: Vec<u8>,
}

impl Below {
    fn all(&self) -> Vec<u8> {
        self.packets.concat()
    }
}

impl AsyncRead for Below {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.answer.is_empty() {
            return Poll::Pending;
        }
        buffer.put_slice(&std::mem::take(&mut self.answer));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Below {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(data)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let mut packet: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.iter().copied())
            .collect();
        match self.takes.pop_front() {
            Some(0) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(most) => packet.truncate(most),
            None => {}
        }
        let taken = packet.len();
        self.packets.push(packet);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Bytes of a long body.
const LONG: usize = 4096;

const HEAD: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: 4\r\n\r\n";

fn socket() -> EngineSocket<Below> {
    EngineSocket::new(Below::default())
}

async fn send(socket: &mut EngineSocket<Below>, piece: &[u8]) {
    socket.write_all(piece).await.unwrap();
    socket.flush().await.unwrap();
}

/// Looks for an answer where there is none yet.
fn looks_in_vain(socket: &mut EngineSocket<Below>) {
    let mut cx = Context::from_waker(Waker::noop());
    let mut bytes = [0; 64];
    let mut buffer = ReadBuf::new(&mut bytes);
    assert!(
        Pin::new(socket)
            .poll_read(&mut cx, &mut buffer)
            .is_pending()
    );
}

#[tokio::test]
async fn a_head_and_its_body_are_one_packet() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    assert_eq!(socket.stream.packets.len(), 0);
    send(&mut socket, b"body").await;
    assert_eq!(socket.stream.packets, [[HEAD, b"body"].concat()]);
    assert_eq!(socket.head.capacity(), 0);
}

#[tokio::test]
async fn so_are_they_where_the_answer_was_looked_for_between() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    looks_in_vain(&mut socket);
    send(&mut socket, b"body").await;
    assert_eq!(socket.stream.packets, [[HEAD, b"body"].concat()]);
}

#[tokio::test]
async fn a_head_whose_body_does_not_come_leaves_by_itself() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    looks_in_vain(&mut socket);
    assert_eq!(socket.stream.packets.len(), 0);
    looks_in_vain(&mut socket);
    assert_eq!(socket.stream.packets, [HEAD]);
    send(&mut socket, b"late").await;
    assert_eq!(socket.stream.packets, [HEAD, b"late"]);
}

#[tokio::test]
async fn what_declares_no_body_leaves_at_once() {
    for piece in [
        "GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST /v1/load HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\nx: content-length: 5\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length",
        "POST / HTTP/1.1\r\ncontent-length: 5\r\n",
        "\u{1}POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n",
        "\r\n\r\n",
        "x",
    ] {
        let mut socket = socket();
        send(&mut socket, piece.as_bytes()).await;
        assert_eq!(socket.stream.packets, [piece.as_bytes()]);
    }
}

#[tokio::test]
async fn a_body_is_declared_by_a_length_or_by_chunks() {
    for field in [
        "Content-Length: 12",
        "content-length: 04",
        "Transfer-Encoding: chunked",
        "a: b\r\ntransfer-encoding: chunked\r\nc: d",
    ] {
        let head = format!("PUT / HTTP/1.1\r\n{field}\r\n\r\n");
        let mut socket = socket();
        send(&mut socket, head.as_bytes()).await;
        assert_eq!(socket.stream.packets.len(), 0, "{field}");
    }
}

#[tokio::test]
async fn what_looks_like_a_head_within_a_body_leaves_at_once() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    for _ in 0..2 {
        send(&mut socket, HEAD).await;
    }
    assert_eq!(socket.stream.all(), HEAD.repeat(3));
}

#[tokio::test]
async fn a_body_of_many_pieces_leaves_piece_by_piece() {
    let mut socket = socket();
    for piece in [HEAD, b"one", b"two", b"three"] {
        send(&mut socket, piece).await;
    }
    let sent = [&[HEAD, b"one"].concat()[..], b"two", b"three"];
    assert_eq!(socket.stream.packets, sent);
}

#[tokio::test]
async fn each_request_of_a_connection_is_one_packet() {
    let mut socket = socket();
    for _ in 0..3 {
        send(&mut socket, HEAD).await;
        looks_in_vain(&mut socket);
        send(&mut socket, b"body").await;
        looks_in_vain(&mut socket);
        socket.stream.answer = b"answer".to_vec();
        let mut answer = [0; 6];
        socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
    }
    assert_eq!(socket.stream.packets, vec![[HEAD, b"body"].concat(); 3]);
}

#[tokio::test]
async fn a_long_body_is_sent_from_where_it_is() {
    let body = vec![b'x'; 3 * LONG];
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    send(&mut socket, &body).await;
    assert_eq!(socket.stream.packets, [[HEAD, &body].concat()]);
}

#[tokio::test]
async fn nothing_is_lost_or_sent_twice_where_writes_are_short() {
    for body in [10, LONG, 2 * LONG] {
        let body: Vec<u8> = (0..body)
            .map(|at| u8::try_from(at % 251).unwrap())
            .collect();
        for first in [0, 1, HEAD.len() - 1, HEAD.len(), HEAD.len() + 1] {
            for second in [0, 1, 7, LONG] {
                let mut socket = socket();
                socket.stream.takes = [first, second, first].into();
                send(&mut socket, HEAD).await;
                send(&mut socket, &body).await;
                send(&mut socket, b"end").await;
                let sent = socket.stream.all();
                assert!(sent == [HEAD, &body, b"end"].concat(), "{first}, {second}");
            }
        }
    }
}

#[tokio::test]
async fn a_head_leaves_in_pieces_while_the_answer_is_waited_for() {
    let mut socket = socket();
    socket.stream.takes = [3, 0, 5].into();
    send(&mut socket, HEAD).await;
    for _ in 0..3 {
        looks_in_vain(&mut socket);
    }
    assert_eq!(socket.stream.all(), HEAD);
}

#[tokio::test]
async fn what_an_engine_said_before_it_closed_is_heard() {
    let mut socket = socket();
    socket.stream.broken = true;
    socket.stream.answer = b"HTTP/1.1 408".to_vec();
    send(&mut socket, HEAD).await;
    looks_in_vain(&mut socket);
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}

#[tokio::test]
async fn a_body_that_cannot_leave_is_told_of() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    socket.stream.broken = true;
    let error = socket.write_all(b"body").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}

#[tokio::test]
async fn what_was_put_off_leaves_before_the_end() {
    let mut socket = socket();
    send(&mut socket, HEAD).await;
    socket.shutdown().await.unwrap();
    assert_eq!(socket.stream.packets, [HEAD]);
}
