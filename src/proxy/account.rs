//! Counts and logs each request once, at its end.

use std::sync::Arc;
use std::time::Duration;

use pingora_core::Error;
use pingora_proxy::Session;

use super::context::{self, Context, End};
use super::respond::new_request_id;
use super::{OTHER_ROUTE, Router};
use crate::access_log;
use crate::api_error::ApiError;
use crate::edge::OnRefusal;
use crate::metrics::{Metrics, RequestEnd};
use crate::retry::StopReason;

impl Router {
    /// Counts and logs a request at its end.
    pub(super) fn account(&self, session: &Session, error: Option<&Error>, ctx: &mut Context) {
        let end = ctx.end.take().unwrap_or_else(|| match error {
            None => End::Answered(StopReason::Answered),
            Some(_) => End::OwnError(ApiError::internal()),
        });
        if matches!(end, End::Answered(_)) {
            // Without a body there was no sign of it before.
            self.works(ctx);
        }
        self.end_attempt(ctx, end.attempt_label());
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
        let total = received.elapsed();
        self.metrics.request_ended(&RequestEnd {
            route: &ctx.route,
            model: if model.is_empty() { "unknown" } else { model },
            outcome: end.outcome(),
            status,
            total,
            first_byte,
        });
        let level = match end {
            End::Answered(_) | End::Local | End::ClientGone => log::Level::Info,
            End::OwnError(_) | End::Cut => log::Level::Warn,
        };
        if !log::log_enabled!(target: access_log::TARGET, level) {
            return;
        }
        let attempts: Vec<_> = ctx
            .attempts
            .iter()
            .map(context::AttemptRecord::entry)
            .collect();
        let request = session.req_header();
        let entry = access_log::Entry {
            request_id: &ctx.request_id,
            client: ctx.exchange.client(),
            method: request.method.as_str(),
            path: request.uri.path(),
            model,
            stream: ctx.stream,
            status,
            outcome: end.outcome(),
            reason: end.reason(),
            attempts: &attempts,
            backoff: ctx.backoff_total,
            first_byte,
            total,
            bytes_in: session.body_bytes_read(),
            bytes_out: session.body_bytes_sent(),
        };
        log::log!(target: access_log::TARGET, level, "{}", entry.line(self.access_log));
    }
}

/// Counts and logs the requests that are refused before they get as far as a [`Router`].
pub fn on_refusal(metrics: Metrics, format: access_log::Format) -> OnRefusal {
    Box::new(move |refusal, client| {
        let outcome = End::OwnError(refusal.clone()).outcome();
        metrics.request_ended(&RequestEnd {
            route: OTHER_ROUTE,
            model: "unknown",
            outcome,
            status: refusal.status(),
            total: Duration::ZERO,
            first_byte: None,
        });
        let entry = access_log::Entry {
            request_id: &new_request_id(rand::random()),
            client,
            method: "-",
            path: "",
            model: "",
            stream: false,
            status: refusal.status(),
            outcome,
            reason: refusal.code(),
            attempts: &[],
            backoff: Duration::ZERO,
            first_byte: None,
            total: Duration::ZERO,
            bytes_in: 0,
            bytes_out: 0,
        };
        log::warn!(target: access_log::TARGET, "{}", entry.line(format));
    })
}
