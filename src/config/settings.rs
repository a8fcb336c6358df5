//! The settings after every check.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use super::engine_url::EngineUrl;
use super::secret::Secret;
use crate::discovery::{Discovery, DnsSettings};
use crate::engines::{HealthLimits, InferenceProbe, ModelType, Probe};
use crate::request::route::ModelSource;
use crate::retry::{Resend, RetryConfig};
use crate::routing::Routing;
use crate::traces;

/// What the proxy runs by. Made by [`load`](super::load), which lets no mistake through.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the public listener: an IP address, without brackets, or a name.
    pub host: String,
    /// Port of the public listener; 0 lets the system choose.
    pub port: u16,
    /// Address of the admin listener: an IP address, without brackets, or a name.
    pub admin_host: String,
    /// Port of the admin listener; 0 lets the system choose.
    pub admin_port: u16,
    /// Worker threads; 0 is one per core.
    pub threads: usize,
    /// HTTP/2 with prior knowledge on the public port.
    pub h2c: bool,
    /// How engines are found.
    pub discovery: Discovery,
    /// How names are looked up.
    pub dns: DnsSettings,
    /// The engines where they are listed: at least one, no two alike. Empty where they are found in
    /// another way.
    pub engines: Vec<EngineSpec>,
    /// From the name clients ask for to the model; no target is an alias itself.
    pub aliases: BTreeMap<String, String>,
    /// How often an engine without declared models is asked again.
    pub models_refresh: Duration,
    /// The model of requests that name none; `None` refuses them.
    pub default_model: Option<String>,
    /// How an engine is chosen.
    pub routing: Routing,
    /// Header, or top-level field of the JSON body, that names the session.
    pub session_key: Option<String>,
    /// How often an engine is asked for its load; `None` is never.
    pub engine_stats_interval: Option<Duration>,
    /// Whether every client may choose the engine of a request.
    pub allow_pins: bool,
    /// Keys of further clients, which may choose the engine in any case.
    pub pin_api_keys: Vec<Secret>,
    /// Routes forwarded beyond the built-in ones.
    pub extra_routes: Vec<ExtraRoute>,
    /// When an engine is out.
    pub health: HealthLimits,
    /// How engines are probed; `None` is not at all.
    pub probe: Option<Probe>,
    /// How engines are made to work, to see whether they can; `None` is not at all.
    pub inference_probe: Option<InferenceProbe>,
    /// How long a request waits for an engine of its model to come up; `None` is not at all.
    pub hold_timeout: Option<Duration>,
    /// Most requests that wait for one at once.
    pub hold_queue_size: usize,
    /// The retry policy; `None` is off.
    pub retry: Option<RetryConfig>,
    /// Longest wait for a connection to an engine.
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of an engine's answer; `None` is off.
    pub first_byte_timeout: Option<Duration>,
    /// Longest silence between two body bytes from an engine; `None` is off.
    pub stream_idle_timeout: Option<Duration>,
    /// How long an unused connection to an engine is kept; zero keeps none.
    pub engine_keepalive: Duration,
    /// Longest time for a client to send its whole request head.
    pub header_timeout: Duration,
    /// Longest silence while a client uploads its body.
    pub body_timeout: Duration,
    /// Least bytes per second of such an upload, beside one such silence; `None` is no such limit.
    pub body_min_rate: Option<NonZeroU32>,
    /// Longest time in which a client takes nothing of an answer; `None` is no limit.
    pub client_send_timeout: Option<Duration>,
    /// How long an unused connection of a client is kept.
    pub client_keepalive: Duration,
    /// Largest accepted request body.
    pub max_request_body_bytes: usize,
    /// Most bytes of request bodies that are kept, all together; `None` is no limit.
    pub max_buffered_body_bytes: Option<NonZeroUsize>,
    /// Most connections one client address may have open; `None` is no limit.
    pub max_connections_per_client: Option<NonZeroUsize>,
    /// Keys of which clients must present one; empty asks for none.
    pub api_keys: Vec<Secret>,
    /// Key sent to engines.
    pub engine_api_key: Option<Secret>,
    /// How long the public listener stays open after SIGTERM.
    pub drain_settle: Duration,
    /// Where listeners are handed over to a new process; `None` is nowhere.
    pub upgrade_sock: Option<PathBuf>,
    /// How long running requests may take to finish after SIGTERM; zero cuts them.
    pub grace_period: Duration,
    /// Least severity that is logged.
    pub log_level: LogLevel,
    /// Form of a log line.
    pub log_format: LogFormat,
    /// How requests are logged.
    pub access_log: AccessLogSettings,
    /// Whether some series are exposed under the production-stack router's names, too.
    pub production_stack_metrics: bool,
    /// What is traced.
    pub traces: traces::Options,
}

impl Settings {
    /// `HOST:PORT` of the public listener, with brackets around an IPv6 address.
    pub fn public_address(&self) -> String {
        address(&self.host, self.port)
    }

    /// `HOST:PORT` of the admin listener, with brackets around an IPv6 address.
    pub fn admin_address(&self) -> String {
        address(&self.admin_host, self.admin_port)
    }
}

pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

/// One engine and what it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    /// Where it is.
    pub url: EngineUrl,
    /// Its models; empty means that the engine is asked.
    pub models: Vec<String>,
    /// Its share of the requests, relative to the others; at least 1.
    pub weight: u32,
    /// The name clients and operators choose it by; `None` makes one of its URL.
    pub id: Option<String>,
    /// What its models are for; `None` where nobody said.
    pub model_type: Option<ModelType>,
}

impl EngineSpec {
    /// An engine of weight 1, without a name of its own or a type.
    pub fn new(url: EngineUrl, models: Vec<String>) -> Self {
        Self {
            url,
            models,
            weight: 1,
            id: None,
            model_type: None,
        }
    }
}

/// How requests are logged.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLogSettings {
    /// Whether they are logged at all.
    pub on: bool,
    /// The share of those that went well at the first attempt that is logged, from 0 to 1.
    pub sample: f64,
    /// The file they are logged to; `None` is the standard error.
    pub file: Option<PathBuf>,
}

/// Least severity that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLevel(pub log::LevelFilter);

/// Form of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogFormat {
    /// The word in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
    }
}

/// A route forwarded beyond the built-in ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraRoute {
    /// The method.
    pub method: http::Method,
    /// The path, compared exactly.
    pub path: String,
    /// Where the model comes from, and with it the engines to choose from.
    pub model: ModelSource,
    /// When a request may be sent again.
    pub resend: Resend,
}

impl From<LogFormat> for crate::access_log::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}
