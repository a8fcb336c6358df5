//! Sends who asks for a response to the engine that made it.

use std::sync::Arc;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue};
use pingora_http::ResponseHeader;

use super::Router;
use super::context::Context;
use super::plan::Plan;
use super::response_id::ResponseId;
use super::verdict::is_event_stream;
use crate::api_error::ApiError;
use crate::engines::{EngineId, Pool};
use crate::request::route::RESPONSES;

/// The search for the id of a response in an answer on `route`; `None` where it brings none.
pub(super) fn search(route: &str, head: &ResponseHeader) -> Option<ResponseId> {
    let brings = route == RESPONSES
        && head.status.is_success()
        && !head.headers.contains_key(CONTENT_ENCODING);
    brings.then(|| {
        if is_event_stream(head) {
            ResponseId::in_stream()
        } else {
            ResponseId::in_json()
        }
    })
}

impl Router {
    /// Remembers the engine of a response as soon as its id has passed.
    pub(super) fn note_response(&self, ctx: &mut Context, data: &[u8]) {
        let Some(forward) = &mut ctx.forward else {
            return;
        };
        if let Some(search) = &mut forward.response_id
            && let Some(running) = &forward.running
            && let Some(id) = search.push(data)
        {
            self.responses.remember(&id, running.engine.id());
        }
    }

    /// The engine that made the response `id`. A later request of the client is held to it: to
    /// read that response, to cancel it, or to go on from it (`previous_response_id`).
    ///
    /// Where that is not remembered, after a restart or because another router made it, the
    /// engines of `pool` are asked.
    async fn engine_of_response(
        &self,
        plan: &Plan,
        id: &str,
        pool: &Pool,
        client: &HeaderMap,
    ) -> Option<EngineId> {
        if let Some(engine) = self.responses.engine_of(id) {
            return Some(engine);
        }
        let authorization = plan.clients_authorization(client);
        let authorization = authorization.map(HeaderValue::as_bytes);
        let engine = self.catalog.find_response(id, pool, authorization).await?;
        self.responses.remember(id, engine);
        Some(engine)
    }

    /// The one engine that has the response `id`.
    pub(super) async fn pool_of_response(
        &self,
        plan: &Plan,
        id: &str,
        client: &HeaderMap,
    ) -> Result<Arc<Pool>, ApiError> {
        let any = self.fleet.any();
        if any.engines().len() == 1 {
            return Ok(any);
        }
        let engine = self.engine_of_response(plan, id, &any, client).await;
        match engine.and_then(|engine| any.pinned(engine)) {
            Some(pinned) => Ok(Arc::new(pinned)),
            None => Err(ApiError::response_not_found(id)),
        }
    }

    /// The engine of `pool` that can go on from the response `id`; all of `pool` where nobody has
    /// it, as then any of them can say so.
    pub(super) async fn pool_to_go_on(
        &self,
        plan: &Plan,
        id: &str,
        pool: Arc<Pool>,
        client: &HeaderMap,
    ) -> Arc<Pool> {
        if pool.engines().len() == 1 {
            return pool;
        }
        let engine = self.engine_of_response(plan, id, &pool, client).await;
        let pinned = engine.and_then(|engine| pool.pinned(engine));
        pinned.map_or(pool, Arc::new)
    }
}
