//! The routes the router answers itself.

use bytes::Bytes;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use pingora_core::Result;
use pingora_proxy::Session;
use serde_json::json;
use serde_json::value::RawValue;

use super::Router;
use super::context::Context;
use super::plan::Plan;
use crate::api_error::ApiError;
use crate::engines::{Lookup, ModelEntry};

/// What the router is asked itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// Whether it serves.
    Health,
    /// Which version it is.
    Version,
    /// Which models there are.
    ListModels,
    /// What the model of this name is, as it stands in the path.
    ShowModel(String),
}

impl Router {
    /// Answers a request that no engine is needed for, or all of them are.
    pub(super) async fn answer_self(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        own: Own,
    ) -> Result<()> {
        let body = match own {
            Own::Health => Ok(Bytes::new()),
            Own::Version => Ok(version()),
            Own::ListModels => self.list_models(&ctx.plan, session).await,
            Own::ShowModel(name) => self.show_model(&ctx.plan, session, &name).await,
        };
        match body {
            Ok(body) => self.answer(session, ctx, 200, &[], body).await,
            Err(refusal) => self.refuse(session, ctx, &refusal).await,
        }
    }

    async fn list_models(&self, plan: &Plan, session: &Session) -> Result<Bytes, ApiError> {
        let models = self.models(plan, session).await;
        if models.is_empty() {
            return Err(ApiError::no_engines_available());
        }
        let data = models.iter().map(|model| &*model.json).collect();
        let list = ModelList {
            object: "list",
            data,
        };
        serde_json::to_vec(&list)
            .map(Bytes::from)
            .map_err(|_| ApiError::internal())
    }

    /// The entry of one model, the same as in the list.
    async fn show_model(
        &self,
        plan: &Plan,
        session: &Session,
        encoded: &str,
    ) -> Result<Bytes, ApiError> {
        let name = percent_decode_str(encoded)
            .decode_utf8()
            .map_err(|_| ApiError::model_not_found(encoded))?;
        // Nobody needs to be asked for what nobody serves.
        if matches!(self.fleet.find(&name), Lookup::Unknown) {
            return Err(ApiError::model_not_found(&name));
        }
        let models = self.models(plan, session).await;
        match models.iter().find(|model| model.id == name) {
            Some(model) => Ok(Bytes::copy_from_slice(model.json.get().as_bytes())),
            None => Err(ApiError::no_engine_available(&name)),
        }
    }

    async fn models(&self, plan: &Plan, session: &Session) -> std::sync::Arc<Vec<ModelEntry>> {
        let fields = &session.req_header().headers;
        let clients = plan.clients_authorization(fields).cloned();
        self.catalog
            .models(clients.as_ref().map(HeaderValue::as_bytes))
            .await
    }
}

fn version() -> Bytes {
    json!({"version": env!("CARGO_PKG_VERSION")})
        .to_string()
        .into()
}

/// The answer of `/v1/models`; each entry as its engine wrote it.
#[derive(serde::Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<&'a RawValue>,
}
