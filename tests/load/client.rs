//! A client that keeps its connection, and reads nothing but what RFC 9112 lets it.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// One client; it connects when it first asks, and again after the server has closed.
pub(crate) struct Client {
    server: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// What `x-vllm-pingora-attempts` says.
    pub(crate) attempts: u64,
    pub(crate) body: String,
}

/// How a body ends.
enum Framing {
    Length(usize),
    Chunks,
}

impl Client {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            stream: None,
        }
    }

    /// Posts a JSON body and reads the answer to its end.
    pub(crate) async fn post(&mut self, path: &str, json: &str) -> Answer {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => BufReader::new(TcpStream::connect(self.server).await.unwrap()),
        };
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{json}",
            self.server,
            json.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let status_line = line(&mut stream).await;
        let status = status_line.split(' ').nth(1).expect(&status_line);
        let (mut framing, mut attempts, mut close) = (None, 0, false);
        loop {
            let field = line(&mut stream).await;
            let Some((name, value)) = field.split_once(": ") else {
                assert_eq!(field, "");
                break;
            };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => framing = Some(Framing::Length(value.parse().unwrap())),
                "transfer-encoding" => framing = Some(Framing::Chunks),
                "x-vllm-pingora-attempts" => attempts = value.parse().unwrap(),
                "connection" => close = value.eq_ignore_ascii_case("close"),
                _ => {}
            }
        }
        let body = match framing.expect("an answer whose end is told") {
            Framing::Length(length) => exactly(&mut stream, length).await,
            Framing::Chunks => chunks(&mut stream).await,
        };
        let answer = Answer {
            status: status.parse().unwrap(),
            attempts,
            body: String::from_utf8(body).unwrap(),
        };
        self.stream = (!close).then_some(stream);
        answer
    }
}

async fn line(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let end = line.strip_suffix("\r\n").expect("a whole line").len();
    line.truncate(end);
    line
}

async fn exactly(stream: &mut BufReader<TcpStream>, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

async fn chunks(stream: &mut BufReader<TcpStream>) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let length = usize::from_str_radix(&line(stream).await, 16).unwrap();
        body.extend(exactly(stream, length).await);
        assert_eq!(line(stream).await, "");
        if length == 0 {
            return body;
        }
    }
}
