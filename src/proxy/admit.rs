//! Decides what to do with a request before any engine hears of it.
//!
//! In this order: the key, the route, the body, the model. So a client without a key learns
//! nothing, and a body is read only if something can come of it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, EXPECT};
use http::{HeaderMap, Method, Version};
use pingora_core::{Error, ErrorType, Result};
use pingora_proxy::Session;
use subtle::ConstantTimeEq as _;

use super::Router;
use super::context::{Context, End, Forward};
use crate::api_error::ApiError;
use crate::config::Secret;
use crate::engines::{Lookup, Pool};
use crate::request::json::{BodyError, Fields};
use crate::request::route::{Action, Found, HEALTH, ModelSource};
use crate::retry::{Attempts, Resend};

/// Why a request goes no further.
enum Stop {
    /// It is answered with this error.
    Refused(ApiError),
    /// The client is gone, or its connection cannot be used further.
    Broken(Box<Error>),
}

impl From<ApiError> for Stop {
    fn from(refusal: ApiError) -> Self {
        Self::Refused(refusal)
    }
}

impl From<BodyError> for Stop {
    fn from(error: BodyError) -> Self {
        Self::Refused(ApiError::invalid_request(error.to_string()))
    }
}

/// What to do with an admitted request.
enum Admitted {
    Forward(Box<Forward>),
    ListModels,
    Health,
}

impl Router {
    /// Whether the request has been answered here.
    pub(super) async fn admit(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        match self.decide(session, ctx).await {
            Ok(Admitted::Forward(forward)) => {
                ctx.forward = Some(*forward);
                return Ok(false);
            }
            Ok(Admitted::ListModels) => self.list_models(session, ctx).await?,
            Ok(Admitted::Health) => self.answer(session, ctx, 200, &[], Bytes::new()).await?,
            Err(Stop::Refused(refusal)) => self.refuse(session, ctx, &refusal).await?,
            Err(Stop::Broken(mut error)) => {
                ctx.end = Some(End::ClientGone);
                error.as_down();
                return Err(error);
            }
        }
        Ok(true)
    }

    async fn decide(&self, session: &mut Session, ctx: &mut Context) -> Result<Admitted, Stop> {
        let request = session.req_header();
        let path = request.uri.path();
        if path != HEALTH && !is_authorized(&self.api_keys, &request.headers) {
            return Err(ApiError::invalid_api_key().into());
        }
        let route = match self.routes.find(&request.method, path) {
            Found::Route(route) => route,
            Found::OtherMethod(allow) => {
                return Err(ApiError::method_not_allowed(request.method.as_str(), allow).into());
            }
            Found::Nothing => return Err(ApiError::not_found(path).into()),
        };
        ctx.route = Arc::clone(&route.path);
        match route.action {
            Action::Health => Ok(Admitted::Health),
            Action::ListModels => Ok(Admitted::ListModels),
            Action::Forward { model, resend } => {
                let body = self.read_body(session).await?;
                self.route_to_engines(session, ctx, &body, model, resend)
                    .map(|forward| Admitted::Forward(Box::new(forward)))
            }
        }
    }

    fn route_to_engines(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        body: &Bytes,
        model: ModelSource,
        resend: Resend,
    ) -> Result<Forward, Stop> {
        let mut rewritten = None;
        let pool = match model {
            ModelSource::Any => Arc::clone(self.fleet.any()),
            ModelSource::Body => {
                let fields = Fields::read(body)?;
                ctx.stream = fields.stream();
                let (pool, is_alias) = self.pool_of(fields.model()?)?;
                rewritten = is_alias.then(|| fields.with_model(body, pool.model()));
                pool
            }
        };
        let request = session.req_header();
        let declares = !body.is_empty()
            || request.headers.contains_key(CONTENT_LENGTH)
            || matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
        let length = rewritten.as_ref().map_or(body.len(), Bytes::len);
        Ok(Forward {
            pool,
            attempts: Attempts::new(self.retry.as_ref(), resend),
            length: declares.then_some(length),
            rewritten,
            decided: None,
            running: None,
            again: None,
            first_event: None,
        })
    }

    fn pool_of(&self, model: &str) -> Result<(Arc<Pool>, bool), ApiError> {
        match self.fleet.find(model) {
            Lookup::Pool(pool, is_alias) => Ok((pool, is_alias)),
            Lookup::NoEngine => Err(ApiError::no_engine_available(model)),
            Lookup::Unknown => Err(ApiError::model_not_found(model)),
        }
    }

    /// Reads the whole body, up to the limit.
    async fn read_body(&self, session: &mut Session) -> Result<Bytes, Stop> {
        let request = session.req_header();
        let declared = request
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        if declared
            .and_then(|text| text.parse::<usize>().ok())
            .is_some_and(|n| n > self.max_body)
        {
            return Err(ApiError::request_too_large(self.max_body).into());
        }
        if request.version == Version::HTTP_11 && expects_continue(&request.headers) {
            session
                .downstream_session
                .write_continue_response()
                .await
                .map_err(Stop::Broken)?;
        }
        let mut length = 0;
        while let Some(data) = session
            .downstream_session
            .read_request_body()
            .await
            .map_err(upload_stop)?
        {
            length += data.len();
            if length > self.max_body {
                return Err(ApiError::request_too_large(self.max_body).into());
            }
        }
        // The session keeps what it has read, for every attempt.
        Ok(session
            .downstream_session
            .get_retry_buffer()
            .unwrap_or_default())
    }

    async fn list_models(&self, session: &mut Session, ctx: &mut Context) -> Result<()> {
        let fields = &session.req_header().headers;
        let clients = fields
            .get(AUTHORIZATION)
            .filter(|_| self.api_keys.is_empty())
            .cloned();
        let models = self
            .catalog
            .models(clients.as_ref().map(http::HeaderValue::as_bytes))
            .await;
        if models.is_empty() {
            let refusal = ApiError::no_engines_available();
            return self.refuse(session, ctx, &refusal).await;
        }
        let data = models.iter().map(|model| &*model.json).collect();
        match serde_json::to_vec(&ModelList {
            object: "list",
            data,
        }) {
            Ok(body) => self.answer(session, ctx, 200, &[], body.into()).await,
            Err(_) => self.refuse(session, ctx, &ApiError::internal()).await,
        }
    }
}

/// The answer of `/v1/models`; each entry as its engine wrote it.
#[derive(serde::Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<&'a serde_json::value::RawValue>,
}

/// Reads an error of an upload: who is at fault, and what can still be said.
fn upload_stop(error: Box<Error>) -> Stop {
    match error.etype {
        ErrorType::ReadTimedout => {
            ApiError::request_timeout("the request body did not arrive in time").into()
        }
        ErrorType::ReadError | ErrorType::ConnectionClosed | ErrorType::H2Error => {
            Stop::Broken(error)
        }
        _ => ApiError::invalid_request("the request body is malformed").into(),
    }
}

fn expects_continue(fields: &HeaderMap) -> bool {
    let continues =
        |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    fields.get(EXPECT).is_some_and(continues)
}

/// Whether a request carries one of `keys` as its bearer token; without keys everybody may.
///
/// The key is compared exactly, and in a time that does not depend on how much of it is right.
fn is_authorized(keys: &[Secret], fields: &HeaderMap) -> bool {
    if keys.is_empty() {
        return true;
    }
    let mut given = fields.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return false;
    };
    let value = value.as_bytes();
    let Some((scheme, token)) = value.split_at_checked(b"Bearer ".len()) else {
        return false;
    };
    // Every key is looked at, whichever fits.
    let fits = keys.iter().fold(false, |fits, key| {
        fits | bool::from(key.expose().as_bytes().ct_eq(token))
    });
    scheme.eq_ignore_ascii_case(b"Bearer ") && fits
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn authorized(values: &[&'static str]) -> bool {
        let keys = ["one", "two-keys"].map(|key| Secret::try_new(key).unwrap());
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        is_authorized(&keys, &fields)
    }

    #[test]
    fn a_listed_key_opens() {
        assert!(authorized(&["Bearer one"]));
        assert!(authorized(&["bearer two-keys"]));
        assert!(is_authorized(&[], &HeaderMap::new()));
    }

    #[test]
    fn nothing_else_does() {
        for values in [
            &[][..],
            &["one"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer on"],
            &["Bearer onee"],
            &["Bearer One"],
            &["Bearer  one"],
            &["Bearer one "],
            &["Basic one"],
            &["Bearer one", "Bearer one"],
        ] {
            assert!(!authorized(values), "{values:?}");
        }
    }
}
