//! Makes the record of each request, once, at its end.

use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

use pingora_core::Error;
use pingora_proxy::Session;
use tokio::time::Instant;

use super::Router;
use super::context::{Context, End};
use super::respond::new_request_id;
use crate::api_error::ApiError;
use crate::edge::OnRefusal;
use crate::metrics::Metrics;
use crate::record::{OTHER_ROUTE, Observer as _, Observers, Record, Usage};
use crate::retry::StopReason;

/// What is written down of requests, beside the answers they get.
#[derive(Clone, Debug)]
pub struct Books {
    /// Counts what happens while requests run.
    pub metrics: Metrics,
    /// Are told how they ended.
    pub observers: Observers,
}

impl Router {
    /// Counts what happens while requests run, where anything is written down.
    pub(super) fn metrics(&self) -> Option<&Metrics> {
        self.books.as_ref().map(|books| &books.metrics)
    }

    /// Tells how a request ended.
    pub(super) fn account(&self, session: &Session, error: Option<&Error>, ctx: &mut Context) {
        let end = ctx.end.take().unwrap_or_else(|| match error {
            None => End::Answered(StopReason::Answered),
            Some(_) => End::OwnError(ApiError::internal()),
        });
        if matches!(end, End::Answered(_)) {
            // Without a body there was no sign of it before.
            self.works(ctx);
        }
        // Read once for all that is written down.
        let now = OnceCell::new();
        let now = || *now.get_or_init(Instant::now);
        self.end_attempt(ctx, end.attempt_label(), now);
        let Some(books) = &self.books else {
            return;
        };
        let now = now();
        let status = session
            .response_written()
            .map_or(0, |head| head.status.as_u16());
        let model = ctx
            .forward
            .as_ref()
            .map(|forward| Arc::clone(forward.pool.model()));
        let model = model.as_deref().unwrap_or_default();
        let received = ctx.exchange.received();
        let first_byte = ctx
            .exchange
            .first_byte()
            .map(|at| at.duration_since(received));
        let request = session.req_header();
        books.observers.ended(&Record {
            request_id: &ctx.request_id,
            trace: ctx.trace.as_ref(),
            client: ctx.exchange.client(),
            method: request.method.as_str(),
            path: request.uri.path(),
            route: &ctx.route,
            model,
            stream: ctx.stream,
            status,
            outcome: end.outcome(),
            reason: end.reason(),
            stop: ctx.stop,
            attempts: &ctx.attempts,
            upload: ctx.upload,
            backoff: ctx.backoff_total,
            backoffs: &ctx.backoffs,
            held: ctx.held,
            holds: &ctx.holds,
            first_byte,
            total: now.duration_since(received),
            at: Some(now),
            bytes_in: session.body_bytes_read(),
            bytes_out: session.body_bytes_sent(),
            usage: ctx.usage(),
        });
    }
}

/// Tells of the requests that are refused before they get as far as a [`Router`], and names each
/// for its client as it is logged.
pub fn on_refusal(observers: Observers) -> OnRefusal {
    Box::new(move |refusal, client| {
        let request_id = new_request_id(rand::random());
        observers.ended(&Record {
            request_id: &request_id,
            trace: None,
            client,
            method: "-",
            path: "",
            route: OTHER_ROUTE,
            model: "",
            stream: false,
            status: refusal.status(),
            outcome: End::OwnError(refusal.clone()).outcome(),
            reason: refusal.code(),
            stop: None,
            attempts: &[],
            upload: None,
            backoff: Duration::ZERO,
            backoffs: &[],
            held: Duration::ZERO,
            holds: &[],
            first_byte: None,
            total: Duration::ZERO,
            at: None,
            bytes_in: 0,
            bytes_out: 0,
            usage: Usage::default(),
        });
        request_id
    })
}
