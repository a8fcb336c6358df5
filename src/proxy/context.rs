//! What the proxy knows of one request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora_core::upstreams::peer::HttpPeer;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::api_error::ApiError;
use crate::edge::Exchange;
use crate::engines::{Engine, Placed, Pool};
use crate::metrics::GaugeGuard;
use crate::record::{ANSWERED, Attempt, Backoff, Hold, Usage};
use crate::retry::{Attempts, Failure, RetryReason, StopReason};
use crate::routing::Blocks;
use crate::traces::Trace;

use super::connect::EngineConnector;
use super::denial::Denial;
use super::first_event::FirstEvent;
use super::plan::Plan;
use super::response_id::ResponseId;
use super::tally::Tally;

/// One request, from its head to its last byte.
#[derive(Debug)]
pub struct Context {
    pub(super) exchange: Arc<Exchange>,
    /// What it is handled by.
    pub(super) plan: Arc<Plan>,
    pub(super) _in_flight: Option<GaugeGuard>,
    pub(super) request_id: String,
    /// `None` where traces are off.
    pub(super) trace: Option<Trace>,
    /// The route's path; `other` for what is not served.
    pub(super) route: Arc<str>,
    pub(super) stream: bool,
    /// The client may choose engines, and so is told which one answered.
    pub(super) may_pin: bool,
    pub(super) forward: Option<Forward>,
    pub(super) end: Option<End>,
    /// What the retry policy said when it let no further attempt follow.
    pub(super) stop: Option<StopReason>,
    /// From the head read to the end of the body, or to where that broke off.
    pub(super) upload: Option<Duration>,
    /// Nearly always it is one.
    pub(super) attempts: SmallVec<[Attempt; 1]>,
    pub(super) backoff_total: Duration,
    pub(super) backoffs: Vec<Backoff>,
    /// Time spent waiting for an engine to come up.
    pub(super) held: Duration,
    pub(super) holds: Vec<Hold>,
    /// The answer that comes is not for the client.
    pub(super) is_discarding: bool,
}

/// A request that goes to an engine.
#[derive(Debug)]
pub(super) struct Forward {
    pub(super) pool: Arc<Pool>,
    pub(super) attempts: Attempts,
    /// The session it belongs to, where the routing logic asks for that.
    pub(super) session: Option<String>,
    /// Its prompt, likewise.
    pub(super) prompt: Option<Blocks>,
    /// The path and query to ask for, where they are not the client's.
    pub(super) target: Option<String>,
    /// The body's length; `None` where the request has no body to declare.
    pub(super) length: Option<usize>,
    /// The body with an alias replaced; `None` where it goes as it came, and after the answer
    /// has begun.
    pub(super) rewritten: Option<Bytes>,
    /// The client asks for another protocol, and the route has one.
    pub(super) upgrade: bool,
    /// The body lost its content coding when it was rewritten.
    pub(super) decoded: bool,
    /// The attempt that was decided on and has not begun.
    pub(super) decided: Option<Decided>,
    /// The attempt that runs.
    pub(super) running: Option<Running>,
    /// Its connect, where that takes its time.
    pub(super) connecting: Option<Connecting>,
    /// What becomes of the connection of the attempt.
    pub(super) afterwards: Afterwards,
    /// The pooled connection was stale: the running attempt goes on, on a fresh one.
    pub(super) again_fresh: bool,
    /// The stream's first event, while it is looked at.
    pub(super) first_event: Option<FirstEvent>,
    /// The search for a denial of the model in the answer.
    pub(super) denial: Option<Denial>,
    /// The search for the id of the response that the answer brings.
    pub(super) response_id: Option<ResponseId>,
    /// What is counted of the answer while it passes.
    pub(super) tally: Tally,
}

/// What becomes of a connection after its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Afterwards {
    /// It goes to the pool, if it is good for that.
    Pooled,
    Closed,
}

/// A connect that goes on.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) peer: Box<HttpPeer>,
    pub(super) connector: Arc<EngineConnector>,
}

/// A further attempt, before it begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    /// What made it necessary.
    pub(super) reason: RetryReason,
    /// The wait before it.
    pub(super) backoff: Duration,
}

/// An attempt that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) engine: Arc<Engine>,
    pub(super) placed: Placed,
    pub(super) started: Instant,
    /// What made it necessary, where it is not the first.
    pub(super) retry: Option<Decided>,
    /// The engine's response head was read; this is its status.
    pub(super) status: Option<u16>,
    /// Its health has been told of its answer.
    pub(super) told: bool,
    /// Whether its connection had carried a request before; `None` until it has one.
    pub(super) reused: Option<bool>,
    /// What opens its connection; `None` until that may be needed.
    pub(super) connector: Option<Arc<EngineConnector>>,
}

/// The outcome of attempts that were answered with a status to ask again for.
pub(super) const RETRYABLE_STATUS: &str = "retryable_status";

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// An engine's answer went through.
    Answered(StopReason),
    /// The answer broke off in the middle.
    Cut,
    /// The client left.
    ClientGone,
    /// We answered with an error of our own.
    OwnError(ApiError),
    /// We answered ourselves, as asked.
    Local,
}

impl End {
    /// The closed list of outcomes a request is counted under.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Answered(StopReason::BudgetSpent) => "exhausted",
            Self::Answered(_) | Self::Local => ANSWERED,
            Self::Cut => "cut",
            Self::ClientGone => "client_gone",
            Self::OwnError(_) => "own_error",
        }
    }
}

impl End {
    /// The word for the log on why the request ended.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Answered(reason) => reason.label(),
            Self::Local => StopReason::Answered.label(),
            Self::Cut => StopReason::Committed.label(),
            Self::ClientGone => StopReason::ClientGone.label(),
            Self::OwnError(error) => error.code(),
        }
    }

    /// The word for an attempt that was running when the request ended.
    pub(super) fn attempt_label(&self) -> &'static str {
        match self {
            Self::Answered(StopReason::BudgetSpent | StopReason::NotRepeatable) => RETRYABLE_STATUS,
            end => end.outcome(),
        }
    }
}

impl Context {
    /// A request of which nothing is known but what came with it.
    pub(super) fn new(
        exchange: Arc<Exchange>,
        plan: Arc<Plan>,
        route: Arc<str>,
        in_flight: Option<GaugeGuard>,
    ) -> Self {
        Self {
            exchange,
            plan,
            _in_flight: in_flight,
            request_id: String::new(),
            trace: None,
            route,
            stream: false,
            may_pin: false,
            forward: None,
            end: None,
            stop: None,
            upload: None,
            attempts: SmallVec::new(),
            backoff_total: Duration::ZERO,
            backoffs: Vec::new(),
            held: Duration::ZERO,
            holds: Vec::new(),
            is_discarding: false,
        }
    }

    /// The tokens the engine has told of.
    pub(super) fn usage(&self) -> Usage {
        let forward = self.forward.as_ref();
        forward.map_or_else(Usage::default, |forward| forward.tally.usage())
    }

    /// The attempt that runs.
    pub(super) fn running(&self) -> Option<&Running> {
        self.forward.as_ref()?.running.as_ref()
    }

    /// The attempt that runs, to take note of something.
    pub(super) fn running_mut(&mut self) -> Option<&mut Running> {
        self.forward.as_mut()?.running.as_mut()
    }

    /// Takes note that the connect to `peer` is not over; whether there is an attempt it is of.
    pub(super) fn goes_on_connecting(&mut self, peer: &HttpPeer) -> bool {
        let connector = self
            .running_mut()
            .and_then(|running| running.connector.clone());
        let (Some(connector), Some(forward)) = (connector, &mut self.forward) else {
            return false;
        };
        let peer = Box::new(peer.clone());
        forward.connecting = Some(Connecting { peer, connector });
        true
    }

    /// The error to answer with when the last attempt was a failure.
    pub(super) fn error_for(&self, failure: Failure) -> ApiError {
        let spent = self
            .forward
            .as_ref()
            .map_or(0, |forward| forward.attempts.spent());
        if failure.is_timeout() {
            ApiError::engine_timeout(spent)
        } else {
            ApiError::engine_unreachable(spent)
        }
    }
}

impl Running {
    /// Ends it now, as an attempt of a request received then: its engine is free of it.
    pub(super) fn ended(self, received: Instant, now: Instant, outcome: &'static str) -> Attempt {
        let retry = self.retry;
        Attempt {
            engine: Arc::clone(self.engine.label()),
            outcome,
            status: self.status,
            begun: self.started.duration_since(received),
            took: now.duration_since(self.started),
            retry: retry.map(|decided| (decided.reason.label(), decided.backoff)),
            reused: self.reused,
        }
    }
}
