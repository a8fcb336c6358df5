//! The client's connection during one request, as Pingora's proxy sees it.
//!
//! Pingora hands a request to an engine through a session that can say the body again and accepts
//! the response. This one wraps what the request came on, and adds five things, whatever the
//! framing:
//!
//! - the body it has read is kept whole and said again on every attempt, until the first byte of
//!   an answer has gone out;
//! - the response head may be held until the first body byte, or the end of an empty body;
//! - waiting for the client to leave also ends when the engine has been silent for too long;
//! - an answer that is discarded goes by without the client;
//! - a write to a stream of HTTP/2 ends when the client has taken nothing of it for too long. On
//!   HTTP/1 the connection sees to that.
//!
//! Pingora cannot take such a session apart again, so the client's connection goes back to the
//! [`Exchange`] when the session is dropped.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Version};
use pingora_core::protocols::Digest;
use pingora_core::protocols::http::HttpTask;
use pingora_core::protocols::http::custom::CustomMessageWrite;
use pingora_core::protocols::http::custom::server::Session;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::server::ShutdownWatch;
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};

use super::Exchange;
use super::alarm::Alarm;
use super::client_wire::ClientWire;
use super::intake::Intake;
use super::saved_body::SavedBody;
use super::standstill::unless_stalled;

type MessageReader = Box<dyn futures::Stream<Item = Result<Bytes>> + Unpin + Send + Sync + 'static>;

/// See the module's text.
pub(super) struct ClientSession {
    /// `None` only while the session is being dropped.
    kept: Option<Kept>,
    exchange: Arc<Exchange>,
    shutdown: ShutdownWatch,
    /// The longest time in which the client takes nothing, unless its connection sees to that.
    send_timeout: Option<Duration>,
    /// The held head, and what came with it, of the attempt of this number.
    held: Vec<HttpTask>,
    held_of: u32,
    released: bool,
    /// Goes off when the engine has been silent for too long.
    silence: Alarm,
}

/// What stays of a request when Pingora has done with it.
pub(super) struct Kept {
    pub(super) wire: ClientWire,
    /// Whether the response has been sent in full.
    pub(super) complete: bool,
    intake: Intake,
    body: SavedBody,
}

impl Kept {
    /// A request whose body has not been read.
    pub(super) fn new(wire: ClientWire, intake: Intake) -> Self {
        Self {
            wire,
            complete: false,
            intake,
            body: SavedBody::default(),
        }
    }

    /// Nobody needs the body again.
    fn let_go(&mut self) {
        self.body = SavedBody::Empty;
        self.intake.let_go();
    }
}

impl ClientSession {
    pub(super) fn new(
        kept: Kept,
        exchange: Arc<Exchange>,
        shutdown: ShutdownWatch,
        send_timeout: Option<Duration>,
    ) -> Self {
        Self {
            kept: Some(kept),
            exchange,
            shutdown,
            send_timeout,
            held: Vec::new(),
            held_of: 0,
            released: false,
            silence: Alarm::default(),
        }
    }

    // All is there from `new` to `drop`.
    #[allow(clippy::expect_used)]
    fn kept(&self) -> &Kept {
        self.kept.as_ref().expect("kept until dropped")
    }

    #[allow(clippy::expect_used)]
    fn kept_mut(&mut self) -> &mut Kept {
        self.kept.as_mut().expect("kept until dropped")
    }

    fn inner(&self) -> &ClientWire {
        &self.kept().wire
    }

    fn inner_mut(&mut self) -> &mut ClientWire {
        &mut self.kept_mut().wire
    }

    /// The head is about to go out: says that the connection closes after the answer, if so.
    fn announce_close(&mut self) {
        if *self.shutdown.borrow() {
            self.inner_mut().close_after();
        }
    }

    /// Decides whether `tasks` can go out now; while the head is held, keeps them.
    fn admit(&mut self, tasks: Vec<HttpTask>) -> Result<Option<Vec<HttpTask>>> {
        if self.released || !self.exchange.holds_head() {
            return Ok(Some(tasks));
        }
        let attempt = self.exchange.attempt();
        if self.held_of != attempt {
            self.held.clear();
            self.held_of = attempt;
        }
        for task in tasks {
            match task {
                // An early hint would commit us to nothing, but there is nothing to hint at yet.
                HttpTask::Header(head, _) if is_interim(&head) => {}
                HttpTask::Failed(error) if !self.released => {
                    self.held.clear();
                    return Err(error);
                }
                task => {
                    self.released |= commits(&task);
                    self.held.push(task);
                }
            }
        }
        Ok(self.released.then(|| std::mem::take(&mut self.held)))
    }

    /// Makes a response one that a client of HTTP/1.0 can read: it knows no interim responses,
    /// and where no length is declared, the end of the connection is the end of the body.
    fn suit_http_1_0(&mut self, tasks: &mut Vec<HttpTask>) {
        tasks.retain(|task| !matches!(task, HttpTask::Header(head, _) if is_interim(head)));
        let unbounded = |task: &HttpTask| matches!(task, HttpTask::Header(head, _) if !head.headers.contains_key(CONTENT_LENGTH));
        if tasks.iter().any(unbounded) {
            self.inner_mut().close_after();
        }
    }
}

/// Whether a response that has come this far must go to the client: there is a body byte, or the
/// end of a body without one.
fn commits(task: &HttpTask) -> bool {
    match task {
        HttpTask::Body(Some(data), _) | HttpTask::UpgradedBody(Some(data), _)
            if !data.is_empty() =>
        {
            true
        }
        HttpTask::Header(head, _) if head.status == http::StatusCode::SWITCHING_PROTOCOLS => true,
        task => task.is_end(),
    }
}

/// Lets a part of an answer go by, and says whether that was its end.
fn without_client(tasks: Vec<HttpTask>) -> Result<bool> {
    let mut end = false;
    for task in tasks {
        end |= task.is_end();
        if let HttpTask::Failed(error) = task {
            return Err(error);
        }
    }
    Ok(end)
}

/// How long the request's body is said to be.
fn declared_length(request: &RequestHeader) -> Option<usize> {
    let value = request.headers.get(CONTENT_LENGTH)?;
    value.to_str().ok()?.parse().ok()
}

fn is_interim(head: &ResponseHeader) -> bool {
    head.status.is_informational() && head.status != http::StatusCode::SWITCHING_PROTOCOLS
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.exchange.give_back(kept);
        }
    }
}

#[async_trait]
impl Session for ClientSession {
    fn req_header(&self) -> &RequestHeader {
        self.inner().request()
    }

    fn req_header_mut(&mut self) -> &mut RequestHeader {
        self.inner_mut().request_mut()
    }

    async fn read_body_bytes(&mut self) -> Result<Option<Bytes>> {
        let kept = self.kept_mut();
        let read = kept.wire.read_body(&mut kept.intake).await;
        let Ok(data) = read else {
            kept.let_go();
            return read;
        };
        match &data {
            Some(data) if !data.is_empty() => {
                let declared = declared_length(kept.wire.request());
                kept.body.push(data, declared);
            }
            Some(_) => {}
            None => kept.body.end(),
        }
        Ok(data)
    }

    async fn drain_request_body(&mut self) -> Result<()> {
        self.inner_mut().drain().await
    }

    async fn write_response_header(&mut self, head: Box<ResponseHeader>, _end: bool) -> Result<()> {
        self.held.clear();
        if head.status == http::StatusCode::CONTINUE {
            // Leave of ours to send a body; an engine's goes another way.
            let declared = declared_length(self.req_header());
            self.kept().intake.foresee(declared.unwrap_or(0))?;
        }
        if !is_interim(&head) {
            // An answer of our own, which no attempt follows.
            self.kept_mut().let_go();
            self.announce_close();
        }
        self.inner_mut().write_head(head).await
    }

    async fn write_response_header_ref(&mut self, head: &ResponseHeader, end: bool) -> Result<()> {
        self.write_response_header(Box::new(head.clone()), end)
            .await
    }

    async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        let limit = self.send_timeout;
        let written = self.inner_mut().write_body(data, end);
        unless_stalled(limit, written).await?;
        self.kept_mut().complete |= end;
        Ok(())
    }

    async fn write_trailers(&mut self, trailers: HeaderMap) -> Result<()> {
        self.inner_mut().write_trailers(trailers).await
    }

    async fn response_duplex_vec(&mut self, mut tasks: Vec<HttpTask>) -> Result<bool> {
        if self.exchange.is_discarding() {
            return without_client(tasks);
        }
        if self.req_header().version == Version::HTTP_10 {
            self.suit_http_1_0(&mut tasks);
        }
        let Some(tasks) = self.admit(tasks)? else {
            return Ok(false);
        };
        let progress = tasks.iter().any(|task| match task {
            HttpTask::Body(data, _) | HttpTask::UpgradedBody(data, _) => {
                data.as_ref().is_some_and(|data| !data.is_empty())
            }
            _ => false,
        });
        if progress {
            // No attempt can follow now.
            self.kept_mut().let_go();
        }
        if self.response_written().is_none() {
            self.announce_close();
        }
        let limit = self.send_timeout;
        let written = self.inner_mut().respond(tasks);
        let end = unless_stalled(limit, written).await;
        // What came before an engine's failure has gone out.
        let is_sent = end
            .as_ref()
            .map_or_else(|error| error.esource != ErrorSource::Downstream, |_| true);
        if self.inner().is_upgraded() {
            // Silence means nothing in a conversation.
            self.exchange.upgraded();
        } else if progress && is_sent {
            self.exchange.progressed();
        }
        let end = end?;
        self.kept_mut().complete |= end;
        Ok(end)
    }

    // All is timed here, by limits of our own.
    fn set_read_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_read_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_write_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_write_timeout(&self) -> Option<Duration> {
        None
    }

    fn set_total_drain_timeout(&mut self, _timeout: Option<Duration>) {}

    fn get_total_drain_timeout(&self) -> Option<Duration> {
        None
    }

    fn request_summary(&self) -> String {
        self.inner().request_summary()
    }

    /// Of the answer itself: an interim response, a `100 Continue` of ours among them, commits to
    /// nothing.
    fn response_written(&self) -> Option<&ResponseHeader> {
        let written = self.inner().written();
        written.filter(|head| !is_interim(head))
    }

    async fn shutdown(&mut self, _code: u32, _ctx: &str) {
        // A stream of HTTP/2 is reset once what was written has left.
        if let ClientWire::H1(h1) = self.inner_mut() {
            h1.shutdown().await;
        }
    }

    fn is_body_done(&mut self) -> bool {
        self.inner_mut().is_body_done()
    }

    async fn finish(&mut self) -> Result<()> {
        if self.exchange.goes_on() {
            // The answer is still to come.
            return Ok(());
        }
        self.inner_mut().finish().await
    }

    fn is_body_empty(&mut self) -> bool {
        self.kept().body.is_empty() && self.inner_mut().is_body_done()
    }

    async fn read_body_or_idle(&mut self, no_body_expected: bool) -> Result<Option<Bytes>> {
        let Self {
            kept: Some(kept),
            exchange,
            silence,
            ..
        } = self
        else {
            return Ok(None);
        };
        tokio::select! {
            biased;
            event = kept.wire.body_or_departure(no_body_expected) => event,
            error = exchange.silence(silence) => Err(error),
        }
    }

    fn body_bytes_sent(&self) -> usize {
        self.inner().body_bytes_sent()
    }

    fn body_bytes_read(&self) -> usize {
        self.inner().body_bytes_read()
    }

    fn digest(&self) -> Option<&Digest> {
        self.inner().digest()
    }

    fn digest_mut(&mut self) -> Option<&mut Digest> {
        self.inner_mut().digest_mut()
    }

    fn client_addr(&self) -> Option<&SocketAddr> {
        let digest = self.digest()?.socket_digest.as_ref()?;
        digest.peer_addr()
    }

    fn server_addr(&self) -> Option<&SocketAddr> {
        let digest = self.digest()?.socket_digest.as_ref()?;
        digest.local_addr()
    }

    fn pseudo_raw_h1_request_header(&self) -> Bytes {
        self.inner().raw_head()
    }

    // The body is always kept; there is nothing to turn on.
    fn enable_retry_buffering(&mut self) {}

    fn retry_buffer_truncated(&self) -> bool {
        false
    }

    fn get_retry_buffer(&self) -> Option<Bytes> {
        self.kept().body.whole().cloned()
    }

    async fn finish_custom(&mut self) -> Result<()> {
        Ok(())
    }

    fn take_custom_message_reader(&mut self) -> Option<MessageReader> {
        None
    }

    fn restore_custom_message_reader(&mut self, _reader: MessageReader) -> Result<()> {
        no_custom_messages()
    }

    fn take_custom_message_writer(&mut self) -> Option<Box<dyn CustomMessageWrite>> {
        None
    }

    fn restore_custom_message_writer(
        &mut self,
        _writer: Box<dyn CustomMessageWrite>,
    ) -> Result<()> {
        no_custom_messages()
    }

    fn is_upgrade_req(&self) -> bool {
        self.inner().offers_upgrade()
    }

    fn was_upgraded(&self) -> bool {
        self.inner().is_upgraded()
    }
}

/// HTTP has no messages beside requests and responses.
fn no_custom_messages() -> Result<()> {
    Error::e_explain(
        ErrorType::InternalError,
        "HTTP sessions carry no custom messages",
    )
}

#[cfg(test)]
mod tests;
