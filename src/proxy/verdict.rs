//! What follows an attempt: asks the retry policy, and takes note of its answer.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue};
use pingora_core::{Error, ErrorType};
use pingora_http::ResponseHeader;
use rand::RngExt as _;
use tokio::time::Instant;

use super::Router;
use super::context::{self, Context, Decided, End};
use crate::retry::{Next, Outcome};

impl Router {
    /// The running attempt has ended; whether another one follows.
    pub(super) fn conclude(
        &self,
        ctx: &mut Context,
        outcome: Outcome,
        label: &'static str,
    ) -> bool {
        if let Outcome::Failed(failure) = outcome
            && let Some(running) = ctx.running()
        {
            self.fleet.failed(&running.engine, failure);
        }
        self.end_attempt(ctx, label, Instant::now);
        self.follows(ctx, outcome)
    }

    /// The running attempt has answered with `status`; whether that answer is discarded, and
    /// another attempt follows.
    pub(super) fn discards(&self, ctx: &mut Context, status: u16) -> bool {
        if let Some(running) = ctx.running_mut() {
            running.status = Some(status);
            // That it works a success shows with its first byte: a frozen engine sends the head.
            if !running.told && !(200..300).contains(&status) {
                running.told = true;
                self.fleet.answered(&running.engine, status);
            }
        }
        let discarded = self.follows(ctx, Outcome::Status(status));
        if discarded {
            self.end_attempt(ctx, context::RETRYABLE_STATUS, Instant::now);
        }
        discarded
    }

    /// Asks the policy what follows an attempt, and takes note of the answer.
    pub(super) fn follows(&self, ctx: &mut Context, outcome: Outcome) -> bool {
        let Some(forward) = &mut ctx.forward else {
            return false;
        };
        let draw = rand::rng().random::<f64>();
        // Engines may have come and gone since the request began.
        forward.pool = self.fleet.renewed(&forward.pool);
        let others = if outcome.excludes() {
            forward.pool.awake(self.fleet.now())
        } else {
            Vec::new()
        };
        match forward.attempts.after(outcome, &others, draw) {
            Next::Retry { backoff, reason } => {
                forward.decided = Some(Decided { reason, backoff });
                // A head that looked final may have gone before; it decides nothing any more.
                ctx.end = None;
                ctx.stop = None;
                true
            }
            Next::Stop(reason) => {
                ctx.stop = Some(reason);
                ctx.end = Some(match outcome {
                    Outcome::Status(_) | Outcome::NotServed => End::Answered(reason),
                    Outcome::Failed(failure) => End::OwnError(ctx.error_for(failure)),
                    Outcome::Cut => End::Cut,
                    Outcome::ClientGone => End::ClientGone,
                });
                false
            }
        }
    }

    /// A part of an answer has come, or its end: the engine works.
    pub(super) fn works(&self, ctx: &mut Context) {
        let Some(running) = ctx.running_mut() else {
            return;
        };
        running.placed.answers();
        let status = running.status.unwrap_or(200);
        if !running.told {
            running.told = true;
            self.fleet.answered(&running.engine, status);
        } else if (200..300).contains(&status) {
            running.engine.works();
        }
    }

    /// The running attempt, if there is one, has ended; `now` is asked only where that is written
    /// down.
    pub(super) fn end_attempt(
        &self,
        ctx: &mut Context,
        label: &'static str,
        now: impl FnOnce() -> Instant,
    ) {
        let running = ctx
            .forward
            .as_mut()
            .and_then(|forward| forward.running.take());
        // Its engine is free of it now, whether or not that is written down.
        if let (Some(running), Some(metrics)) = (running, self.metrics()) {
            let attempt = running.ended(ctx.exchange.received(), now(), label);
            metrics.attempt_ended(&attempt);
            ctx.attempts.push(attempt);
        }
    }
}

/// The error that makes Pingora drop an attempt's connection and call `upstream_peer` again.
pub(super) fn ask_again(status: u16) -> Box<Error> {
    let mut error = Error::new_up(ErrorType::HTTPStatus(status));
    error.set_retry(true);
    error
}

/// Whether the response is a stream whose events can be read.
pub(super) fn is_event_stream(response: &ResponseHeader) -> bool {
    let stream = |value: &HeaderValue| value.as_bytes().starts_with(b"text/event-stream");
    response.headers.get(CONTENT_TYPE).is_some_and(stream)
        && !response.headers.contains_key(CONTENT_ENCODING)
}
