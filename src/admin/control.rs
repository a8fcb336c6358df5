//! Calls that look into engines or change their state, fanned out to the engines they are for.
//!
//! Each engine hears a call once, all at the same time, and the answer tells what every one of
//! them said. On the admin port only: clients must not put an engine to sleep.
//!
//! vLLM routes left out on purpose: `/collective_rpc` and those of weight transfer, which belong
//! to one trainer and its engine; `/scale_elastic_ep` and `/fault_tolerance`, by which an engine
//! and its own supervisor talk.

mod effect;

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures::future::join_all;
use http::Method;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderName};
use pingora_core::protocols::http::ServerSession;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::timeout;

use super::addressees::Addressees;
use super::{Answer, JSON, comes_from_a_page};
use crate::api_error::ApiError;
use crate::engines::{Asker, Catalog, Engine, EngineKey, Fleet, IS_SLEEPING, Question};

pub use effect::Effect;
use effect::{Heard, is_done};

/// How long one engine may take: to fall asleep, to wake up, or to fetch an adapter.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The largest body of a call, in bytes.
pub const MAX_BODY: usize = 1024 * 1024;

/// How long the body of a call may take to arrive.
const UPLOAD_LIMIT: Duration = Duration::from_secs(10);

/// A control route of vLLM.
#[derive(Debug)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path, on engines and here.
    pub path: &'static str,
    /// What the router has to take note of once it is done.
    pub effect: Effect,
}

const fn read(path: &'static str, effect: Effect) -> Call {
    Call {
        method: Method::GET,
        path,
        effect,
    }
}

const fn change(path: &'static str, effect: Effect) -> Call {
    Call {
        method: Method::POST,
        path,
        effect,
    }
}

/// All of them.
pub const CALLS: &[Call] = &[
    change("/sleep", Effect::Sleep),
    change("/wake_up", Effect::Wake),
    change("/release_kv_cache_memory", Effect::Cache),
    read(IS_SLEEPING, Effect::TellsSleep),
    change("/v1/load_lora_adapter", Effect::Models),
    change("/v1/unload_lora_adapter", Effect::Models),
    change("/reset_prefix_cache", Effect::Cache),
    change("/reset_mm_cache", Effect::None),
    change("/reset_encoder_cache", Effect::None),
    change("/pause", Effect::None),
    change("/resume", Effect::None),
    read("/is_paused", Effect::None),
    change("/abort_requests", Effect::None),
    change("/inference/v1/abort_requests", Effect::None),
    change("/start_profile", Effect::None),
    change("/stop_profile", Effect::None),
    read("/load", Effect::None),
    read("/server_info", Effect::None),
    read("/kv_event_sources", Effect::None),
];

/// Tells engines what to do.
#[derive(Debug)]
pub struct Control {
    fleet: Arc<Fleet>,
    catalog: Arc<Catalog>,
    asker: Asker,
    key: Arc<EngineKey>,
}

/// A call as it is to reach every engine.
struct Told<'a> {
    call: &'a Call,
    target: String,
    authorization: Option<Vec<u8>>,
    content_type: Option<Vec<u8>>,
    body: BytesMut,
}

/// What one engine said, as it is shown.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Said<'a> {
    Answer {
        engine: &'a str,
        status: u16,
        body: Box<RawValue>,
    },
    Failure {
        engine: &'a str,
        error: String,
    },
}

#[derive(serde::Serialize)]
struct All<'a> {
    engines: Vec<Said<'a>>,
}

impl Control {
    /// The control of `fleet`; `key` is presented to engines, or else the caller's own.
    pub fn new(fleet: &Arc<Fleet>, catalog: &Arc<Catalog>, key: &Arc<EngineKey>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            catalog: Arc::clone(catalog),
            asker: Asker::new(LIMIT),
            key: Arc::clone(key),
        }
    }

    /// Passes a call on to the engines its query names, and tells what they said: 200 if all of
    /// them did as they were told, else 502.
    ///
    /// # Errors
    /// The call goes to nobody, and why.
    pub(super) async fn answer(
        &self,
        call: &Call,
        session: &mut ServerSession,
    ) -> Result<Answer, ApiError> {
        let request = session.req_header();
        if comes_from_a_page(&request.headers) {
            return Err(ApiError::foreign_origin());
        }
        if request.method != call.method {
            let allow = if call.method == Method::GET {
                "GET"
            } else {
                "POST"
            };
            return Err(ApiError::method_not_allowed(request.method.as_str(), allow));
        }
        let query = request.uri.query().unwrap_or_default();
        let Addressees { engines, query } = Addressees::read(&self.fleet, query)?;
        let field = |name: HeaderName| Some(request.headers.get(name)?.as_bytes().to_vec());
        let own = || Some(self.key.authorization()?.as_bytes().to_vec());
        let told = Told {
            call,
            target: match query.as_str() {
                "" => call.path.to_owned(),
                query => format!("{}?{query}", call.path),
            },
            authorization: own().or_else(|| field(AUTHORIZATION)),
            content_type: field(CONTENT_TYPE),
            body: read_body(session).await?,
        };
        let foreseen = self.foresee(call.effect, &engines);
        let answers = join_all(engines.iter().map(|engine| self.tell(engine, &told))).await;
        self.take_note(call.effect, &engines, &answers, &foreseen)
            .await;
        let done = answers.iter().all(is_done);
        let answers = engines.iter().zip(answers);
        let said: Result<Vec<_>, _> = answers
            .map(|(engine, answer)| shown(engine.label(), answer))
            .collect();
        let body = said.and_then(|engines| serde_json::to_vec(&All { engines }));
        let status = if done { 200 } else { 502 };
        Ok((status, JSON, body.map_err(|_| ApiError::internal())?))
    }

    async fn tell(&self, engine: &Engine, told: &Told<'_>) -> Heard {
        let question = Question {
            method: &told.call.method,
            target: &told.target,
            authorization: told.authorization.as_deref(),
            content_type: told.content_type.as_deref(),
            body: &told.body,
        };
        let answer = self.asker.send(engine, &question).await;
        let (label, path) = (engine.label(), told.call.path);
        match &answer {
            Ok((status, _)) => log::info!("engine={label} control={path} status={status}"),
            Err(error) => log::warn!("engine={label} control={path} error={error}"),
        }
        answer
    }
}

/// An engine's answer as it is shown: JSON as the engine wrote it, anything else as a string.
fn shown(engine: &str, answer: Heard) -> serde_json::Result<Said<'_>> {
    Ok(match answer {
        Ok((status, body)) => Said::Answer {
            engine,
            status,
            body: match serde_json::from_slice(&body) {
                Ok(json) => json,
                Err(_) => to_raw_value(&String::from_utf8_lossy(&body))?,
            },
        },
        Err(error) => Said::Failure {
            engine,
            error: error.to_string(),
        },
    })
}

/// Reads the whole body, up to the limit.
async fn read_body(session: &mut ServerSession) -> Result<BytesMut, ApiError> {
    let fields = &session.req_header().headers;
    let declared = fields.get(CONTENT_LENGTH).and_then(|n| n.to_str().ok());
    let declared = declared.and_then(|n| n.parse::<usize>().ok());
    if declared.is_some_and(|n| n > MAX_BODY) {
        return Err(ApiError::request_too_large(MAX_BODY));
    }
    let broken = |_| ApiError::invalid_request("the request body is malformed");
    if fields.contains_key(EXPECT) {
        session.write_continue_response().await.map_err(broken)?;
    }
    let read = async {
        let mut body = BytesMut::new();
        while let Some(data) = session.read_request_body().await.map_err(broken)? {
            body.extend_from_slice(&data);
            if body.len() > MAX_BODY {
                return Err(ApiError::request_too_large(MAX_BODY));
            }
        }
        Ok(body)
    };
    match timeout(UPLOAD_LIMIT, read).await {
        Ok(body) => body,
        Err(_) => Err(ApiError::request_timeout(
            "the request body did not arrive in time",
        )),
    }
}
