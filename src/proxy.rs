//! The life of a request, as Pingora's hooks: each translates, asks, and applies the answer.
//!
//! | hook | what happens there |
//! |---|---|
//! | `request_filter` | key, route, body, model: `admit` |
//! | `upstream_peer` | waits out the backoff, picks an engine; waits for a slow connect |
//! | `connected_to_upstream` | whether the connection came from the pool is counted |
//! | `upstream_request_filter` | the head as the engine is to see it |
//! | `upstream_response_filter` | a retryable status asks the retry policy |
//! | `upstream_response_body_filter` | so does an error in a stream's first event, and a denied model |
//! | `fail_to_connect`, `error_while_proxy` | so does every failure |
//! | `fail_to_proxy` | our own error, if nothing has been sent |
//! | `logging` | the request is counted and logged, once |

mod account;
mod admit;
mod attempt;
mod authorize;
mod connect;
mod context;
mod denial;
mod dial;
mod discard;
mod engine_socket;
mod first_event;
mod headers;
mod hold;
mod hop_by_hop;
mod local;
mod pin;
mod plan;
mod respond;
mod response_id;
mod responses;
mod scan;
mod tally;
mod trace;
mod translate;
mod upload;
mod usage;
mod verdict;

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use http::Version;
use http::header::TRANSFER_ENCODING;
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use tokio::sync::Semaphore;

use crate::api_error::ApiError;
use crate::edge::Exchange;
use crate::engines::{Catalog, Fleet, Responses};
use crate::logging::Failure;
use crate::metrics::Metrics;
use crate::record::OTHER_ROUTE;
use crate::retry::Outcome;
use crate::traces::Tracer;

pub use account::{Books, on_refusal};
pub use connect::EngineConnections;
pub use context::Context;
use context::End;
use denial::Denial;
use dial::Dial;
use discard::discard;
use first_event::{FirstEvent, Verdict};
use hold::Held;
pub use plan::Plan;
use translate::{Ended, Progress};
use verdict::{ask_again, is_event_stream};

/// Forwards requests to engines, and asks again where the policy says so.
#[derive(Debug)]
pub struct Router {
    fleet: Arc<Fleet>,
    catalog: Arc<Catalog>,
    responses: Responses,
    books: Option<Books>,
    tracer: Option<Tracer>,
    other_route: Arc<str>,
    held: Held,
    /// Compressed bodies that may be read at once, each by a core.
    decoders: Arc<Semaphore>,
    plan: Arc<ArcSwap<Plan>>,
    /// Tells connections that must not come from the pool from all others.
    fresh: AtomicU64,
}

impl Router {
    /// A router over `fleet`, which follows `plan`; requests are written down in `books`, and
    /// `tracer` begins their traces, where these are there.
    pub fn new(
        plan: Arc<ArcSwap<Plan>>,
        fleet: Arc<Fleet>,
        catalog: Arc<Catalog>,
        books: Option<Books>,
        tracer: Option<Tracer>,
    ) -> Self {
        Self {
            fleet,
            catalog,
            responses: Responses::default(),
            books,
            tracer,
            other_route: OTHER_ROUTE.into(),
            held: Held::default(),
            decoders: Arc::new(Semaphore::new(cores())),
            plan,
            fresh: AtomicU64::new(1),
        }
    }

    /// A key that no connection in the pool has.
    fn next_fresh_group(&self) -> u64 {
        u64::MAX - self.fresh.fetch_add(1, Ordering::Relaxed)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[async_trait]
impl ProxyHttp for Router {
    // Pingora's future of a request would carry it, and be copied with it.
    type CTX = Box<Context>;

    fn new_ctx(&self) -> Self::CTX {
        let exchange = Exchange::current();
        exchange.known().unwrap_or_else(|| {
            let in_flight = self.metrics().map(Metrics::request_begun);
            let other = Arc::clone(&self.other_route);
            Box::new(Context::new(
                exchange,
                self.plan.load_full(),
                other,
                in_flight,
            ))
        })
    }

    /// Pingora would add a module that can compress; bytes are not ours to change.
    fn init_downstream_modules(&self, _modules: &mut HttpModules) {}

    async fn request_filter(&self, session: &mut Session, ctx: &mut Self::CTX) -> Result<bool> {
        if ctx.forward.is_some() {
            // Another pass, after an attempt that was refused.
            return Ok(false);
        }
        ctx.request_id = headers::request_id(&session.req_header().headers, || {
            respond::new_request_id(rand::random())
        });
        ctx.trace = self.begin_trace(&session.req_header().headers);
        self.admit(session, ctx).await
    }

    async fn upstream_peer(
        &self,
        session: &mut Session,
        ctx: &mut Self::CTX,
    ) -> Result<Box<HttpPeer>> {
        self.next_peer(session, ctx).await
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        reused: bool,
        _peer: &HttpPeer,
        _socket: RawFd,
        _digest: Option<&Digest>,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        if let Some(running) = ctx.running_mut() {
            running.reused = Some(reused);
            if let Some(connector) = running.connector.take() {
                connector.let_go();
            }
            if let Some(metrics) = self.metrics() {
                metrics.connected(running.engine.label(), reused);
            }
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        ctx.exchange.begin_attempt();
        let Some(forward) = &ctx.forward else {
            return Ok(());
        };
        let Some(running) = &forward.running else {
            return Ok(());
        };
        headers::to_engine(request, &running.engine, forward.target.as_deref())?;
        trace::to_engine(request, ctx.trace.as_ref(), forward.attempts.spent())
    }

    async fn request_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        // The whole body comes in one piece, on every attempt.
        if let Some(rewritten) = ctx
            .forward
            .as_ref()
            .and_then(|forward| forward.rewritten.as_ref())
        {
            *body = Some(rewritten.clone());
        }
        Ok(())
    }

    async fn upstream_response_filter(
        &self,
        _session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        let switching = response.status == http::StatusCode::SWITCHING_PROTOCOLS;
        if switching && !ctx.forward.as_ref().is_some_and(|forward| forward.upgrade) {
            // No upgrade was offered, so this is no answer at all.
            return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
        }
        if response.status.is_informational() && !switching {
            return Ok(());
        }
        if headers::is_oversized(response) || headers::is_ambiguous(response) {
            return Err(Error::new_up(ErrorType::InvalidHTTPHeader));
        }
        let status = response.status.as_u16();
        if self.discards(ctx, status) {
            return discard(ctx, response);
        }
        if let Some(forward) = &mut ctx.forward {
            let looked_at = ctx.plan.retry.is_some() && status == 200 && is_event_stream(response);
            forward.first_event = looked_at.then(FirstEvent::default);
            forward.response_id = responses::search(&ctx.route, response);
            let (route, model) = (&ctx.route, forward.pool.model());
            let pace = || Some(self.metrics()?.pace(route, model));
            forward.tally.begin(response, pace);
            forward.denial = Denial::search(forward, response);
        }
        Ok(())
    }

    fn upstream_response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        end: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        if ctx.is_discarding {
            *body = None;
            return Ok(None);
        }
        if self.is_denied(ctx, body, end) {
            return Err(ask_again(404));
        }
        let Some(event) = ctx
            .forward
            .as_mut()
            .and_then(|forward| forward.first_event.as_mut())
        else {
            if end || body.as_ref().is_some_and(|data| !data.is_empty()) {
                self.works(ctx);
            }
            return Ok(None);
        };
        let verdict = event.push(body.as_deref().unwrap_or_default(), end);
        if verdict == Verdict::Undecided {
            *body = None;
            return Ok(None);
        }
        let kept = ctx
            .forward
            .as_mut()
            .and_then(|forward| forward.first_event.take());
        if let Verdict::Status(status) = verdict
            && self.discards(ctx, status)
        {
            return Err(ask_again(status));
        }
        self.works(ctx);
        *body = kept.map(FirstEvent::into_bytes);
        Ok(None)
    }

    async fn response_filter(
        &self,
        session: &mut Session,
        response: &mut ResponseHeader,
        ctx: &mut Self::CTX,
    ) -> Result<()> {
        if ctx.is_discarding {
            return Ok(());
        }
        hop_by_hop::end_of_engine(response);
        if session.req_header().version == Version::HTTP_10 {
            // Such a client cannot read chunks; its answer ends with the connection.
            response.remove_header(&TRANSFER_ENCODING);
        }
        response.insert_header(headers::REQUEST_ID, &ctx.request_id)?;
        if let (Some(_), Some(forward)) = (&ctx.plan.retry, &ctx.forward) {
            response.insert_header(headers::ATTEMPTS, forward.attempts.spent())?;
        }
        if let Some(running) = ctx
            .forward
            .as_ref()
            .and_then(|forward| forward.running.as_ref())
            && ctx.may_pin
        {
            response.insert_header(headers::ENGINE, running.engine.name())?;
        }
        Ok(())
    }

    fn response_body_filter(
        &self,
        _session: &mut Session,
        body: &mut Option<Bytes>,
        _end: bool,
        ctx: &mut Self::CTX,
    ) -> Result<Option<Duration>> {
        if ctx.is_discarding {
            return Ok(None);
        }
        let data = body.as_deref().unwrap_or_default();
        self.note_response(ctx, data);
        if let Some(forward) = &mut ctx.forward
            && !data.is_empty()
        {
            // No attempt can follow now.
            forward.rewritten = None;
            forward.tally.push(data, || ctx.exchange.taken());
        }
        Ok(None)
    }

    fn fail_to_connect(
        &self,
        _session: &mut Session,
        peer: &HttpPeer,
        ctx: &mut Self::CTX,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if Dial::goes_on(&error) && ctx.goes_on_connecting(peer) {
            // Pingora asks for the peer again, and the connect is waited for there.
            error.set_retry(true);
            return error;
        }
        log::debug!("id={} connect failed: {}", ctx.request_id, Failure(&error));
        let failure = translate::connect_failure(&error);
        let retry = self.conclude(ctx, Outcome::Failed(failure), failure.label());
        error.set_retry(retry);
        error
    }

    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        ctx: &mut Self::CTX,
        reused: bool,
    ) -> Box<Error> {
        ctx.exchange.end_attempt();
        ctx.is_discarding = false;
        let Some(forward) = &mut ctx.forward else {
            error.set_retry(false);
            return error;
        };
        let Some(running) = &forward.running else {
            // Its status has decided about this attempt.
            error.set_retry(ctx.end.is_none());
            return error;
        };
        let progress = Progress {
            reused,
            head_seen: running.status.is_some(),
            committed: session.response_written().is_some(),
        };
        log::debug!(
            "id={} attempt on {} failed: {}",
            ctx.request_id,
            running.engine.label(),
            Failure(&error)
        );
        let retry = match translate::ended(&error, progress) {
            Ended::Stale => {
                if let Some(metrics) = self.metrics() {
                    metrics.stale_connection();
                }
                forward.again_fresh = true;
                true
            }
            Ended::Failed(failure) => self.conclude(ctx, Outcome::Failed(failure), failure.label()),
            Ended::Cut => self.conclude(ctx, Outcome::Cut, "cut"),
            Ended::ClientGone => self.conclude(ctx, Outcome::ClientGone, "client_gone"),
            // Ours to have seen before an engine was chosen, but the client can mend it.
            Ended::BadRequest => {
                self.conclude(ctx, Outcome::ClientGone, "internal");
                let refusal =
                    ApiError::invalid_request("the request's header fields are malformed");
                ctx.end = Some(End::OwnError(refusal));
                false
            }
            Ended::Internal => {
                log::error!("id={} internal error: {}", ctx.request_id, Failure(&error));
                self.conclude(ctx, Outcome::ClientGone, "internal");
                ctx.end = Some(if progress.committed {
                    End::Cut
                } else {
                    End::OwnError(ApiError::internal())
                });
                false
            }
        };
        error.set_retry(retry);
        error
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        ctx: &mut Self::CTX,
    ) -> FailToProxy {
        let end = ctx.end.get_or_insert_with(|| match error.esource() {
            pingora_core::ErrorSource::Downstream => End::ClientGone,
            _ => End::OwnError(ApiError::internal()),
        });
        let refusal = match end {
            End::OwnError(refusal) if session.response_written().is_none() => refusal.clone(),
            _ => {
                return FailToProxy {
                    error_code: 0,
                    can_reuse_downstream: false,
                };
            }
        };
        if let Err(error) = self.refuse(session, ctx, &refusal).await {
            log::debug!(
                "id={} the answer could not be sent: {}",
                ctx.request_id,
                Failure(&error)
            );
        }
        FailToProxy {
            error_code: refusal.status(),
            can_reuse_downstream: false,
        }
    }

    async fn logging(&self, session: &mut Session, error: Option<&Error>, ctx: &mut Self::CTX) {
        if ctx.is_discarding {
            return self.pass_on(ctx);
        }
        self.account(session, error, ctx);
    }

    // Every failure is in the access log, with the engine and the outcome of each attempt.
    fn suppress_error_log(&self, _session: &Session, _ctx: &Self::CTX, _error: &Error) -> bool {
        true
    }

    fn suppress_proxy_warn_log(
        &self,
        _session: &Session,
        _ctx: &Self::CTX,
        _error: &Error,
        _context: ProxyWarnLogContext,
    ) -> bool {
        true
    }
}
