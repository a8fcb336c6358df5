//! A scripted engine: answers on a raw socket as its [`Script`] says, and records what it gets.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};

use super::patience::{PATIENCE, within};
use super::script::{Plan, Playback, Reply, Script, Step, Then};
use super::wire::{self, BodyReader, BodySum, Close, Framing, Headers, printable};

/// A request received in full.
#[derive(Clone, Debug)]
pub struct Delivery {
    pub method: String,
    pub target: String,
    pub version: String,
    pub headers: Headers,
    /// The head as received, blank line included.
    pub head: Bytes,
    /// The decoded body; empty if the script forgets bodies.
    pub body: Bytes,
    pub body_len: u64,
    /// Equals [`wire::body_hash`] of the body.
    pub body_hash: u64,
    pub framing: Framing,
    pub chunk_sizes: Vec<u64>,
    pub chunk_extensions: Vec<String>,
    pub trailers: Headers,
    /// Index into [`ScriptedEngine::connections`].
    pub connection: usize,
    /// Which request of its connection it is, counted from 0.
    pub nth: usize,
    pub head_at: Instant,
    /// When the last byte arrived.
    pub at: Instant,
    /// Whether the scripted response has been sent in full (not cut, not withheld).
    pub answered: bool,
    routed: bool,
}

impl Delivery {
    /// The `X-Case` it carries.
    pub fn case(&self) -> &str {
        self.headers
            .get("x-case")
            .unwrap_or_else(|| panic!("no x-case in {:?}", self.headers))
    }

    /// The target without its query.
    pub fn path(&self) -> &str {
        path(&self.target)
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body that is text")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body that is JSON")
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

/// One accepted connection.
#[derive(Clone, Debug)]
pub struct Connection {
    pub accepted_at: Instant,
    /// How and when the peer ended its side, as far as the engine got to see it.
    pub peer_close: Option<(Close, Instant)>,
    /// How and when the engine ended its side.
    pub engine_close: Option<(Close, Instant)>,
    pub bytes_received: u64,
    /// Every byte received; empty if the script forgets bodies.
    pub received: Vec<u8>,
    /// Bytes of responses handed to the socket.
    pub bytes_sent: u64,
    /// Whether the peer left in the middle of a request.
    pub cut_request: bool,
}

#[derive(Default)]
struct Log {
    deliveries: Vec<Delivery>,
    connections: Vec<Connection>,
    requests_begun: usize,
    errors: Vec<String>,
}

struct Shared {
    log: Mutex<Log>,
    playback: Mutex<Playback>,
    changes: watch::Sender<()>,
    patience: Mutex<Duration>,
}

impl Shared {
    fn read<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.log.lock().unwrap())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Log) -> T) -> T {
        let result = change(&mut self.log.lock().unwrap());
        self.changes.send_replace(());
        result
    }
}

struct Running {
    stop: oneshot::Sender<()>,
    accepting: JoinHandle<()>,
}

/// An engine on a port of its own on 127.0.0.1, which stays reserved for as long as this lives.
pub struct ScriptedEngine {
    addr: SocketAddr,
    /// Bound, never listening: while nothing else listens, the port refuses.
    _reservation: TcpSocket,
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

impl ScriptedEngine {
    /// An engine that listens and plays this script.
    pub async fn start(script: impl Into<Script>) -> Self {
        let engine = Self::refusing().await;
        engine.listen_with(script).await;
        engine
    }

    /// An engine whose port is bound but not listening, so that it refuses connections.
    #[expect(
        clippy::unused_async,
        reason = "reads like `start`, and needs a runtime all the same"
    )]
    pub async fn refusing() -> Self {
        Self::reserve("127.0.0.1:0".parse().unwrap())
    }

    /// Another engine on the port of this one, at another address of this machine: 127.0.0.2, say.
    pub async fn beside(&self, ip: &str, script: impl Into<Script>) -> Self {
        let engine = Self::reserve(SocketAddr::new(ip.parse().unwrap(), self.addr.port()));
        engine.listen_with(script).await;
        engine
    }

    fn reserve(addr: SocketAddr) -> Self {
        let reservation = bind(addr);
        let addr = reservation.local_addr().unwrap();
        let nothing = super::script::hang().into();
        let shared = Shared {
            log: Mutex::default(),
            playback: Mutex::new(Playback::new(nothing)),
            changes: watch::channel(()).0,
            patience: Mutex::new(PATIENCE),
        };
        let running = Mutex::new(None);
        Self {
            addr,
            _reservation: reservation,
            shared: Arc::new(shared),
            running,
        }
    }

    /// Begins to listen on a port that has refused so far.
    #[expect(
        clippy::unused_async,
        reason = "pairs with `stop`, and needs a runtime all the same"
    )]
    pub async fn listen_with(&self, script: impl Into<Script>) {
        let mut running = self.running.lock().unwrap();
        assert!(
            running.is_none(),
            "the engine on {} listens already",
            self.addr
        );
        self.play(script);
        let listener = bind(self.addr).listen(1024).unwrap();
        let (stop, stopped) = oneshot::channel();
        let accepting = tokio::spawn(accept(listener, self.shared.clone(), stopped));
        *running = Some(Running { stop, accepting });
    }

    /// Stops listening and closes every connection, as the end of a process does. The port
    /// refuses from when this returns. What was recorded is kept.
    pub async fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        let Some(Running { stop, accepting }) = running else {
            return;
        };
        let _ = stop.send(());
        if let Err(failure) = accepting.await {
            std::panic::resume_unwind(failure.into_panic());
        }
        let now = Instant::now();
        self.shared.write(|log| {
            for connection in &mut log.connections {
                if connection.peer_close.is_none() && connection.engine_close.is_none() {
                    connection.engine_close = Some((Close::Fin, now));
                }
            }
        });
    }

    /// Stops, then listens again on the same port with another script.
    pub async fn restart(&self, script: impl Into<Script>) {
        self.stop().await;
        self.listen_with(script).await;
    }

    /// Replaces the script, from the next request on; connections stay open.
    pub fn play(&self, script: impl Into<Script>) {
        *self.shared.playback.lock().unwrap() = Playback::new(script.into());
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Such as `http://127.0.0.1:4711`.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The requests received in full, in the order their last bytes came; those of routes apart.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.deliveries_where(|delivery| !delivery.routed)
    }

    /// The requests received in full for exactly this path, of a route or not.
    pub fn deliveries_to(&self, path: &str) -> Vec<Delivery> {
        self.deliveries_where(|delivery| delivery.path() == path)
    }

    fn deliveries_where(&self, wanted: impl Fn(&Delivery) -> bool) -> Vec<Delivery> {
        self.shared.read(|log| {
            log.deliveries
                .iter()
                .filter(|d| wanted(d))
                .cloned()
                .collect()
        })
    }

    /// How many requests were received in full; those of routes not counted.
    pub fn seen(&self) -> usize {
        self.shared
            .read(|log| log.deliveries.iter().filter(|d| !d.routed).count())
    }

    /// How many requests got their headers through; those of routes not counted.
    pub fn begun(&self) -> usize {
        self.shared.read(|log| log.requests_begun)
    }

    /// The waits between consecutive deliveries.
    pub fn gaps(&self) -> Vec<Duration> {
        let times: Vec<Instant> = self.deliveries().iter().map(|d| d.at).collect();
        times.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }

    /// How many connections were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.read(|log| log.connections.len())
    }

    pub fn connections(&self) -> Vec<Connection> {
        self.shared.read(|log| log.connections.clone())
    }

    /// What was wrong with the requests received, in words.
    pub fn protocol_errors(&self) -> Vec<String> {
        self.shared.read(|log| log.errors.clone())
    }

    /// Panics if any request was malformed, or followed by bytes before its answer.
    #[track_caller]
    pub fn assert_clean(&self) {
        let errors = self.protocol_errors();
        assert!(
            errors.is_empty(),
            "the engine on {} was sent bad HTTP: {errors:#?}",
            self.addr
        );
    }

    /// How long the waits below last, on the real clock, before they panic.
    pub fn set_patience(&self, patience: Duration) {
        *self.shared.patience.lock().unwrap() = patience;
    }

    /// Waits for at least `n` deliveries, and returns them all.
    #[track_caller]
    pub fn wait_for_deliveries(&self, n: usize) -> impl Future<Output = Vec<Delivery>> {
        let wanted = move |log: &Log| {
            let seen = log.deliveries.iter().filter(|d| !d.routed);
            (seen.clone().count() >= n).then(|| seen.cloned().collect())
        };
        self.wait_until(format!("{n} deliveries"), wanted)
    }

    /// Waits for at least `n` requests that were answered in full, and returns them all.
    #[track_caller]
    pub fn wait_for_answered(&self, n: usize) -> impl Future<Output = Vec<Delivery>> {
        self.wait_until(format!("{n} answered requests"), move |log| {
            let answered = log.deliveries.iter().filter(|d| d.answered && !d.routed);
            (answered.clone().count() >= n).then(|| answered.cloned().collect())
        })
    }

    /// Waits for at least `n` requests for this path, of a route or not.
    #[track_caller]
    pub fn wait_for_deliveries_to(
        &self,
        path: &str,
        n: usize,
    ) -> impl Future<Output = Vec<Delivery>> {
        let what = format!("{n} deliveries to {path}");
        let path = path.to_owned();
        let wanted = move |log: &Log| {
            let seen = log.deliveries.iter().filter(|d| d.path() == path);
            (seen.clone().count() >= n).then(|| seen.cloned().collect())
        };
        self.wait_until(what, wanted)
    }

    /// Waits for at least `n` connections.
    #[track_caller]
    pub fn wait_for_connections(&self, n: usize) -> impl Future<Output = Vec<Connection>> {
        self.wait_until(format!("{n} connections"), move |log| {
            (log.connections.len() >= n).then(|| log.connections.clone())
        })
    }

    /// Waits until `n` requests got their headers through; those of routes not counted.
    #[track_caller]
    pub fn wait_for_begun(&self, n: usize) -> impl Future<Output = ()> {
        let enough = move |log: &Log| (log.requests_begun >= n).then_some(());
        self.wait_until(format!("{n} requests begun"), enough)
    }

    /// Waits for the end of connection `i` (counted from 0), whichever side makes it.
    #[track_caller]
    pub fn wait_for_connection_end(&self, i: usize) -> impl Future<Output = Connection> {
        self.wait_until(format!("the end of connection {i}"), move |log| {
            let over = |c: &&Connection| c.peer_close.is_some() || c.engine_close.is_some();
            log.connections.get(i).filter(over).cloned()
        })
    }

    /// Waits until the peer is seen to end connection `i`, and says how and when.
    #[track_caller]
    pub fn wait_for_peer_close(&self, i: usize) -> impl Future<Output = (Close, Instant)> {
        self.wait_until(format!("the peer to end connection {i}"), move |log| {
            log.connections
                .get(i)
                .and_then(|connection| connection.peer_close)
        })
    }

    #[track_caller]
    fn wait_until<T>(
        &self,
        what: String,
        done: impl Fn(&Log) -> Option<T>,
    ) -> impl Future<Output = T> {
        let mut changes = self.shared.changes.subscribe();
        let found = async move {
            loop {
                if let Some(found) = self.shared.read(&done) {
                    return found;
                }
                changes
                    .changed()
                    .await
                    .expect("the engine holds the sender");
            }
        };
        let complaint = move || {
            self.shared.read(|log| {
                let connections = log.connections.len();
                let seen: Vec<_> = log.deliveries.iter().map(|d| d.target.as_str()).collect();
                format!(
                    "the engine on {} waited for {what}, but has {connections} connections, \
                     {} requests begun, deliveries {seen:?}, errors {:?}",
                    self.addr, log.requests_begun, log.errors,
                )
            })
        };
        let patience = *self.shared.patience.lock().unwrap();
        within(patience, complaint, found)
    }
}

/// Address reuse lets the reservation and a listener share the port.
fn bind(addr: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket
        .bind(addr)
        .unwrap_or_else(|e| panic!("binding {addr}: {e}"));
    socket
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, mut stopped: oneshot::Receiver<()>) {
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            // Also when the engine is dropped.
            _ = &mut stopped => break,
            Some(served) = serving.join_next() => served.expect("serving a connection"),
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                serving.spawn(Serving::begin(stream, shared.clone()).run());
            }
        }
    }
    drop(listener);
    serving.shutdown().await;
}

/// The connection is over.
struct Over;

type Flow<T> = Result<T, Over>;

struct Head {
    method: String,
    target: String,
    version: String,
    headers: Headers,
    raw: Bytes,
    framing: Framing,
    at: Instant,
}

/// One connection being served.
struct Serving {
    stream: TcpStream,
    shared: Arc<Shared>,
    index: usize,
    buffer: BytesMut,
    requests: usize,
    last_response: Option<Instant>,
    forget: bool,
    /// Set while bytes from the peer would be out of turn.
    answering: bool,
    out_of_turn: bool,
}

impl Serving {
    fn begin(stream: TcpStream, shared: Arc<Shared>) -> Self {
        stream.set_nodelay(true).unwrap();
        let forget = shared.playback.lock().unwrap().script.forget_bodies;
        let index = shared.write(|log| {
            log.connections.push(Connection {
                accepted_at: Instant::now(),
                peer_close: None,
                engine_close: None,
                bytes_received: 0,
                received: vec![],
                bytes_sent: 0,
                cut_request: false,
            });
            log.connections.len() - 1
        });
        Self {
            stream,
            shared,
            index,
            buffer: BytesMut::new(),
            requests: 0,
            last_response: None,
            forget,
            answering: false,
            out_of_turn: false,
        }
    }

    async fn run(mut self) {
        let Err(Over) = self.serve().await;
    }

    async fn serve(&mut self) -> Flow<Infallible> {
        loop {
            let head = self.next_head().await?;
            let (reply, routed) = {
                let mut playback = self.shared.playback.lock().unwrap();
                playback.next(path(&head.target), self.index)
            };
            if !routed {
                self.shared.write(|log| log.requests_begun += 1);
            }
            if let Some((how, pause)) = reply.cut_at_headers() {
                return self.cut_unread(how, pause).await;
            }
            let then = if reply.early {
                self.answer_early(&head, &reply, routed).await?
            } else {
                let continues = head.headers.get("expect").is_some();
                if continues && head.framing != Framing::Empty {
                    self.send(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                }
                let (number, request) = self.read_body(&head, reply.slow_upload, routed).await?;
                let plan = reply.computed(&request).plan(&head.method);
                self.answering = true;
                self.out_of_turn(self.buffer.len());
                self.perform(&plan).await?;
                self.answering = false;
                if !matches!(plan.then, Then::Hang | Then::Cut(_)) {
                    self.shared
                        .write(|log| log.deliveries[number].answered = true);
                }
                plan.then
            };
            self.after(then).await?;
        }
    }

    /// What happens to the connection once a reply has been played.
    async fn after(&mut self, then: Then) -> Flow<()> {
        self.last_response = Some(Instant::now());
        match then {
            Then::KeepOpen => Ok(()),
            Then::Cut(Close::Reset) => Err(self.reset()),
            Then::Close | Then::Cut(Close::Fin) => {
                self.shut_down().await;
                Err(Over)
            }
            Then::ResetOnNextByte => {
                if self.buffer.is_empty() {
                    match self.stream.peek(&mut [0]).await {
                        Ok(0) => return Err(self.peer_closed(Close::Fin)),
                        Ok(_) => {}
                        Err(_) => return Err(self.peer_closed(Close::Reset)),
                    }
                }
                Err(self.reset())
            }
            Then::HalfClose => {
                self.shut_down().await;
                self.last_response = None;
                loop {
                    let head = self.next_head().await?;
                    self.read_body(&head, None, false).await?;
                }
            }
            Then::Hang => {
                self.answering = true;
                loop {
                    self.fill().await?;
                }
            }
        }
    }

    async fn cut_unread(&mut self, how: Close, pause: Duration) -> Flow<Infallible> {
        sleep(pause).await;
        if how == Close::Reset {
            return Err(self.reset());
        }
        // Closing a socket with unread bytes would reset it, so they are read and dropped.
        self.shut_down().await;
        loop {
            self.buffer.clear();
            self.fill().await?;
        }
    }

    async fn answer_early(&mut self, head: &Head, reply: &Reply, routed: bool) -> Flow<Then> {
        let plan = reply.plan(&head.method);
        for step in &plan.steps {
            match step {
                Step::Wait(pause) => sleep(*pause).await,
                Step::Send(bytes) => {
                    let sent = self.stream.write_all(bytes).await;
                    sent.map_err(|_| self.peer_closed(Close::Reset))?;
                    self.note_sent(bytes.len());
                }
            }
        }
        match plan.then {
            Then::Cut(how) => self
                .cut_unread(how, Duration::ZERO)
                .await
                .map(|never| match never {}),
            Then::Close => self
                .cut_unread(Close::Fin, Duration::ZERO)
                .await
                .map(|never| match never {}),
            then => {
                let (number, _) = self.read_body(head, reply.slow_upload, routed).await?;
                self.shared
                    .write(|log| log.deliveries[number].answered = then != Then::Hang);
                Ok(then)
            }
        }
    }

    async fn perform(&mut self, plan: &Plan) -> Flow<()> {
        for step in &plan.steps {
            match step {
                Step::Send(bytes) => self.send(bytes).await?,
                Step::Wait(pause) => {
                    let end = Instant::now() + *pause;
                    self.watch_until(end).await?;
                }
            }
        }
        Ok(())
    }

    // Requests

    async fn next_head(&mut self) -> Flow<Head> {
        let raw = loop {
            match wire::head_end(&self.buffer) {
                Ok(Some(end)) => break self.buffer.split_to(end).freeze(),
                Ok(None) => {}
                Err(error) => return Err(self.refuse(error).await),
            }
            let idle = self.shared.playback.lock().unwrap().script.idle_close;
            match (idle, self.last_response) {
                (Some(idle), Some(last)) if self.buffer.is_empty() => tokio::select! {
                    biased;
                    ready = self.stream.readable() => drop(ready),
                    () = sleep_until(last + idle) => {
                        self.shut_down().await;
                        return Err(Over);
                    }
                },
                _ => self.readable().await?,
            }
            self.take()?;
        };
        match parse_request(&raw) {
            Ok(head) => Ok(head),
            Err(error) => Err(self.refuse(error).await),
        }
    }

    /// Reads the body and records the delivery; returns its number too.
    async fn read_body(
        &mut self,
        head: &Head,
        slowly: Option<(usize, Duration)>,
        routed: bool,
    ) -> Flow<(usize, Delivery)> {
        let mut reader = BodyReader::new(head.framing);
        let mut sum = BodySum::default();
        let mut body = BytesMut::new();
        // What a slow reader has got round to.
        let mut window = BytesMut::new();
        loop {
            let forget = self.forget;
            let source = if slowly.is_some() {
                &mut window
            } else {
                &mut self.buffer
            };
            let taken = reader.take(source, |piece| {
                sum.add(&piece);
                if !forget {
                    body.extend_from_slice(&piece);
                }
            });
            if let Err(error) = taken {
                return Err(self.refuse(error).await);
            }
            if reader.is_done() {
                break;
            }
            if let Some((_, gap)) = slowly {
                sleep(gap).await;
            }
            if (slowly.is_none() || self.buffer.is_empty())
                && let Err(over) = self.fill().await
            {
                self.shared
                    .write(|log| log.connections[self.index].cut_request = true);
                return Err(over);
            }
            if let Some((most, _)) = slowly {
                let read = self.buffer.split_to(most.min(self.buffer.len()));
                window.unsplit(read);
            }
        }
        if !window.is_empty() {
            window.unsplit(self.buffer.split());
            self.buffer = window;
        }
        let delivery = Delivery {
            method: head.method.clone(),
            target: head.target.clone(),
            version: head.version.clone(),
            headers: head.headers.clone(),
            head: head.raw.clone(),
            body: body.freeze(),
            body_len: sum.len(),
            body_hash: sum.hash(),
            framing: head.framing,
            chunk_sizes: reader.chunk_sizes,
            chunk_extensions: reader.extensions,
            trailers: reader.trailers,
            connection: self.index,
            nth: self.requests,
            head_at: head.at,
            at: Instant::now(),
            answered: false,
            routed,
        };
        self.requests += 1;
        let number = self.shared.write(|log| {
            log.deliveries.push(delivery.clone());
            log.deliveries.len() - 1
        });
        Ok((number, delivery))
    }

    /// Records what was wrong, and turns the peer away as a server would.
    async fn refuse(&mut self, error: String) -> Over {
        let place = format!(
            "connection {}, request {}: {error}",
            self.index, self.requests
        );
        self.shared.write(|log| log.errors.push(place));
        let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if self.send(answer).await.is_ok() {
            self.shut_down().await;
        }
        Over
    }

    // The socket

    /// Waits for bytes and takes them.
    async fn fill(&mut self) -> Flow<()> {
        let before = self.buffer.len();
        while self.buffer.len() == before {
            self.readable().await?;
            self.take()?;
        }
        Ok(())
    }

    async fn readable(&mut self) -> Flow<()> {
        let ready = self.stream.readable().await;
        ready.map_err(|_| self.peer_closed(Close::Reset))
    }

    /// Takes what bytes are there, if any.
    fn take(&mut self) -> Flow<()> {
        const PIECE: usize = 64 * 1024;
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE, 0);
        let read = self.stream.try_read(&mut self.buffer[before..]);
        let got = *read.as_ref().unwrap_or(&0);
        self.buffer.truncate(before + got);
        match read {
            Ok(0) => {
                let cut = before > 0 && !self.answering;
                self.shared
                    .write(|log| log.connections[self.index].cut_request |= cut);
                Err(self.peer_closed(Close::Fin))
            }
            Ok(_) => {
                let arrived = &self.buffer[before..];
                self.shared.write(|log| {
                    let connection = &mut log.connections[self.index];
                    connection.bytes_received += got as u64;
                    if !self.forget {
                        connection.received.extend_from_slice(arrived);
                    }
                });
                if self.answering {
                    self.out_of_turn(got);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(self.peer_closed(Close::Reset)),
        }
    }

    /// Notes that `bytes` came before the previous request was answered; once per connection.
    fn out_of_turn(&mut self, bytes: usize) {
        if bytes == 0 || std::mem::replace(&mut self.out_of_turn, true) {
            return;
        }
        let start = self.buffer.len() - bytes;
        let shown = printable(&self.buffer[start..]);
        let error = format!(
            "connection {}: bytes after request {} before its answer: {shown:?}",
            self.index,
            self.requests - 1,
        );
        self.shared.write(|log| log.errors.push(error));
    }

    async fn send(&mut self, bytes: &[u8]) -> Flow<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(sent) => {
                    self.note_sent(sent);
                    rest = &rest[sent..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                    biased;
                    ready = self.stream.writable() => drop(ready),
                    ready = self.stream.readable(), if self.may_buffer() => {
                        drop(ready);
                        self.take()?;
                    }
                },
                Err(_) => return Err(self.peer_closed(Close::Reset)),
            }
        }
        Ok(())
    }

    /// Waits, and notices meanwhile if the peer ends the connection.
    async fn watch_until(&mut self, end: Instant) -> Flow<()> {
        let mut end = std::pin::pin!(sleep_until(end));
        loop {
            tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                ready = self.stream.readable(), if self.may_buffer() => {
                    drop(ready);
                    self.take()?;
                }
            }
        }
    }

    /// Bytes out of turn are kept for their turn, up to a bound.
    fn may_buffer(&self) -> bool {
        self.buffer.len() < 1 << 20
    }

    fn note_sent(&self, bytes: usize) {
        self.shared
            .write(|log| log.connections[self.index].bytes_sent += bytes as u64);
    }

    fn peer_closed(&self, how: Close) -> Over {
        self.shared.write(|log| {
            let closed = &mut log.connections[self.index].peer_close;
            closed.get_or_insert((how, Instant::now()));
        });
        Over
    }

    /// Ends the engine's side in good order.
    async fn shut_down(&mut self) {
        let _ = self.stream.shutdown().await;
        self.engine_closed(Close::Fin);
    }

    /// Makes the coming close of the socket a reset.
    fn reset(&self) -> Over {
        self.stream.set_zero_linger().unwrap();
        self.engine_closed(Close::Reset);
        Over
    }

    fn engine_closed(&self, how: Close) {
        self.shared.write(|log| {
            let closed = &mut log.connections[self.index].engine_close;
            closed.get_or_insert((how, Instant::now()));
        });
    }
}

fn parse_request(raw: &Bytes) -> Result<Head, String> {
    let (line, headers) = wire::parse_head(raw)?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = parts[..] else {
        return Err(format!("a malformed request line: {line:?}"));
    };
    let token = !method.is_empty() && method.bytes().all(wire::is_token);
    let visible = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !token || !visible {
        return Err(format!("a malformed request line: {line:?}"));
    }
    if version == "HTTP/1.1" && headers.all("host").len() != 1 {
        return Err(format!("{} Host lines", headers.all("host").len()));
    }
    let framing = wire::framing(&headers)?.unwrap_or(Framing::Empty);
    if version == "HTTP/1.0" && framing == Framing::Chunked {
        return Err("a transfer coding in HTTP/1.0".into());
    }
    Ok(Head {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        framing,
        headers,
        raw: raw.clone(),
        at: Instant::now(),
    })
}
