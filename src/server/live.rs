//! What of a running router follows the settings.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::header::InvalidHeaderValue;
use tokio::sync::watch;

use super::assembly::Proxy;
use super::{Duties, Search};
use crate::config::{Secret, Settings};
use crate::edge::{Edge, EdgeOptions, Patience};
use crate::engines::{Catalog, EngineKey, Fleet, Policy};
use crate::metrics::Metrics;
use crate::proxy::Plan;
use crate::status::Status;

/// The parts of a running router that follow the settings.
///
/// Connections, counters, turns and what was learnt of prompts stay as they are. A request that
/// runs keeps what it began with, but for its engines: those that are gone get none of its further
/// attempts, and new ones may.
#[derive(Debug)]
pub struct Live {
    pub(super) fleet: Arc<Fleet>,
    pub(super) search: Arc<Search>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) key: Arc<EngineKey>,
    pub(super) plan: Arc<ArcSwap<Plan>>,
    pub(super) edge: Arc<Edge<Proxy>>,
    pub(super) duties: watch::Sender<Arc<Duties>>,
    pub(super) config: Arc<ArcSwap<String>>,
    pub(super) metrics: Metrics,
    pub(super) status: Status,
}

impl Live {
    /// Goes by these settings from now on.
    ///
    /// # Errors
    /// The engine key cannot be sent in a header; then nothing has changed.
    pub fn adopt(&self, settings: &Settings) -> Result<(), InvalidHeaderValue> {
        let plan = Plan::new(settings)?;
        let policy = Policy {
            routing: settings.routing,
            health: settings.health,
        };
        self.key
            .set(settings.engine_api_key.as_ref().map(Secret::expose));
        self.fleet.adopt(&settings.aliases, policy);
        self.search.adopt(settings);
        self.plan.store(Arc::new(plan));
        self.edge.set_options(edge_options(settings));
        let duties = Duties::new(settings, &self.fleet, &self.catalog, &self.key);
        self.duties.send_replace(Arc::new(duties));
        self.status.set_retries_enabled(settings.retry.is_some());
        self.config.store(Arc::new(settings.to_yaml()));
        Ok(())
    }
}

/// How clients' connections are treated under these settings.
pub(super) fn edge_options(settings: &Settings) -> EdgeOptions {
    EdgeOptions {
        header_timeout: settings.header_timeout,
        body_timeout: settings.body_timeout,
        body_min_rate: settings.body_min_rate,
        send_timeout: settings.client_send_timeout,
        max_buffered: settings.max_buffered_body_bytes,
        client_keepalive: settings.client_keepalive,
        max_per_client: settings.max_connections_per_client,
        h2c: settings.h2c,
        hold_head: settings.retry.is_some(),
        patience: Patience {
            first_byte: settings.first_byte_timeout,
            stream_idle: settings.stream_idle_timeout,
        },
    }
}
