//! The settings: from flags, the environment and a file to values that cannot be wrong.
//!
//! A flag beats the environment, which beats the file, which beats the default. Every mistake is
//! reported, not just the first, each with the place it was made in, what was found there and what
//! is accepted. No report ever shows an API key.
//!
//! Left to others: parsing the command line ([`cli`](crate::cli)) and acting on the settings.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

mod across;
mod aliases;
mod api_keys;
mod collector_url;
mod discovery;
mod engine_url;
mod engines;
mod extra_routes;
mod health;
mod host;
pub mod keys;
mod locate;
mod names;
mod print;
mod reader;
mod report;
mod retries;
mod routing;
mod secret;
mod settings;
mod suggest;
mod traces;
mod values;

mod yaml;

pub use collector_url::CollectorUrl;
pub use engine_url::{EngineUrl, EngineUrlError};
pub use engines::engine_list;
pub use report::ConfigErrors;
pub use secret::{HIDDEN, Secret, SecretError};
pub use settings::{AccessLogSettings, EngineSpec, ExtraRoute, LogFormat, LogLevel, Settings};

use crate::discovery::Discovery;
pub use crate::request::route::ModelSource;
pub use crate::retry::Resend;

use keys::Key;
use reader::Reader;

/// What people wrote, before anything is checked.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    /// Flags by the name of their key, as in `max_retries`. One given several times holds all its
    /// values, separated by commas.
    pub flags: &'a BTreeMap<String, String>,
    /// The environment.
    pub env: &'a BTreeMap<String, String>,
    /// The file, as named in messages, and its text.
    pub file: Option<(&'a Path, &'a str)>,
}

/// Shows names only: the values may be secret.
impl std::fmt::Debug for Inputs<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs")
            .field("flags", &self.flags.keys())
            .field("file", &self.file.map(|(path, _)| path))
            .finish_non_exhaustive()
    }
}

/// Settings, and what the operator should know about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// What is accepted but will probably surprise.
    pub warnings: Vec<String>,
}

/// Reads the configuration anew, from where it was first read from.
pub type Load = Box<dyn Fn() -> Result<Loaded, ConfigErrors> + Send + Sync>;

/// Reads and checks everything. Of the outside world only the `api_key_file` is touched.
///
/// # Errors
/// Every mistake, one line each.
pub fn load(inputs: Inputs<'_>) -> Result<Loaded, ConfigErrors> {
    let mut reader = Reader::open(inputs);
    retries::refuse_reroute_attempts(&mut reader);
    across::check_environment(&mut reader);
    let settings = read(&mut reader);
    across::check_listeners(&mut reader, &settings);
    across::check_session(&mut reader, &settings);
    across::check_bodies(&mut reader, &settings);
    across::check_default_model(&mut reader, &settings);
    let (settings, warnings) = reader.report.finish(settings)?;
    Ok(Loaded { settings, warnings })
}

impl Settings {
    /// Settings from the text of a file alone, without flags or environment.
    ///
    /// # Errors
    /// Every mistake, one line each.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigErrors> {
        let none = BTreeMap::new();
        let file = Some((Path::new("configuration"), text));
        load(Inputs {
            flags: &none,
            env: &none,
            file,
        })
        .map(|loaded| loaded.settings)
    }
}

/// Reads every setting. After a mistake some value stands in, which `load` never lets out.
fn read(reader: &mut Reader<'_>) -> Settings {
    let discovery = discovery::read(reader);
    let engines = match discovery {
        Discovery::Static => engines::read(reader),
        _ => Some(Vec::new()),
    };
    let probe = health::probe(reader);
    let inference_probe = health::inference_probe(reader);
    Settings {
        host: listening(reader, &keys::HOST),
        port: u16::try_from(reader.whole(&keys::PORT)).unwrap_or(0),
        admin_host: listening(reader, &keys::ADMIN_HOST),
        admin_port: u16::try_from(reader.whole(&keys::ADMIN_PORT)).unwrap_or(0),
        threads: size(reader, &keys::THREADS),
        h2c: reader.switch(&keys::H2C),
        aliases: aliases::read(reader, engines.as_deref()),
        engines: engines.unwrap_or_default(),
        discovery,
        dns: discovery::dns(reader),
        models_refresh: reader.millis(&keys::MODELS_REFRESH_MS),
        default_model: reader.text(&keys::DEFAULT_MODEL).map(|(_, text)| text),
        routing: routing::read(reader),
        session_key: reader.text(&keys::SESSION_KEY).map(|(_, text)| text),
        engine_stats_interval: Some(reader.whole(&keys::ENGINE_STATS_INTERVAL))
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        allow_pins: reader.switch(&keys::ALLOW_PINS),
        pin_api_keys: api_keys::of_pinning_clients(reader),
        extra_routes: extra_routes::read(reader),
        health: health::limits(reader, probe.is_some(), inference_probe.is_some()),
        probe,
        inference_probe,
        hold_timeout: reader.millis_or_off(&keys::HOLD_TIMEOUT_MS),
        hold_queue_size: size(reader, &keys::HOLD_QUEUE_SIZE),
        retry: retries::read(reader),
        connect_timeout: reader.millis(&keys::CONNECT_TIMEOUT_MS),
        first_byte_timeout: reader.millis_or_off(&keys::FIRST_BYTE_TIMEOUT_MS),
        stream_idle_timeout: reader.millis_or_off(&keys::STREAM_IDLE_TIMEOUT_MS),
        engine_keepalive: reader.millis(&keys::ENGINE_KEEPALIVE_MS),
        header_timeout: reader.millis(&keys::HEADER_TIMEOUT_MS),
        body_timeout: reader.millis(&keys::BODY_TIMEOUT_MS),
        body_min_rate: NonZeroU32::new(
            u32::try_from(reader.whole(&keys::BODY_MIN_BYTES_PER_SECOND)).unwrap_or(u32::MAX),
        ),
        client_send_timeout: reader.millis_or_off(&keys::CLIENT_SEND_TIMEOUT_MS),
        client_keepalive: reader.millis(&keys::CLIENT_KEEPALIVE_MS),
        max_request_body_bytes: size(reader, &keys::MAX_REQUEST_BODY_BYTES),
        max_buffered_body_bytes: NonZeroUsize::new(size(reader, &keys::MAX_BUFFERED_BODY_BYTES)),
        max_connections_per_client: NonZeroUsize::new(size(
            reader,
            &keys::MAX_CONNECTIONS_PER_CLIENT,
        )),
        api_keys: api_keys::of_clients(reader),
        engine_api_key: api_keys::of_engines(reader),
        drain_settle: reader.millis(&keys::DRAIN_SETTLE_MS),
        upgrade_sock: reader
            .text(&keys::UPGRADE_SOCK)
            .map(|(_, path)| path.into()),
        grace_period: reader.millis(&keys::GRACE_PERIOD_MS),
        log_level: LogLevel(
            reader
                .choice(&keys::LOG_LEVEL)
                .parse()
                .unwrap_or(log::LevelFilter::Info),
        ),
        log_format: if reader.choice(&keys::LOG_FORMAT) == "json" {
            LogFormat::Json
        } else {
            LogFormat::Text
        },
        access_log: AccessLogSettings {
            on: reader.switch(&keys::ACCESS_LOG),
            sample: reader.share(&keys::ACCESS_LOG_SAMPLE),
            file: reader
                .text(&keys::ACCESS_LOG_FILE)
                .map(|(_, path)| path.into()),
        },
        production_stack_metrics: reader.switch(&keys::PRODUCTION_STACK_METRICS),
        traces: traces::read(reader),
    }
}

fn listening(reader: &mut Reader<'_>, key: &Key) -> String {
    let given = reader.given(key);
    match given.raw.text().map(host::listening) {
        Some(Ok(host)) => return host,
        Some(Err(why)) => reader.mistake(&given.place, why),
        None => reader.not_a(&given, "an IP address or a name"),
    }
    String::new()
}

fn size(reader: &mut Reader<'_>, key: &Key) -> usize {
    usize::try_from(reader.whole(key)).unwrap_or(usize::MAX)
}
