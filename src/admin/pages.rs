//! What there is to see on the admin port.

use serde_json::json;

use super::{Admin, Answer, JSON, events, page};
use crate::record::is_failure;

/// Every page but the files of the status page.
const PATHS: [&str; 7] = [
    "/live",
    "/ready",
    "/metrics",
    "/engines",
    "/config",
    "/status",
    events::PATH,
];

/// The version of Prometheus' text format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether there is something to see at `path`.
pub(super) fn is_one(path: &str) -> bool {
    PATHS.contains(&path) || page::file(path).is_some()
}

impl Admin {
    /// What there is to see at `path`.
    pub(super) async fn get(&self, path: &str) -> Option<Answer> {
        Some(match path {
            "/live" => (200, JSON, br#"{"status":"live"}"#.to_vec()),
            "/ready" => self.ready().await,
            "/metrics" => (200, EXPOSITION, self.metrics.expose(&self.fleet)),
            "/engines" => (200, JSON, self.engines()),
            "/config" => (
                200,
                "application/yaml",
                self.config.load().as_bytes().to_vec(),
            ),
            "/status" => (200, JSON, self.status()),
            path => {
                let (kind, content) = page::file(path)?;
                (200, kind, content.as_bytes().to_vec())
            }
        })
    }

    async fn ready(&self) -> Answer {
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

    fn status(&self) -> Vec<u8> {
        serde_json::to_vec(&self.status.snapshot()).unwrap_or_else(|error| {
            log::error!("the status could not be written: {error}");
            Vec::new()
        })
    }

    fn engines(&self) -> Vec<u8> {
        let now = self.fleet.now();
        let (present, leaving) = (self.fleet.engines(), self.fleet.leaving());
        let engines = present.iter().chain(&leaving).map(|engine| {
            let (condition, since) = engine.condition();
            let mut ended = self.metrics.attempts_on(engine.label());
            let attempts: u64 = ended.values().sum();
            ended.retain(|outcome, _| is_failure(outcome));
            json!({
                "engine": &**engine.label(),
                "id": engine.name(),
                "weight": engine.weight(),
                "models": self.fleet.models_of(engine.id()),
                "addresses": engine.addresses(),
                "requests_in_flight": engine.in_flight(),
                "load": engine.load(),
                "attempts": attempts,
                "failures": ended,
                "condition": if engine.is_gone() { "leaving" } else { condition.label() },
                "reason": if engine.is_gone() { "gone" } else { condition.reason() },
                "for_seconds": now.saturating_sub(since).as_secs(),
            })
        });
        json!({ "engines": engines.collect::<Vec<_>>() })
            .to_string()
            .into_bytes()
    }
}
