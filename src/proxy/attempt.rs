//! Begins the next attempt: waits out the backoff, picks an engine, says how to reach it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use pingora_core::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use pingora_core::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tokio::time::Instant;

use super::Router;
use super::connect::{EngineConnector, Way, protocol};
use super::context::{Afterwards, Connecting, Context, Decided, End, Running};
use crate::api_error::ApiError;
use crate::record::Backoff;
use crate::retry::{Failure, Outcome};
use crate::routing::Ask;

/// From this length on, in bytes, a body gets a connection of its own: it may not fit the buffers
/// between us and the engine, and a fresh connection costs little beside it.
const LARGE_BODY: usize = 256 * 1024;

/// How long a connection is kept that is not to be used again. Not zero: Pingora's timer, should
/// this be its first use, counts from one, and debug builds would panic.
const NOT_KEPT: Duration = Duration::from_millis(1);

impl Router {
    /// See [`ProxyHttp::upstream_peer`](pingora_proxy::ProxyHttp::upstream_peer).
    pub(super) async fn next_peer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> Result<Box<HttpPeer>> {
        ctx.exchange.end_attempt();
        let connecting = ctx
            .forward
            .as_mut()
            .and_then(|forward| forward.connecting.take());
        if let Some(connecting) = connecting {
            return self.go_on(session, ctx, connecting).await;
        }
        let decided = wait_out(session, ctx).await?;
        self.hold(session, ctx).await?;
        let Some(forward) = &mut ctx.forward else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let fresh = std::mem::take(&mut forward.again_fresh);
        if !fresh {
            if decided.is_some() {
                forward.pool = self.fleet.renewed(&forward.pool);
            }
            let ask = Ask {
                session: forward.session.as_deref(),
                prompt: forward.prompt.as_ref(),
                draw: rand::random(),
                now: self.fleet.now(),
                ..Ask::default()
            };
            let Some((engine, placed)) = forward.pool.place(&forward.attempts, &ask) else {
                let model = forward.pool.model();
                ctx.end = Some(End::OwnError(ApiError::no_engine_available(model)));
                return Err(Error::new_up(ErrorType::ConnectNoRoute));
            };
            if let (Some(decided), Some(metrics)) = (decided, self.metrics()) {
                metrics.retried(decided.reason.label(), decided.backoff);
            }
            forward.attempts.begin(engine.id());
            forward.running = Some(Running {
                engine: Arc::clone(engine),
                placed,
                started: Instant::now(),
                retry: decided,
                status: None,
                told: false,
                reused: None,
                connector: None,
            });
        }
        let target = forward.running.as_ref().and_then(|running| {
            // In this order: a key that is too old finds no connection, one too new another's.
            let key = running.engine.pool_key();
            let address = running.engine.address()?;
            Some((Arc::clone(&running.engine), key, address))
        });
        let Some((engine, key, address)) = target else {
            // Its name has no address: an attempt like one that is refused.
            let retry = self.conclude(
                ctx,
                Outcome::Failed(Failure::Connect),
                Failure::Connect.label(),
            );
            let mut error = Error::new_up(ErrorType::ConnectNoRoute);
            error.set_retry(retry);
            return Err(error);
        };
        // A pooled connection may turn out stale, and then nobody knows whether the engine has
        // acted; a request that must not be repeated keeps away from them.
        let upload = forward.length.is_some_and(|length| length >= LARGE_BODY);
        let fresh = fresh || upload || !forward.attempts.is_repeatable();
        forward.afterwards = if fresh {
            Afterwards::Closed
        } else {
            Afterwards::Pooled
        };
        let mut peer = HttpPeer::new(address, false, String::new());
        // What is not for engines was removed once, for all attempts.
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::preserve();
        peer.options.alpn = protocol();
        // Engines share no connections, even where two of them have one address.
        peer.group_key = key;
        peer.options.idle_timeout = Some(ctx.plan.engine_keepalive);
        if fresh {
            // No pooled connection has this key, and this one is not pooled.
            peer.group_key = self.next_fresh_group();
            peer.options.idle_timeout = Some(NOT_KEPT);
        }
        let connector = Arc::new(EngineConnector::new(Way {
            engine,
            upload,
            limit: ctx.plan.connect_timeout,
        }));
        peer.options.custom_l4 = Some(connector.clone());
        if let Some(running) = &mut forward.running {
            running.connector = Some(connector);
        }
        Ok(Box::new(peer))
    }

    /// Waits for the connect of the attempt that runs, unless the client leaves first.
    async fn go_on(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        connecting: Connecting,
    ) -> Result<Box<HttpPeer>> {
        let finish = connecting.connector.finish();
        match unless_it_leaves(session, finish).await {
            Ok(()) => Ok(connecting.peer),
            Err(mut gone) => {
                self.conclude(ctx, Outcome::ClientGone, "client_gone");
                gone.as_down();
                gone.set_retry(false);
                Err(gone)
            }
        }
    }
}

/// Waits out the backoff before the attempt that was decided on, unless the client leaves.
async fn wait_out(session: &mut Session, ctx: &mut Context) -> Result<Option<Decided>> {
    let decided = ctx
        .forward
        .as_mut()
        .and_then(|forward| forward.decided.take());
    let waited = match decided.filter(|decided| !decided.backoff.is_zero()) {
        Some(decided) => {
            let begun = Instant::now();
            ctx.backoffs.push(Backoff {
                begun: begun.duration_since(ctx.exchange.received()),
                delay: decided.backoff,
                reason: decided.reason.label(),
            });
            let waited = wait(session, decided.backoff).await;
            ctx.backoff_total += begun.elapsed();
            waited
        }
        None => wait(session, Duration::ZERO).await,
    };
    if let Err(mut gone) = waited {
        ctx.end = Some(End::ClientGone);
        gone.as_down();
        gone.set_retry(false);
        return Err(gone);
    }
    Ok(decided)
}

/// Waits, unless the client leaves first. A wait of zero still looks whether it has left.
async fn wait(session: &mut Session, backoff: Duration) -> Result<()> {
    if backoff.is_zero() {
        let watch = session.downstream_session.read_body_or_idle(true);
        return match watch.now_or_never() {
            Some(Err(gone)) => Err(gone),
            _ => Ok(()),
        };
    }
    unless_it_leaves(session, tokio::time::sleep(backoff)).await
}

/// Does `work`, unless the client leaves first.
async fn unless_it_leaves(session: &mut Session, work: impl Future<Output = ()>) -> Result<()> {
    let watch = session.downstream_session.read_body_or_idle(true);
    let mut work = std::pin::pin!(work);
    tokio::select! {
        biased;
        event = watch => {
            event?;
            // Nothing but the end of the connection can come; if it does, the work goes on.
            work.await;
            Ok(())
        }
        () = work.as_mut() => Ok(()),
    }
}
