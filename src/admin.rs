//! The admin port: probes, metrics, what the router knows of its engines, and what to tell them.
//!
//! - `pages`: what there is to see;
//! - `control`: calls on engines, fanned out to those that are named.

mod addressees;
mod control;
mod pages;

use std::sync::Arc;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Response};
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::engines::{Catalog, Fleet};
use crate::metrics::Metrics;

pub use control::{CALLS, Call, Control, Effect, LIMIT, MAX_BODY};
use pages::PATHS;

const JSON: &str = "application/json";

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
    /// The effective configuration as YAML, without secrets.
    pub config: Arc<ArcSwap<String>>,
    /// Whether the router has stopped to accept requests.
    pub draining: watch::Receiver<bool>,
}

/// A status, a content type and a body.
type Answer = (u16, &'static str, Vec<u8>);

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header();
        let path = request.uri.path().to_owned();
        if let Some(call) = CALLS.iter().find(|call| call.path == path) {
            return match self.control.answer(call, session).await {
                Ok(answer) => respond(answer, None),
                Err(refusal) => refuse(&refusal),
            };
        }
        let reads = matches!(request.method, Method::GET | Method::HEAD);
        if !reads && PATHS.contains(&path.as_str()) {
            let method = request.method.as_str();
            return refuse(&ApiError::method_not_allowed(method, "GET, HEAD"));
        }
        match self.get(&path).await {
            Some(answer) => respond(answer, None),
            None => refuse(&ApiError::not_found(&path)),
        }
    }
}

fn refuse(refusal: &ApiError) -> Response<Vec<u8>> {
    respond(
        (refusal.status(), JSON, refusal.body().to_vec()),
        refusal.allow(),
    )
}

fn respond((status, kind, body): Answer, allow: Option<&'static str>) -> Response<Vec<u8>> {
    let mut response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind)
        .header(CONTENT_LENGTH, body.len());
    if let Some(allow) = allow {
        response = response.header(ALLOW, allow);
    }
    response.body(body).unwrap_or_default()
}
