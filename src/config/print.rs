//! The settings as a file again, secrets hidden.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use serde::Serialize;
use serde_yaml::{Mapping, Value};

use super::keys::{self, Key};
use super::settings::{EngineSpec, ExtraRoute, Settings};
use crate::discovery::{Discovery, DnsName, Kubernetes, Port};
use crate::retry::{Resend, RetryValues};

impl Settings {
    /// The configuration in force, as YAML that can be read back, in the order of the documented
    /// example. A secret is `***`, which is refused when it is read back.
    pub fn to_yaml(&self) -> String {
        serde_yaml::to_string(&self.to_mapping()).unwrap_or_default()
    }

    #[rustfmt::skip] // one setting a line
    fn to_mapping(&self) -> Mapping {
        let mut out = Mapping::new();
        put(&mut out, &keys::HOST, &self.host);
        put(&mut out, &keys::PORT, self.port);
        put(&mut out, &keys::ADMIN_HOST, &self.admin_host);
        put(&mut out, &keys::ADMIN_PORT, self.admin_port);
        put(&mut out, &keys::THREADS, self.threads);
        put(&mut out, &keys::H2C, self.h2c);
        put(&mut out, &keys::SERVICE_DISCOVERY, self.discovery.word());
        put(&mut out, &keys::ENGINES, self.engines.iter().map(engine).collect::<Vec<_>>());
        put(&mut out, &keys::ALIASES, &self.aliases);
        put(&mut out, &keys::MODELS_REFRESH_MS, millis(self.models_refresh));
        put(&mut out, &keys::DEFAULT_MODEL, &self.default_model);
        self.put_discovery(&mut out);
        put(&mut out, &keys::ROUTING_LOGIC, self.routing.kind.word());
        put(&mut out, &keys::SESSION_KEY, &self.session_key);
        put(&mut out, &keys::ENGINE_STATS_INTERVAL, self.engine_stats_interval.map_or(0, |time| time.as_secs()));
        put(&mut out, &keys::PREFIX_MIN_MATCH_LENGTH, self.routing.prefix.least_match);
        put(&mut out, &keys::BALANCE_ABS_THRESHOLD, whole(self.routing.balance.difference));
        put(&mut out, &keys::BALANCE_REL_THRESHOLD, self.routing.balance.ratio);
        put(&mut out, &keys::PREFIX_INDEX_BYTES, self.routing.prefix.memory);
        put(&mut out, &keys::PREFIX_TTL_MS, millis(self.routing.prefix.ttl));
        put(&mut out, &keys::ALLOW_PINS, self.allow_pins);
        put(&mut out, &keys::PIN_API_KEYS, &self.pin_api_keys);
        put(&mut out, &keys::EXTRA_ROUTES, self.extra_routes.iter().map(route).collect::<Vec<_>>());
        self.put_health(&mut out);
        self.put_retries(&mut out);
        put(&mut out, &keys::CONNECT_TIMEOUT_MS, millis(self.connect_timeout));
        put(&mut out, &keys::FIRST_BYTE_TIMEOUT_MS, millis(self.first_byte_timeout.unwrap_or_default()));
        put(&mut out, &keys::STREAM_IDLE_TIMEOUT_MS, millis(self.stream_idle_timeout.unwrap_or_default()));
        put(&mut out, &keys::ENGINE_KEEPALIVE_MS, millis(self.engine_keepalive));
        put(&mut out, &keys::HEADER_TIMEOUT_MS, millis(self.header_timeout));
        put(&mut out, &keys::BODY_TIMEOUT_MS, millis(self.body_timeout));
        put(&mut out, &keys::BODY_MIN_BYTES_PER_SECOND, self.body_min_rate.map_or(0, NonZeroU32::get));
        put(&mut out, &keys::CLIENT_SEND_TIMEOUT_MS, millis(self.client_send_timeout.unwrap_or_default()));
        put(&mut out, &keys::CLIENT_KEEPALIVE_MS, millis(self.client_keepalive));
        put(&mut out, &keys::MAX_REQUEST_BODY_BYTES, self.max_request_body_bytes);
        put(&mut out, &keys::MAX_BUFFERED_BODY_BYTES, self.max_buffered_body_bytes.map_or(0, NonZeroUsize::get));
        put(&mut out, &keys::MAX_CONNECTIONS_PER_CLIENT, self.max_connections_per_client.map_or(0, NonZeroUsize::get));
        put(&mut out, &keys::API_KEYS, &self.api_keys);
        put(&mut out, &keys::API_KEY_FILE, ()); // its keys are among api_keys
        put(&mut out, &keys::ENGINE_API_KEY, &self.engine_api_key);
        put(&mut out, &keys::DRAIN_SETTLE_MS, millis(self.drain_settle));
        put(&mut out, &keys::GRACE_PERIOD_MS, millis(self.grace_period));
        put(&mut out, &keys::UPGRADE_SOCK, &self.upgrade_sock);
        put(&mut out, &keys::LOG_LEVEL, self.log_level.0.as_str().to_ascii_lowercase());
        put(&mut out, &keys::LOG_FORMAT, self.log_format.name());
        put(&mut out, &keys::ACCESS_LOG, self.access_log.on);
        put(&mut out, &keys::ACCESS_LOG_SAMPLE, self.access_log.sample);
        put(&mut out, &keys::ACCESS_LOG_FILE, &self.access_log.file);
        put(&mut out, &keys::PRODUCTION_STACK_METRICS, self.production_stack_metrics);
        put(&mut out, &keys::OTEL_ENDPOINT, &self.traces.endpoint);
        put(&mut out, &keys::OTEL_PROTOCOL, self.traces.protocol.word());
        put(&mut out, &keys::OTEL_SERVICE_NAME, &self.traces.service_name);
        put(&mut out, &keys::OTEL_SAMPLING_RATIO, self.traces.ratio.share());
        out
    }

    /// The settings of other ways to find engines mean nothing; the defaults stand for them.
    fn put_discovery(&self, out: &mut Mapping) {
        let (mut names, mut file, mut service): (&[DnsName], _, _) = (&[], None, None);
        match &self.discovery {
            Discovery::Static => {}
            Discovery::Dns(given) => names = given,
            Discovery::File(path) => file = Some(path),
            Discovery::Kubernetes(given) => service = Some(given),
        }
        put(out, &keys::DNS_NAMES, names);
        put(out, &keys::DNS_SERVERS, &self.dns.servers);
        put(out, &keys::DNS_LONGEST_TTL_MS, millis(self.dns.longest_ttl));
        put(out, &keys::DISCOVERY_FILE, file);
        let of_service =
            |part: fn(&Kubernetes) -> &Option<String>| service.and_then(|s| part(s).as_ref());
        put(out, &keys::K8S_NAMESPACE, of_service(|s| &s.namespace));
        put(out, &keys::K8S_SERVICE_NAME, of_service(|s| &s.service));
        put(out, &keys::K8S_LABEL_SELECTOR, of_service(|s| &s.selector));
        let port = service.map_or(&Port::DEFAULT, |service| &service.port);
        match port {
            Port::Number(number) => put(out, &keys::K8S_PORT, number),
            Port::Name(name) => put(out, &keys::K8S_PORT, name),
        }
        put(
            out,
            &keys::K8S_KUBECONFIG,
            service.and_then(|s| s.kubeconfig.as_ref()),
        );
    }

    fn put_health(&self, out: &mut Mapping) {
        let (probe, limits) = (self.probe.as_ref(), &self.health);
        put(
            out,
            &keys::HEALTH_CHECK_INTERVAL_MS,
            probe.map_or(0, |probe| millis(probe.interval)),
        );
        // Where nobody is probed the defaults stand for what is not known.
        if let Some(probe) = probe {
            put(out, &keys::HEALTH_CHECK_PATH, &probe.path);
            put(out, &keys::HEALTH_CHECK_TIMEOUT_MS, millis(probe.timeout));
        } else {
            put(
                out,
                &keys::HEALTH_CHECK_PATH,
                keys::HEALTH_CHECK_PATH.default,
            );
            put(
                out,
                &keys::HEALTH_CHECK_TIMEOUT_MS,
                keys::HEALTH_CHECK_TIMEOUT_MS
                    .default
                    .parse::<u64>()
                    .unwrap_or_default(),
            );
        }
        put(out, &keys::HEALTH_CHECK_RISE, limits.rise);
        put(out, &keys::HEALTH_CHECK_FALL, limits.fall);
        self.put_inference_probe(out);
        put(out, &keys::EJECT_AFTER, limits.failures);
        put(out, &keys::EJECT_PAUSE_MS, millis(limits.first_pause));
        put(
            out,
            &keys::EJECT_LONGEST_PAUSE_MS,
            millis(limits.longest_pause),
        );
        put(out, &keys::SLOW_START_MS, millis(limits.slow_start));
        put(out, &keys::MOST_ENGINES_OUT, limits.most_out);
        put(
            out,
            &keys::HOLD_TIMEOUT_MS,
            millis(self.hold_timeout.unwrap_or_default()),
        );
        put(out, &keys::HOLD_QUEUE_SIZE, self.hold_queue_size);
    }

    fn put_inference_probe(&self, out: &mut Mapping) {
        let probe = self.inference_probe;
        put(out, &keys::STATIC_BACKEND_HEALTH_CHECKS, probe.is_some());
        // While they are off the defaults stand for what is not known.
        let or_default = |value: Option<u64>, key: &Key| {
            value.unwrap_or_else(|| key.default.parse().unwrap_or_default())
        };
        let fall = self.health.inference_fall.map(u64::from);
        for (key, value) in [
            (
                &keys::STATIC_BACKEND_HEALTH_CHECK_INTERVAL,
                probe.map(|probe| probe.interval.as_secs()),
            ),
            (
                &keys::STATIC_BACKEND_HEALTH_CHECK_TIMEOUT_SECONDS,
                probe.map(|probe| probe.timeout.as_secs()),
            ),
            (&keys::STATIC_BACKEND_HEALTH_CHECK_FALL, fall),
        ] {
            put(out, key, or_default(value, key));
        }
    }

    /// While retries are off the other settings mean nothing; the defaults stand for them.
    fn put_retries(&self, out: &mut Mapping) {
        put(out, &keys::ENABLE_RETRIES, self.retry.is_some());
        let values = self
            .retry
            .map_or_else(RetryValues::default, |retry| RetryValues {
                max_retries: retry.max_retries().into(),
                initial_backoff_ms: millis(retry.initial_backoff()),
                max_backoff_ms: millis(retry.max_backoff()),
                backoff_multiplier: retry.backoff_multiplier(),
                jitter_factor: retry.jitter_factor(),
            });
        put(out, &keys::MAX_RETRIES, values.max_retries);
        put(out, &keys::INITIAL_BACKOFF_MS, values.initial_backoff_ms);
        put(out, &keys::MAX_BACKOFF_MS, values.max_backoff_ms);
        put(out, &keys::BACKOFF_MULTIPLIER, values.backoff_multiplier);
        put(out, &keys::JITTER_FACTOR, values.jitter_factor);
    }
}

fn put(out: &mut Mapping, key: &Key, value: impl Serialize) {
    put_field(out, key.name, value);
}

fn put_field(out: &mut Mapping, name: &str, value: impl Serialize) {
    out.insert(
        name.into(),
        serde_yaml::to_value(value).unwrap_or(Value::Null),
    );
}

fn engine(engine: &EngineSpec) -> Mapping {
    let mut out = Mapping::new();
    put_field(&mut out, "url", &engine.url);
    put_field(&mut out, "models", &engine.models);
    put_field(&mut out, "weight", engine.weight);
    if let Some(id) = &engine.id {
        put_field(&mut out, "id", id);
    }
    if let Some(kind) = engine.model_type {
        put_field(&mut out, "type", kind.word());
    }
    out
}

fn route(route: &ExtraRoute) -> Mapping {
    let mut out = Mapping::new();
    put_field(&mut out, "method", route.method.as_str());
    put_field(&mut out, "path", &route.path);
    put_field(&mut out, "model", route.model.word());
    let resend = match route.resend {
        Resend::Always => "always",
        Resend::ConnectOnly => "connect_only",
    };
    put_field(&mut out, "resend", resend);
    out
}

/// A setting that was read as a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn whole(number: f64) -> u64 {
    number as u64
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
