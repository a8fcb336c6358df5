//! The admin port: the status page, probes, metrics, what the router knows of its engines, and
//! what to tell them.
//!
//! - `pages`: what there is to see;
//! - `page`: the files of the status page;
//! - `events`: the stream that keeps it up to date;
//! - `control`: calls on engines, fanned out to those that are named.

mod addressees;
mod control;
mod events;
mod page;
mod pages;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::Method;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use pingora_core::Result;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_http::ResponseHeader;
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::engines::{Catalog, Fleet};
use crate::metrics::Metrics;
use crate::status::Status;

pub use control::{CALLS, Call, Control, Effect, LIMIT, MAX_BODY};
pub use events::{MOST_STREAMS, PERIOD, Streams};

const JSON: &str = "application/json";

/// How long an unused connection is kept, in seconds.
const KEEPALIVE: u64 = 60;

/// What every answer carries: nothing is to be kept, and no page does more than its own files say.
const FIELDS: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-store"),
    (
        CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
];

/// Answers on the admin port.
#[derive(Debug)]
pub struct Admin {
    /// The engines.
    pub fleet: Arc<Fleet>,
    /// What they say of themselves.
    pub catalog: Arc<Catalog>,
    /// Tells them what to do.
    pub control: Control,
    /// All series.
    pub metrics: Metrics,
    /// What became of the last requests.
    pub status: Status,
    /// Those who are told of it as it changes.
    pub streams: Streams,
    /// The effective configuration as YAML, without secrets.
    pub config: Arc<ArcSwap<String>>,
    /// Whether the router has stopped to accept requests.
    pub draining: watch::Receiver<bool>,
}

/// A status, a content type and a body.
type Answer = (u16, &'static str, Vec<u8>);

#[async_trait]
impl HttpServerApp for Admin {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let served = match session.read_request().await {
            Ok(true) => self.serve(&mut session).await,
            Ok(false) => return None,
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            log::debug!("admin: {error}");
            return None;
        }
        let settings = HttpPersistentSettings::for_session(&session);
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::from_reusable_stream(reusable, settings))
    }
}

impl Admin {
    async fn serve(&self, session: &mut ServerSession) -> Result<()> {
        session.set_keepalive(Some(KEEPALIVE));
        let request = session.req_header();
        if request.uri.path() == events::PATH && reads(&request.method) {
            return match self.streams.enter(&request.headers) {
                Ok(_entered) => events::stream(&self.status, session).await,
                Err(refusal) => refuse(session, &refusal).await,
            };
        }
        match self.answer(session).await {
            Ok(answer) => respond(session, answer, None).await,
            Err(refusal) => refuse(session, &refusal).await,
        }
    }

    async fn answer(&self, session: &mut ServerSession) -> Result<Answer, ApiError> {
        let request = session.req_header();
        let path = request.uri.path().to_owned();
        if let Some(call) = CALLS.iter().find(|call| call.path == path) {
            return self.control.answer(call, session).await;
        }
        if !reads(&request.method) && pages::is_one(&path) {
            let method = request.method.as_str();
            return Err(ApiError::method_not_allowed(method, "GET, HEAD"));
        }
        let page = self.get(&path).await;
        page.ok_or_else(|| ApiError::not_found(&path))
    }
}

fn reads(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a page of another site made a browser send this. The admin port asks for no key, so
/// whoever can reach it may call, but a page that its operator happens to look at must not.
fn comes_from_a_page(fields: &HeaderMap) -> bool {
    let Some(origin) = fields.get(ORIGIN) else {
        return false;
    };
    let origin = origin.to_str().ok();
    let authority = origin.and_then(|origin| origin.split_once("://"));
    let host = fields.get(http::header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    authority.map(|(_, authority)| authority) != host || host.is_none()
}

/// The head of an answer whose body is of this kind.
fn head(status: u16, kind: &'static str) -> Result<ResponseHeader> {
    let mut head = ResponseHeader::build(status, Some(FIELDS.len() + 3))?;
    head.insert_header(CONTENT_TYPE, kind)?;
    for (name, value) in FIELDS {
        head.insert_header(name, HeaderValue::from_static(value))?;
    }
    Ok(head)
}

async fn refuse(session: &mut ServerSession, refusal: &ApiError) -> Result<()> {
    let answer = (refusal.status(), JSON, refusal.body().to_vec());
    respond(session, answer, refusal.allow()).await
}

async fn respond(
    session: &mut ServerSession,
    (status, kind, body): Answer,
    allow: Option<&'static str>,
) -> Result<()> {
    let mut head = head(status, kind)?;
    head.insert_header(CONTENT_LENGTH, body.len())?;
    if let Some(allow) = allow {
        head.insert_header(ALLOW, allow)?;
    }
    session.write_response_header(Box::new(head)).await?;
    session.write_response_body(body.into(), true).await
}
