//! A client on a raw socket: sends exactly what it is given, sees exactly what comes back.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::patience::{PATIENCE, within};
use super::sse::{self, Event};
use super::wire::{self, BodyReader, BodySum, Close, Framing, Headers, printable};

/// A request, as its bytes will be.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    target: String,
    headers: Headers,
    body: Bytes,
    chunks: Option<Vec<usize>>,
}

/// The standard non-streaming chat completion, with an X-Case of its own.
pub fn req_n() -> Request {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    post("/v1/chat/completions").body(body)
}

/// The standard streaming chat completion, with an X-Case of its own.
pub fn req_s() -> Request {
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}"#;
    post("/v1/chat/completions").body(body)
}

/// A POST with the standard headers, an X-Case of its own, and no body yet.
pub fn post(target: &str) -> Request {
    Request::new("POST", target).set("Content-Type", "application/json")
}

impl Request {
    /// A request with the standard headers but the content type.
    pub fn new(method: &str, target: &str) -> Self {
        static CASES: AtomicU64 = AtomicU64::new(1);
        let case = CASES.fetch_add(1, Ordering::Relaxed);
        let (method, target) = (method.to_owned(), target.to_owned());
        let headers = Headers::default();
        Self {
            method,
            target,
            headers,
            body: Bytes::new(),
            chunks: None,
        }
        .set("Host", "edge.test")
        .set("Authorization", "Bearer client-key")
        .set("X-Case", &format!("case-{case}"))
    }

    /// Adds a header line.
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push(name, value.as_ref());
        self
    }

    /// Replaces all lines of this name by one, at the end.
    pub fn set(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = Bytes::copy_from_slice(body.as_ref());
        self
    }

    /// Sends the body in chunks of these sizes, over and over, instead of with a Content-Length.
    pub fn chunked(mut self, sizes: impl Into<Vec<usize>>) -> Self {
        let sizes = sizes.into();
        assert!(
            !sizes.is_empty() && !sizes.contains(&0),
            "chunk sizes {sizes:?}"
        );
        self.chunks = Some(sizes);
        self
    }

    /// The X-Case it carries.
    pub fn case(&self) -> &str {
        self.headers
            .get("x-case")
            .expect("a request with an X-Case")
    }

    pub fn method(&self) -> &str {
        &self.method
    }

    /// The body before any chunking.
    pub fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    /// The head as it is sent. The line that frames the body comes last, unless one was given.
    pub fn head_bytes(&self) -> Vec<u8> {
        let mut headers = self.headers.clone();
        let framed = headers.has("content-length") || headers.has("transfer-encoding");
        if self.chunks.is_some() && !framed {
            headers.push("Transfer-Encoding", b"chunked");
        } else if !framed && (!self.body.is_empty() || self.method == "POST") {
            headers.push("Content-Length", self.body.len().to_string().as_bytes());
        }
        let mut wire = format!("{} {} HTTP/1.1\r\n", self.method, self.target).into_bytes();
        headers.write_to(&mut wire);
        wire.extend_from_slice(b"\r\n");
        wire
    }

    /// The body as it is sent.
    pub fn framed_body(&self) -> Vec<u8> {
        let Some(sizes) = &self.chunks else {
            return self.body.to_vec();
        };
        let mut wire = Vec::with_capacity(self.body.len() + self.body.len() / 8);
        let mut rest = &self.body[..];
        for &size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
            rest = after;
        }
        wire.extend_from_slice(b"0\r\n\r\n");
        wire
    }

    /// Head and body as they are sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut wire = self.head_bytes();
        wire.extend(self.framed_body());
        wire
    }
}

/// An informational response that came before the final one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interim {
    pub status: u16,
    pub headers: Headers,
}

/// A response, or what came of it.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    pub reason: String,
    pub version: String,
    pub headers: Headers,
    pub informational: Vec<Interim>,
    /// The decoded body; empty if the client forgets bodies.
    pub body: Vec<u8>,
    pub framing: Framing,
    pub chunk_sizes: Vec<u64>,
    pub trailers: Headers,
    /// Whether the body came to its proper end (the terminator, the announced length). A body
    /// that ends with the connection is complete if the connection ended in good order.
    pub complete: bool,
    /// How the connection ended, if it ended before or as the end of the body.
    pub cut: Option<Close>,
    /// Every byte from the first of the head on, informational responses included; the head only
    /// if the client forgets bodies.
    pub raw: Vec<u8>,
    pub head_at: Instant,
    /// The decoded body as it arrived, one entry for each read of the socket.
    pub arrivals: Vec<(Instant, Bytes)>,
    /// When the end of the body, or the cut, was seen.
    pub ended_at: Option<Instant>,
    /// When the client began to send the request, if sent by [`Client::ask`].
    pub asked_at: Option<Instant>,
    sum: BodySum,
    reader: BodyReader,
}

impl Response {
    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e} in the body {:?}", printable(&self.body)))
    }

    pub fn body_len(&self) -> u64 {
        self.sum.len()
    }

    /// Equals [`wire::body_hash`] of the body.
    pub fn body_hash(&self) -> u64 {
        self.sum.hash()
    }

    /// The complete server-sent events so far, with the time each arrived.
    pub fn events(&self) -> Vec<Event> {
        sse::events(&self.arrivals)
    }

    /// From the request to the head of the response.
    pub fn waited(&self) -> Duration {
        self.head_at - self.asked_at.expect("a response to `Client::ask`")
    }

    /// How many attempts the router says it made.
    #[track_caller]
    pub fn attempts(&self) -> usize {
        let header = self.headers.get("x-vllm-pingora-attempts");
        header.expect("the attempts are told").parse().unwrap()
    }

    fn is_over(&self) -> bool {
        self.ended_at.is_some()
    }

    fn end(&mut self, cut: Option<Close>) {
        self.complete = match cut {
            None => true,
            Some(Close::Fin) => self.reader.may_end_here(),
            Some(Close::Reset) => false,
        };
        self.cut = cut;
        self.ended_at = Some(Instant::now());
        self.chunk_sizes.clone_from(&self.reader.chunk_sizes);
        self.trailers.clone_from(&self.reader.trailers);
    }
}

/// The connection ended before the whole head of a response had come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoResponse {
    pub close: Close,
    /// What came of the head.
    pub partial: Vec<u8>,
}

/// One connection to a proxy or engine.
pub struct Client {
    stream: TcpStream,
    buffer: BytesMut,
    patience: Duration,
    forget: bool,
    /// The methods of the requests sent whose responses are not read yet.
    asked: std::collections::VecDeque<String>,
}

impl Client {
    /// Connects; panics if refused.
    pub async fn connect(addr: SocketAddr) -> Self {
        Self::try_connect(addr)
            .await
            .unwrap_or_else(|e| panic!("connecting to {addr}: {e}"))
    }

    pub async fn try_connect(addr: SocketAddr) -> io::Result<Self> {
        let complaint = move || format!("connecting to {addr}");
        let stream = within(PATIENCE, complaint, TcpStream::connect(addr)).await?;
        stream.set_nodelay(true)?;
        let (buffer, asked) = Default::default();
        Ok(Self {
            stream,
            buffer,
            patience: PATIENCE,
            forget: false,
            asked,
        })
    }

    /// How long each read and write may take, on the real clock, before it panics.
    pub fn patient(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Keeps only length and hash of the bodies read.
    pub fn forgetting_bodies(mut self) -> Self {
        self.forget = true;
        self
    }

    pub fn local_addr(&self) -> SocketAddr {
        self.stream.local_addr().unwrap()
    }

    // Sending

    /// Sends these bytes; panics if the connection is gone.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes)
            .await
            .unwrap_or_else(|e| panic!("the client could not send: {e}"));
    }

    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let bytes = bytes.as_ref();
        let complaint = || format!("the client could not send {:?}", printable(bytes));
        within(self.patience, complaint, self.stream.write_all(bytes)).await
    }

    /// Sends these bytes in pieces of this size, waiting before each but the first.
    pub async fn send_slowly(&mut self, bytes: impl AsRef<[u8]>, piece: usize, gap: Duration) {
        for (i, piece) in bytes.as_ref().chunks(piece).enumerate() {
            if i > 0 {
                sleep(gap).await;
            }
            self.send(piece).await;
        }
    }

    /// Sends a request whole. Its response is then read as one to this method.
    pub async fn send_request(&mut self, request: &Request) {
        self.asked.push_back(request.method.clone());
        self.send(request.to_bytes()).await;
    }

    /// The next response that nothing is known of is read as one to this method.
    pub fn expect_answer_to(&mut self, method: &str) {
        self.asked.push_back(method.to_owned());
    }

    /// Sends a request and reads its response, to its end or its cut.
    pub async fn ask(&mut self, request: &Request) -> Response {
        let asked_at = Instant::now();
        self.send_request(request).await;
        let mut response = self.read_response().await;
        response.asked_at = Some(asked_at);
        response
    }

    // Receiving

    /// Reads one response to its end or its cut; panics if not even its head comes.
    pub async fn read_response(&mut self) -> Response {
        let response = self.try_read_response().await;
        response.unwrap_or_else(|none| panic!("the connection ended without a response: {none:?}"))
    }

    pub async fn try_read_response(&mut self) -> Result<Response, NoResponse> {
        let mut response = self.try_read_head().await?;
        self.finish(&mut response).await;
        Ok(response)
    }

    /// Reads the head only; [`Client::read_more`], [`Client::read_events`] and
    /// [`Client::finish`] read on.
    pub async fn read_head(&mut self) -> Response {
        let response = self.try_read_head().await;
        response.unwrap_or_else(|none| panic!("the connection ended without a response: {none:?}"))
    }

    pub async fn try_read_head(&mut self) -> Result<Response, NoResponse> {
        let method = self.asked.pop_front().unwrap_or_default();
        let mut raw = Vec::new();
        let mut informational = Vec::new();
        loop {
            let head = self.next_head(&mut raw).await?;
            let (line, headers) = wire::parse_head(&head)
                .unwrap_or_else(|e| panic!("a malformed response head: {e}"));
            let (version, status, reason) = parse_status_line(&line);
            if status < 200 && status != 101 {
                informational.push(Interim { status, headers });
                continue;
            }
            let framing = response_framing(&method, status, &headers);
            let mut response = Response {
                status,
                reason,
                version,
                headers,
                informational,
                body: vec![],
                framing,
                chunk_sizes: vec![],
                trailers: Headers::default(),
                complete: false,
                cut: None,
                raw,
                head_at: Instant::now(),
                arrivals: vec![],
                ended_at: None,
                asked_at: None,
                sum: BodySum::default(),
                reader: BodyReader::new(framing),
            };
            self.decode(&mut response);
            return Ok(response);
        }
    }

    /// Reads on from the socket once; false if the response was over already.
    pub async fn read_more(&mut self, response: &mut Response) -> bool {
        if response.is_over() {
            return false;
        }
        match self.fill().await {
            Ok(()) => self.decode(response),
            Err(close) => {
                response.raw.extend_from_slice(&self.buffer.split());
                response.end(Some(close));
            }
        }
        true
    }

    /// Reads on until `n` events have arrived; panics if the response ends before that.
    pub async fn read_events(&mut self, response: &mut Response, n: usize) -> Vec<Event> {
        while response.events().len() < n {
            let more = self.read_more(response).await;
            assert!(
                more,
                "the response ended after {} events",
                response.events().len()
            );
        }
        response.events()
    }

    /// Reads on to the end of the response, or its cut.
    pub async fn finish(&mut self, response: &mut Response) {
        while self.read_more(response).await {}
    }

    /// Reads exactly `n` bytes, whatever they mean.
    pub async fn read_exactly(&mut self, n: usize) -> Vec<u8> {
        while self.buffer.len() < n {
            let filled = self.fill().await;
            assert!(filled.is_ok(), "the connection ended: {filled:?}");
        }
        self.buffer.split_to(n).to_vec()
    }

    /// Waits for the end of the connection in good order; panics on any byte, or a reset.
    pub async fn expect_eof(&mut self) {
        let (close, surplus) = self.read_to_end().await;
        assert!(
            surplus.is_empty(),
            "instead of EOF: {:?}",
            printable(&surplus)
        );
        assert_eq!(close, Close::Fin, "how the connection ended");
    }

    /// Waits for a reset; panics on any byte, or an end in good order.
    pub async fn expect_reset(&mut self) {
        let (close, surplus) = self.read_to_end().await;
        assert!(
            surplus.is_empty(),
            "instead of a reset: {:?}",
            printable(&surplus)
        );
        assert_eq!(close, Close::Reset, "how the connection ended");
    }

    /// Reads whatever else comes, and how the connection ends.
    pub async fn read_to_end(&mut self) -> (Close, Vec<u8>) {
        loop {
            if let Err(close) = self.fill().await {
                return (close, self.buffer.split().to_vec());
            }
        }
    }

    /// Whether bytes, or the end of the connection, have come.
    pub fn has_something_to_read(&mut self) -> bool {
        let mut scratch = [0; 4096];
        match self.stream.try_read(&mut scratch) {
            Ok(count) => {
                self.buffer.extend_from_slice(&scratch[..count]);
                true
            }
            Err(error) => !self.buffer.is_empty() || error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Takes what comes next, whatever it is; empty at the end of the connection.
    pub async fn read_some(&mut self) -> Vec<u8> {
        if self.buffer.is_empty() {
            // An end of the connection leaves the buffer empty.
            let _ = self.fill().await;
        }
        self.buffer.split().to_vec()
    }

    /// What has come after the last response read, as far as it has been taken from the socket.
    pub fn surplus(&self) -> &[u8] {
        &self.buffer
    }

    // Ending

    /// Closes: an end in good order, unless bytes from the peer are unread.
    pub fn close(self) {
        drop(self.stream);
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.stream.set_zero_linger().unwrap();
        drop(self.stream);
    }

    /// Ends the client's side in good order, and can still read.
    pub async fn shutdown_write(&mut self) {
        self.stream
            .shutdown()
            .await
            .unwrap_or_else(|e| panic!("shutting down: {e}"));
    }

    async fn next_head(&mut self, raw: &mut Vec<u8>) -> Result<Bytes, NoResponse> {
        loop {
            let end = wire::head_end(&self.buffer).unwrap_or_else(|e| {
                panic!("a malformed response: {e} in {:?}", printable(&self.buffer))
            });
            if let Some(end) = end {
                let head = self.buffer.split_to(end).freeze();
                raw.extend_from_slice(&head);
                return Ok(head);
            }
            if let Err(close) = self.fill().await {
                raw.extend_from_slice(&self.buffer);
                return Err(NoResponse {
                    close,
                    partial: std::mem::take(raw),
                });
            }
        }
    }

    /// Takes what has arrived of the body.
    fn decode(&mut self, response: &mut Response) {
        let now = Instant::now();
        let before = if self.forget {
            Bytes::new()
        } else {
            Bytes::copy_from_slice(&self.buffer)
        };
        let (forget, sum) = (self.forget, &mut response.sum);
        let mut arrived = BytesMut::new();
        let taken = response.reader.take(&mut self.buffer, |piece| {
            sum.add(&piece);
            if !forget {
                arrived.extend_from_slice(&piece);
            }
        });
        if !forget {
            response
                .raw
                .extend_from_slice(&before[..before.len() - self.buffer.len()]);
            response.body.extend_from_slice(&arrived);
            if !arrived.is_empty() {
                response.arrivals.push((now, arrived.freeze()));
            }
        }
        if let Err(error) = taken {
            panic!(
                "a malformed response body: {error}, before {:?}",
                printable(&self.buffer)
            );
        }
        if response.reader.is_done() {
            response.end(None);
        }
    }

    /// Reads from the socket once.
    async fn fill(&mut self) -> Result<(), Close> {
        self.buffer.reserve(64 * 1024);
        let complaint = || "the client waited for more bytes".to_owned();
        let read = self.stream.read_buf(&mut self.buffer);
        match within(self.patience, complaint, read).await {
            Ok(0) => Err(Close::Fin),
            Ok(_) => Ok(()),
            Err(_) => Err(Close::Reset),
        }
    }
}

fn parse_status_line(line: &str) -> (String, u16, String) {
    let mut parts = line.splitn(3, ' ');
    let (version, status) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let known = matches!(version, "HTTP/1.1" | "HTTP/1.0") && status.len() == 3;
    let status = status.parse().ok().filter(|_| known);
    let status = status.unwrap_or_else(|| panic!("a malformed status line: {line:?}"));
    (
        version.to_owned(),
        status,
        parts.next().unwrap_or("").to_owned(),
    )
}

fn response_framing(method: &str, status: u16, headers: &Headers) -> Framing {
    let framing = wire::framing(headers).unwrap_or_else(|e| panic!("a malformed response: {e}"));
    match (framing, status) {
        _ if method == "HEAD" => Framing::Empty,
        (_, 204 | 304) => Framing::Empty,
        (Some(framing), _) => framing,
        (None, _) => Framing::UntilClose,
    }
}
