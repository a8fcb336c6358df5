//! Sends who asks for a response to the engine that made it.

use std::sync::Arc;

use http::header::CONTENT_ENCODING;
use pingora_http::ResponseHeader;

use super::Router;
use super::context::Context;
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

    /// The engine that made the response `id`, as far as is remembered. A later request of the
    /// client has to be held to it: to read that response, to cancel it, or to go on from it
    /// (`previous_response_id`).
    pub(super) fn engine_of_response(&self, id: &str) -> Option<EngineId> {
        self.responses.engine_of(id)
    }

    /// The engines that may have the response `id`.
    pub(super) fn pool_of_response(&self, id: &str) -> Result<Arc<Pool>, ApiError> {
        let any = self.fleet.any();
        if any.engines().len() == 1 {
            return Ok(Arc::clone(any));
        }
        // SEAM: here the request is to be held to this one engine.
        match self.engine_of_response(id) {
            Some(_engine) => Ok(Arc::clone(any)),
            None => Err(ApiError::response_not_found(id)),
        }
    }
}
