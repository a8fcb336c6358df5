//! Begins the next attempt: waits out the backoff, picks an engine, says how to reach it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use pingora_core::upstreams::peer::{H1UpgradePolicy, HttpPeer};
use pingora_core::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tokio::time::Instant;

use super::Router;
use super::context::{Again, Context, End, Running};
use crate::api_error::ApiError;
use crate::engines::Engine;
use crate::retry::{Failure, Outcome};

impl Router {
    /// See [`ProxyHttp::upstream_peer`](pingora_proxy::ProxyHttp::upstream_peer).
    pub(super) async fn next_peer(
        &self,
        session: &mut Session,
        ctx: &mut Context,
    ) -> Result<Box<HttpPeer>> {
        ctx.exchange.end_attempt();
        let backoff = ctx
            .forward
            .as_mut()
            .map(|forward| std::mem::take(&mut forward.backoff));
        if let Err(mut gone) = wait(session, backoff.unwrap_or_default()).await {
            ctx.end = Some(End::ClientGone);
            gone.as_down();
            gone.set_retry(false);
            return Err(gone);
        }
        let Some(forward) = &mut ctx.forward else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let again = forward.again.take();
        if again.is_none() {
            let Some(engine) = forward.pool.pick(&forward.attempts) else {
                let model = forward.pool.model();
                ctx.end = Some(End::OwnError(ApiError::no_engine_available(model)));
                return Err(Error::new_up(ErrorType::ConnectNoRoute));
            };
            forward.attempts.begin(engine.id());
            forward.running = Some(Running {
                engine: Arc::clone(engine),
                _in_flight: engine.enter(),
                started: Instant::now(),
                address: 0,
                status: None,
            });
        }
        let target = forward.running.as_ref().and_then(|running| {
            let address = running.engine.address(running.address)?;
            Some((Arc::clone(&running.engine), address))
        });
        let Some((engine, address)) = target else {
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
        let mut peer = HttpPeer::new(address, false, String::new());
        self.apply_options(&mut peer, &engine, again == Some(Again::Fresh));
        Ok(Box::new(peer))
    }

    fn apply_options(&self, peer: &mut HttpPeer, engine: &Engine, fresh: bool) {
        peer.options.connection_timeout = Some(self.connect_timeout);
        peer.options.idle_timeout = Some(self.engine_keepalive);
        // No route speaks anything but HTTP, so no client gets a tunnel.
        peer.options.http_upstream_request_policy.h1_upgrade = H1UpgradePolicy::Deny;
        // Engines share no connections, even where two of them have one address.
        peer.group_key = engine.id().number();
        if fresh {
            // No pooled connection has this key, and this one is not pooled.
            peer.group_key = u64::MAX - self.next_fresh_group();
            peer.options.idle_timeout = Some(Duration::ZERO);
        }
    }
}

/// Goes on with the engine's next address, if it has one; such a step is not an attempt.
pub(super) fn tries_next_address(ctx: &mut Context) -> bool {
    let Some(forward) = &mut ctx.forward else {
        return false;
    };
    let Some(running) = &mut forward.running else {
        return false;
    };
    running.address += 1;
    let another = running.engine.address(running.address).is_some();
    forward.again = another.then_some(Again::NextAddress);
    another
}

/// Waits, unless the client leaves first. A wait of zero still looks whether it has left.
async fn wait(session: &mut Session, backoff: Duration) -> Result<()> {
    let mut watch = std::pin::pin!(session.downstream_session.read_body_or_idle(true));
    if backoff.is_zero() {
        return match watch.as_mut().now_or_never() {
            Some(Err(gone)) => Err(gone),
            _ => Ok(()),
        };
    }
    let mut sleep = std::pin::pin!(tokio::time::sleep(backoff));
    tokio::select! {
        biased;
        event = watch => {
            event?;
            // Nothing but the end of the connection can come; if it does, the wait goes on.
            sleep.await;
            Ok(())
        }
        () = sleep.as_mut() => Ok(()),
    }
}
