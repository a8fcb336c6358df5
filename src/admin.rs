//! The admin port: probes, metrics, and what the router knows of its engines.

use std::sync::Arc;

use async_trait::async_trait;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Response};
use pingora_core::apps::http_app::ServeHttp;
use pingora_core::protocols::http::ServerSession;
use serde_json::json;
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::engines::{Catalog, Fleet};
use crate::metrics::Metrics;

/// What there is to see.
const PATHS: [&str; 5] = ["/live", "/ready", "/metrics", "/engines", "/config"];
const JSON: &str = "application/json";
/// The version of Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers on the admin port.
#[derive(Debug)]
pub struct Admin {
    /// The engines.
    pub fleet: Arc<Fleet>,
    /// What they say of themselves.
    pub catalog: Arc<Catalog>,
    /// All series.
    pub metrics: Metrics,
    /// The effective configuration as YAML, without secrets.
    pub config: String,
    /// Whether the router has stopped to accept requests.
    pub draining: watch::Receiver<bool>,
}

impl Admin {
    async fn get(&self, path: &str) -> Option<(u16, &'static str, Vec<u8>)> {
        Some(match path {
            "/live" => (200, JSON, br#"{"status":"live"}"#.to_vec()),
            "/ready" => self.ready().await,
            "/metrics" => (200, EXPOSITION, self.metrics.expose(self.fleet.engines())),
            "/engines" => (200, JSON, self.engines()),
            "/config" => (200, "application/yaml", self.config.clone().into_bytes()),
            _ => return None,
        })
    }

    async fn ready(&self) -> (u16, &'static str, Vec<u8>) {
        let (status, word) = if *self.draining.borrow() {
            (503, "draining")
        } else if self.catalog.engines_up().await == 0 {
            (503, "no engine is up")
        } else {
            (200, "ready")
        };
        (
            status,
            JSON,
            json!({ "status": word }).to_string().into_bytes(),
        )
    }

    fn engines(&self) -> Vec<u8> {
        let engines = self.fleet.engines().iter().map(|engine| {
            json!({
                "engine": &**engine.label(),
                "id": engine.name(),
                "weight": engine.weight(),
                "models": self.fleet.models_of(engine.id()),
                "addresses": engine.addresses(),
                "requests_in_flight": engine.in_flight(),
                "load": engine.load(),
            })
        });
        json!({ "engines": engines.collect::<Vec<_>>() })
            .to_string()
            .into_bytes()
    }
}

#[async_trait]
impl ServeHttp for Admin {
    async fn response(&self, session: &mut ServerSession) -> Response<Vec<u8>> {
        let request = session.req_header();
        let path = request.uri.path().to_owned();
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

fn respond(
    (status, kind, body): (u16, &'static str, Vec<u8>),
    allow: Option<&'static str>,
) -> Response<Vec<u8>> {
    let mut response = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, kind)
        .header(CONTENT_LENGTH, body.len());
    if let Some(allow) = allow {
        response = response.header(ALLOW, allow);
    }
    response.body(body).unwrap_or_default()
}
