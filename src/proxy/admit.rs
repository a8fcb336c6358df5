//! Decides what to do with a request before any engine hears of it.
//!
//! In this order: the key, the route, the body, the model. So a client without a key learns
//! nothing, and a body is read only if something can come of it.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, EXPECT, UPGRADE};
use http::{HeaderMap, Method, Version};
use percent_encoding::percent_decode_str;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::RequestHeader;
use pingora_proxy::Session;

use super::Router;
use super::authorize::{holds_one_of, is_authorized};
use super::context::{Afterwards, Context, End, Forward};
use super::headers::{Forwarding, to_engines};
use super::hop_by_hop;
use super::local::Own;
use super::pin::{pairs, pin, target_without_pin};
use super::plan::Plan;
use super::tally::Tally;
use crate::api_error::ApiError;
use crate::edge::is_lack_of_room;
use crate::engines::{Lookup, Pool};
use crate::request::body::{Format, Reading, Renamed, Unroutable, codings};
use crate::request::coding::CodingError;
use crate::request::route::{Action, BodyKind, Found, ModelSource, RESPONSES, Route};
use crate::retry::{Attempts, Resend};
use crate::routing::Blocks;

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

impl From<Unroutable> for Stop {
    fn from(error: Unroutable) -> Self {
        Self::Refused(match error {
            Unroutable::Coding(CodingError::TooLarge(limit)) => ApiError::request_too_large(limit),
            Unroutable::Coding(CodingError::Unsupported(_) | CodingError::TooMany) => {
                ApiError::unsupported_media_type(error.to_string())
            }
            error => ApiError::invalid_request(error.to_string()),
        })
    }
}

/// What to do with an admitted request.
enum Admitted {
    Forward(Box<Forward>),
    /// The router answers.
    Own(Own),
}

/// Where a request goes.
struct Target {
    pool: Arc<Pool>,
    /// The body to send, where it is not the client's.
    renamed: Option<Renamed>,
    session: Option<String>,
    prompt: Option<Blocks>,
}

impl Target {
    fn of(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            renamed: None,
            session: None,
            prompt: None,
        }
    }
}

impl Router {
    /// Whether the request has been answered here.
    pub(super) async fn admit(&self, session: &mut Session, ctx: &mut Context) -> Result<bool> {
        match self.decide(session, ctx).await {
            Ok(Admitted::Forward(forward)) => {
                let request = session.req_header_mut();
                hop_by_hop::end_of_client(request, forward.upgrade)?;
                let forwarding = Forwarding {
                    request_id: &ctx.request_id,
                    client: ctx.exchange.client_ip(),
                    length: forward.length,
                    decoded: forward.decoded,
                    credential: ctx.plan.credential(&request.headers),
                };
                to_engines(request, &forwarding)?;
                ctx.forward = Some(*forward);
                return Ok(false);
            }
            Ok(Admitted::Own(own)) => self.answer_self(session, ctx, own).await?,
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
        let plan = Arc::clone(&ctx.plan);
        let request = session.req_header();
        let path = request.uri.path();
        let holds_pin_key = holds_one_of(&plan.pin_api_keys, &request.headers);
        ctx.may_pin = plan.allow_pins || holds_pin_key;
        if !plan.routes.is_open(path)
            && !holds_pin_key
            && !is_authorized(&plan.api_keys, &request.headers)
        {
            return Err(ApiError::invalid_api_key().into());
        }
        let route = match plan.routes.find(&request.method, path) {
            Found::Route(route) => route,
            Found::OtherMethod(allow) => {
                return Err(ApiError::method_not_allowed(request.method.as_str(), allow).into());
            }
            Found::Nothing => return Err(ApiError::not_found(path).into()),
        };
        ctx.route = Arc::clone(&route.path);
        let own = match route.action {
            Action::Forward { model, resend } => {
                if !hop_by_hop::is_acceptable(&request.headers) {
                    let text = "the Connection field is malformed, or names what must be kept";
                    return Err(ApiError::invalid_request(text).into());
                }
                let body = read_body(session, plan.max_body).await;
                ctx.upload = Some(ctx.exchange.received().elapsed());
                let body = body?;
                let forward = self.route_to_engines(session, ctx, &body, route, (model, resend));
                return Ok(Admitted::Forward(Box::new(forward.await?)));
            }
            Action::Health => Own::Health,
            Action::Version => Own::Version,
            Action::ListModels => Own::ListModels,
            Action::ShowModel => {
                Own::ShowModel(route.parameter(path).unwrap_or_default().to_owned())
            }
        };
        Ok(Admitted::Own(own))
    }

    async fn route_to_engines(
        &self,
        session: &mut Session,
        ctx: &mut Context,
        body: &Bytes,
        route: &Route,
        (model, resend): (ModelSource, Resend),
    ) -> Result<Forward, Stop> {
        let request = session.req_header();
        let Target {
            pool,
            renamed,
            session,
            prompt,
        } = match model {
            ModelSource::Any => Target::of(self.fleet.any()),
            ModelSource::Query => Target::of(self.pool_of_query(&ctx.plan, request.uri.query())?),
            ModelSource::Response => {
                let id = route.parameter(request.uri.path()).unwrap_or_default();
                Target::of(
                    self.pool_of_response(&ctx.plan, id, &request.headers)
                        .await?,
                )
            }
            ModelSource::Body => self.pool_of_body(request, ctx, body, Format::Json).await?,
            ModelSource::Form => self.pool_of_body(request, ctx, body, Format::Form).await?,
        };
        let (pool, is_pinned) = pin(request, !route.is_extra, ctx.may_pin, pool)?;
        let header = ctx.plan.session_header.as_ref();
        let header = header.and_then(|name| request.headers.get(name)?.to_str().ok());
        let session = header
            .filter(|session| !session.is_empty())
            .map(str::to_owned)
            .or(session);
        let declares = !body.is_empty()
            || request.headers.contains_key(CONTENT_LENGTH)
            || matches!(request.method, Method::POST | Method::PUT | Method::PATCH);
        let length = renamed
            .as_ref()
            .map_or(body.len(), |renamed| renamed.body.len());
        Ok(Forward {
            pool,
            attempts: Attempts::new(ctx.plan.retry.as_ref(), resend),
            session,
            prompt,
            target: (is_pinned && !route.is_extra)
                .then(|| target_without_pin(request))
                .flatten(),
            length: declares.then_some(length),
            upgrade: route.body == BodyKind::WebSocket && request.headers.contains_key(UPGRADE),
            decoded: renamed.as_ref().is_some_and(|renamed| renamed.decoded),
            rewritten: renamed.map(|renamed| renamed.body),
            decided: None,
            running: None,
            afterwards: Afterwards::Closed,
            again_fresh: false,
            connecting: None,
            first_event: None,
            denial: None,
            response_id: None,
            tally: Tally::new(self.books.is_some() && model != ModelSource::Response),
        })
    }

    /// What a body says of where its request goes.
    async fn pool_of_body(
        &self,
        request: &RequestHeader,
        ctx: &mut Context,
        body: &Bytes,
        format: Format,
    ) -> Result<Target, Stop> {
        let fields = &request.headers;
        let codings = codings(fields).map_err(Unroutable::from)?;
        let plan = Arc::clone(&ctx.plan);
        let limit = plan.max_body;
        let reading = if codings.is_empty() {
            Reading::of(format, fields, &codings, body, limit, &plan.wanted)?
        } else {
            // A few compressed bytes can be long to read, and many once they are read.
            let turn = Arc::clone(&self.decoders).acquire_owned().await;
            let turn = turn.map_err(|_| ApiError::internal())?;
            let (fields, body, wanted) = (fields.clone(), body.clone(), plan.wanted.clone());
            let read = move || {
                // Kept to the end, also where the client has left.
                let _turn = turn;
                Reading::of(format, &fields, &codings, &body, limit, &wanted)
            };
            tokio::task::spawn_blocking(read)
                .await
                .map_err(|_| ApiError::internal())??
        };
        ctx.stream = reading.stream();
        let (model, is_default) = match (reading.model(), &plan.default_model) {
            (Ok(model), _) => (model, false),
            (Err(error), Some(model)) if error.is_missing_model() => (model.as_str(), true),
            (Err(error), _) => return Err(error.into()),
        };
        let (pool, is_alias) = self.pool_of(&plan, model)?;
        let renamed = (is_alias || is_default).then(|| reading.renamed(body, pool.model()));
        let prompt = reading.prompt();
        let pool = match reading.previous_response_id() {
            Some(id) if *ctx.route == *RESPONSES => {
                self.pool_to_go_on(&plan, id, pool, fields).await
            }
            _ => pool,
        };
        Ok(Target {
            prompt: prompt.map(|prompt| Blocks::of(pool.model(), prompt)),
            pool,
            renamed,
            session: reading.session().map(str::to_owned),
        })
    }

    /// The pool of the model a query names; of the default one, or every engine, where it names
    /// none.
    fn pool_of_query(&self, plan: &Plan, query: Option<&str>) -> Result<Arc<Pool>, ApiError> {
        let model = pairs(query).filter(|(key, _)| *key == "model").last();
        let model = match (model, &plan.default_model) {
            (Some((_, model)), _) => percent_decode_str(model).decode_utf8_lossy(),
            (None, Some(model)) => model.as_str().into(),
            (None, None) => return Ok(self.fleet.any()),
        };
        self.pool_of(plan, &model).map(|(pool, _)| pool)
    }

    fn pool_of(&self, plan: &Plan, model: &str) -> Result<(Arc<Pool>, bool), ApiError> {
        match self.fleet.find(model) {
            Lookup::Pool(pool, is_alias) => Ok((pool, is_alias)),
            Lookup::NoEngine(pool, is_alias) if plan.hold.is_some() => Ok((pool, is_alias)),
            Lookup::NoEngine(..) => Err(ApiError::no_engine_available(model)),
            Lookup::Unknown => Err(ApiError::model_not_found(model)),
        }
    }
}

/// Reads the whole body, up to the limit.
async fn read_body(session: &mut Session, limit: usize) -> Result<Bytes, Stop> {
    let request = session.req_header();
    let declared = request
        .headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    if declared
        .and_then(|text| text.parse::<usize>().ok())
        .is_some_and(|n| n > limit)
    {
        return Err(ApiError::request_too_large(limit).into());
    }
    if request.version == Version::HTTP_11 && expects_continue(&request.headers) {
        session
            .downstream_session
            .write_continue_response()
            .await
            .map_err(|error| match error {
                error if is_lack_of_room(&error) => ApiError::overloaded().into(),
                error => Stop::Broken(error),
            })?;
    }
    let mut length = 0;
    while let Some(data) = session
        .downstream_session
        .read_request_body()
        .await
        .map_err(upload_stop)?
    {
        length += data.len();
        if length > limit {
            return Err(ApiError::request_too_large(limit).into());
        }
    }
    // The session keeps what it has read, for every attempt.
    Ok(session
        .downstream_session
        .get_retry_buffer()
        .unwrap_or_default())
}

/// Reads an error of an upload: who is at fault, and what can still be said.
fn upload_stop(error: Box<Error>) -> Stop {
    match error.etype {
        _ if is_lack_of_room(&error) => ApiError::overloaded().into(),
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
