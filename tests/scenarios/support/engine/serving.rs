//! One connection: requests in, answers out as the script says.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::log::{Connection, Shared, path};
use super::reading::Head;
use crate::support::script::{Plan, Reply, Step, Then};
use crate::support::wire::{Close, Framing};

/// The connection is over.
pub(super) struct Over;

pub(super) type Flow<T> = Result<T, Over>;

/// One connection being served.
pub(super) struct Serving {
    pub(super) stream: TcpStream,
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) buffer: BytesMut,
    pub(super) requests: usize,
    pub(super) last_response: Option<Instant>,
    pub(super) forget: bool,
    /// Set while bytes from the peer would be out of turn.
    pub(super) answering: bool,
    pub(super) out_of_turn: bool,
}

impl Serving {
    pub(super) fn begin(stream: TcpStream, shared: Arc<Shared>) -> Self {
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

    pub(super) async fn run(mut self) {
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
}
