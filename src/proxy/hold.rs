//! Requests that wait for an engine to come up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pingora_core::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tokio::time::{Instant, sleep_until};

use super::Router;
use super::context::{Context, End};
use crate::api_error::ApiError;
use crate::engines::{Hope, Lookup};
use crate::metrics::Metrics;
use crate::record;

/// How long requests may wait, and how many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    /// The longest wait of a request, over all its attempts.
    pub(super) timeout: Duration,
    /// The most requests that wait at once.
    pub(super) most: usize,
}

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

/// A request that waits.
struct Waiting(Arc<AtomicUsize>);

impl Held {
    /// One more, if there is room.
    fn enter(&self, most: usize) -> Option<Waiting> {
        let room = |held: usize| (held < most).then_some(held + 1);
        let entered = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room);
        entered.is_ok().then(|| Waiting(Arc::clone(&self.0)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What became of a wait.
enum Ended {
    EngineUp,
    TimedOut,
    /// Meanwhile it has turned out that nobody has the model.
    Unknown,
    ClientGone(Box<Error>),
}

impl Router {
    /// Waits until some engine of the request's pool is up, where the plan has requests wait.
    pub(super) async fn hold(&self, session: &mut Session, ctx: &mut Context) -> Result<()> {
        let plan = Arc::clone(&ctx.plan);
        let Some(hold) = plan.hold else {
            return Ok(());
        };
        if self.has_hope(ctx) {
            return Ok(());
        }
        let begun = Instant::now();
        let left = hold.timeout.saturating_sub(ctx.held);
        let Some(_waiting) = self.held.enter(hold.most) else {
            self.count_hold("full");
            return Err(refused(ctx, ApiError::no_engine_available));
        };
        let counted = self.metrics().map(Metrics::hold_begun);
        let ended = self.wait_for_engine(session, ctx, begun + left).await;
        drop(counted);
        let took = begun.elapsed();
        let (word, result) = match ended {
            Ended::EngineUp => ("served", Ok(())),
            Ended::TimedOut => ("timeout", Err(refused(ctx, ApiError::no_engine_available))),
            Ended::Unknown => ("unknown", Err(refused(ctx, ApiError::model_not_found))),
            Ended::ClientGone(mut gone) => {
                ctx.end = Some(End::ClientGone);
                gone.as_down();
                gone.set_retry(false);
                ("client_gone", Err(gone))
            }
        };
        self.count_hold(word);
        ctx.held += took;
        ctx.holds.push(record::Hold {
            begun: begun.duration_since(ctx.exchange.received()),
            took,
            result: word,
        });
        result
    }

    fn count_hold(&self, result: &str) {
        if let Some(metrics) = self.metrics() {
            metrics.hold_ended(result);
        }
    }

    async fn wait_for_engine(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        deadline: Instant,
    ) -> Ended {
        let mut changes = self.fleet.watch();
        let mut client = std::pin::pin!(session.downstream_session.read_body_or_idle(true));
        let mut client_is_silent = false;
        loop {
            changes.mark_unchanged();
            let hope = self.renewed_hope(ctx);
            let wake = match hope {
                Some(Hope::Now) => return Ended::EngineUp,
                Some(Hope::At(trial)) => {
                    let wait = trial.saturating_sub(self.fleet.now());
                    deadline.min(Instant::now() + wait)
                }
                Some(Hope::None) => deadline,
                None => return Ended::Unknown,
            };
            tokio::select! {
                event = client.as_mut(), if !client_is_silent => match event {
                    Err(gone) => return Ended::ClientGone(gone),
                    // Nothing but the end of the connection can come; if it does, the wait goes on.
                    Ok(_) => client_is_silent = true,
                },
                _ = changes.changed() => {}
                () = sleep_until(wake) => {
                    if wake >= deadline {
                        return Ended::TimedOut;
                    }
                }
            }
        }
    }

    fn has_hope(&self, ctx: &Context) -> bool {
        // An attempt that runs goes on where it is.
        let forward = ctx
            .forward
            .as_ref()
            .filter(|forward| forward.running.is_none());
        forward.is_none_or(|forward| forward.pool.hope(self.fleet.now()) == Hope::Now)
    }

    /// What there is to hope for from the request's pool as it is now; `None` where nobody has the
    /// model.
    fn renewed_hope(&self, ctx: &mut Context) -> Option<Hope> {
        let forward = ctx.forward.as_mut()?;
        forward.pool = self.fleet.renewed(&forward.pool);
        let model = forward.pool.model();
        if forward.pool.is_empty()
            && !model.is_empty()
            && matches!(self.fleet.find(model), Lookup::Unknown)
        {
            return None;
        }
        Some(forward.pool.hope(self.fleet.now()))
    }
}

/// The end of a request that no engine was there for.
fn refused(ctx: &mut Context, why: fn(&str) -> ApiError) -> Box<Error> {
    let model = ctx.forward.as_ref().map(|forward| forward.pool.model());
    ctx.end = Some(End::OwnError(why(model.map_or("", |model| &**model))));
    Error::new_up(ErrorType::ConnectNoRoute)
}
