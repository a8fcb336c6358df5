//! What the client's side and the proxy's hooks share while one request runs.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::HeaderValue;
use pingora_core::{Error, ErrorType};
use tokio::time::Instant;

use super::alarm::Alarm;
use super::session::Kept;

tokio::task_local! {
    /// The exchange the running task serves; Pingora's `new_ctx` has no other way to learn it.
    static CURRENT: Arc<Exchange>;
}

/// How long an engine may stay silent; `None` waits for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Patience {
    /// From the request sent to the first body byte.
    pub first_byte: Option<Duration>,
    /// Between two body bytes.
    pub stream_idle: Option<Duration>,
}

/// Which silence of the engine ran too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// No byte of an answer yet.
    FirstByte,
    /// The answer stopped in the middle.
    StreamIdle,
}

impl Silence {
    const FIRST_BYTE: ErrorType = ErrorType::new("FirstByteTimeout");
    const STREAM_IDLE: ErrorType = ErrorType::new("StreamIdleTimeout");

    fn error(self) -> Box<Error> {
        Error::new_up(match self {
            Self::FirstByte => Self::FIRST_BYTE,
            Self::StreamIdle => Self::STREAM_IDLE,
        })
    }

    /// The silence an error of Pingora's proxy loop stands for, if it is one of ours.
    pub fn of(error: &Error) -> Option<Self> {
        match &error.etype {
            kind if *kind == Self::FIRST_BYTE => Some(Self::FirstByte),
            kind if *kind == Self::STREAM_IDLE => Some(Self::StreamIdle),
            _ => None,
        }
    }
}

/// The other end of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) address: Option<SocketAddr>,
    /// The IP address as engines are told it.
    ip: Option<HeaderValue>,
}

impl Client {
    pub(super) fn new(address: Option<SocketAddr>) -> Self {
        let ip = address.map(|address| address.ip().to_canonical().to_string());
        Self {
            address,
            ip: ip.and_then(|ip| ip.try_into().ok()),
        }
    }
}

/// One request and its response, seen from the client's side.
pub struct Exchange {
    client: Client,
    patience: Patience,
    hold_head: bool,
    received: Instant,
    state: Mutex<State>,
    /// The answer that comes is read to its end, and not for the client.
    discarding: AtomicBool,
}

#[derive(Default)]
struct State {
    attempt: u32,
    deadline: Option<(Instant, Silence)>,
    first_byte: Option<Instant>,
    /// When the client had taken the last body bytes.
    taken: Option<Instant>,
    /// What Pingora's session is made of, once it has been dropped.
    kept: Option<Kept>,
    /// What the proxy's hooks know of the request, where another pass over it follows.
    known: Option<Box<dyn Any + Send>>,
}

/// How long the rest of an answer that is discarded may take to come.
const DISCARD_LIMIT: Duration = Duration::from_millis(100);

impl Exchange {
    pub(super) fn new(client: Client, patience: Patience, hold_head: bool) -> Self {
        Self {
            client,
            patience,
            hold_head,
            received: Instant::now(),
            state: Mutex::default(),
            discarding: AtomicBool::new(false),
        }
    }

    /// Runs `task` as the one that serves this exchange.
    pub(super) async fn scope<F: Future>(self: Arc<Self>, task: F) -> F::Output {
        CURRENT.scope(self, task).await
    }

    /// The exchange of the running task; outside of one, an exchange without a client.
    pub fn current() -> Arc<Self> {
        CURRENT
            .try_with(Arc::clone)
            .unwrap_or_else(|_| Arc::new(Self::new(Client::default(), Patience::default(), false)))
    }

    /// The client's address, where its connection has one.
    pub fn client(&self) -> Option<SocketAddr> {
        self.client.address
    }

    /// The client's IP address, as the value of a header field.
    pub fn client_ip(&self) -> Option<&HeaderValue> {
        self.client.ip.as_ref()
    }

    /// When the request head had been read.
    pub fn received(&self) -> Instant {
        self.received
    }

    /// When the first body byte went to the client.
    pub fn first_byte(&self) -> Option<Instant> {
        self.lock().first_byte
    }

    /// When the client had taken the last body bytes that went to it.
    pub fn taken(&self) -> Option<Instant> {
        self.lock().taken
    }

    /// Whether the response head waits for the first body byte.
    pub(super) fn holds_head(&self) -> bool {
        self.hold_head
    }

    /// An attempt has sent its request head: what an earlier one left is void, and the engine's
    /// first-byte time runs.
    pub fn begin_attempt(&self) {
        self.discarding.store(false, Ordering::Relaxed);
        let mut state = self.lock();
        state.attempt = state.attempt.wrapping_add(1);
        state.deadline = self
            .patience
            .first_byte
            .map(|limit| (Instant::now() + limit, Silence::FirstByte));
    }

    /// No attempt is running, so no engine can be too slow.
    pub fn end_attempt(&self) {
        self.lock().deadline = None;
    }

    /// Tells one attempt from another.
    pub(super) fn attempt(&self) -> u32 {
        self.lock().attempt
    }

    /// Body bytes of the engine have gone to the client, so its silence is counted anew. Time
    /// the client took to read them is not the engine's.
    pub(super) fn progressed(&self) {
        let mut state = self.lock();
        let now = Instant::now();
        state.first_byte.get_or_insert(now);
        state.taken = Some(now);
        state.deadline = self
            .patience
            .stream_idle
            .map(|limit| (now + limit, Silence::StreamIdle));
    }

    /// Waits until the engine has been silent for too long; for ever where that has no limit.
    pub(super) async fn silence(&self, alarm: &mut Alarm) -> Box<Error> {
        let deadline = self.lock().deadline;
        match deadline {
            Some((at, silence)) => {
                alarm.at(at).await;
                silence.error()
            }
            None => std::future::pending().await,
        }
    }

    /// The client and the engine speak another protocol from here on.
    pub(super) fn upgraded(&self) {
        self.end_attempt();
    }

    /// The answer whose head has come is not for the client. It is read to its end, so that its
    /// connection can carry another request, unless that takes too long: then it ends as one of a
    /// silent engine does.
    pub fn discard(&self) {
        self.discarding.store(true, Ordering::Relaxed);
        self.lock().deadline = Some((Instant::now() + DISCARD_LIMIT, Silence::FirstByte));
    }

    /// Whether the answer that comes is not for the client.
    pub(super) fn is_discarding(&self) -> bool {
        self.discarding.load(Ordering::Relaxed)
    }

    /// Pingora has done with an answer that was discarded: another pass over the request follows,
    /// with what is known of it.
    pub fn pass_on(&self, known: Box<dyn Any + Send>) {
        self.lock().known = Some(known);
    }

    /// What is known of the request, on a further pass over it.
    pub fn known<T: 'static>(&self) -> Option<Box<T>> {
        self.discarding.store(false, Ordering::Relaxed);
        let known = self.lock().known.take();
        known?.downcast().ok()
    }

    /// Nobody passes over the request again. What is known of it knows this exchange, so neither
    /// would ever end.
    fn forget(&self) {
        let known = self.lock().known.take();
        drop(known);
    }

    /// Whether another pass over the request follows.
    pub(super) fn goes_on(&self) -> bool {
        self.lock().known.is_some()
    }

    /// Hands back what Pingora's session was made of, when that is dropped.
    pub(super) fn give_back(&self, kept: Kept) {
        self.lock().kept = Some(kept);
    }

    /// The same, after the exchange.
    pub(super) fn take_back(&self) -> Option<Kept> {
        self.lock().kept.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees that an exchange ends, however those end that serve it.
#[derive(Debug)]
pub(super) struct Served(pub(super) Arc<Exchange>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("client", &self.client.address)
            .field("patience", &self.patience)
            .field("hold_head", &self.hold_head)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exchange_that_nobody_serves_any_more_ends_with_all_that_is_known_of_it() {
        let exchange = Arc::new(Exchange::new(Client::default(), Patience::default(), true));
        let (weak, served) = (Arc::downgrade(&exchange), Served(Arc::clone(&exchange)));
        exchange.pass_on(Box::new(Arc::clone(&exchange)));
        drop(exchange);
        assert!(weak.upgrade().is_some_and(|exchange| exchange.goes_on()));
        drop(served);
        assert!(weak.upgrade().is_none());
    }
}
