//! The one list of settings, in the order of `conf/router.yaml`.

use super::Group::{
    Discovery, Engines, Health, Keys, Limits, Listening, Retries, Routing, Running, Traces,
};
use super::Kind::{Choice, Host, List, Millis, Number, Path, Secret, Switch, Text, Whole};
use super::Source::{Anywhere, File, Typed};
use super::{DAY_MS, Key};

/// Makes one constant per setting and the list of them all, so that neither can miss one.
macro_rules! table {
    ($($id:ident: $name:literal, $from:expr, $kind:expr, $default:literal, $group:expr, $help:literal;)*) => {
        $(
            pub(in crate::config) static $id: Key = Key {
                name: $name, from: $from, kind: $kind, default: $default, group: $group, help: $help,
            };
        )*
        /// Every setting, in the order of the documented example.
        pub static KEYS: &[&Key] = &[$(&$id),*];
    };
}

table! {
    HOST: "host", Anywhere, Host, "0.0.0.0", Listening,
        "address clients connect to: an IP address or a name";
    PORT: "port", Anywhere, Whole(0, 65_535), "8001", Listening,
        "port clients connect to; 0 lets the system choose";
    ADMIN_HOST: "admin_host", Anywhere, Host, "127.0.0.1", Listening,
        "address of metrics, probes and status";
    ADMIN_PORT: "admin_port", Anywhere, Whole(0, 65_535), "9901", Listening,
        "port of metrics, probes and status; 0 lets the system choose";
    THREADS: "threads", Anywhere, Whole(0, 1024), "0", Listening,
        "worker threads; 0 is one per core";
    H2C: "h2c", Anywhere, Switch, "false", Listening,
        "speak HTTP/2 with prior knowledge, too, on the public port";

    SERVICE_DISCOVERY: "service_discovery", Anywhere,
        Choice(&["static", "dns", "file", "k8s", "kubernetes"], &["external-only"]), "static", Engines,
        "how engines are found: listed here, by names of the DNS, in a file that may change, or behind \
         a Kubernetes Service (k8s or kubernetes)";
    ENGINES: "engines", File, List("[{url, models, weight, id, type}]"), "[]", Engines,
        "the engines: a url each, the models it serves, its weight, a name to choose it by and the \
         type of its models; without models the engine is asked";
    STATIC_BACKENDS: "static_backends", Typed("engines"), List("URL,URL"), "null", Engines,
        "the engines, in place of those of the file: http://HOST[:PORT][/PREFIX]";
    STATIC_MODELS: "static_models", Typed("engines"), List("MODEL,MODEL"), "null", Engines,
        "the model of each engine of --static-backends, in the same order; several for one engine \
         are separated by |; left out, the engines are asked";
    STATIC_WEIGHTS: "static_weights", Typed("engines"), List("N,N"), "null", Engines,
        "the weight of each engine of --static-backends, in the same order: its share of the \
         requests relative to the others; left out, all weigh 1";
    STATIC_MODEL_TYPES: "static_model_types", Typed("engines"), List("TYPE,TYPE"), "null", Engines,
        "the type of the models of each engine of --static-backends, in the same order, for \
         --static-backend-health-checks: chat, completion, embeddings, rerank, score, transcription, \
         vision or messages; left out, all are completion";
    ALIASES: "aliases", File, List("{alias: model}"), "{}", Engines,
        "other names for models: the alias is what clients ask for";
    STATIC_ALIASES: "static_aliases", Typed("aliases"), List("ALIAS:MODEL,ALIAS:MODEL"), "null", Engines,
        "other names for models, in place of those of the file; split at the first colon, so the \
         model may hold colons and the alias may not";
    MODELS_REFRESH_MS: "models_refresh_ms", Anywhere, Millis(1, DAY_MS), "10000", Engines,
        "milliseconds between two questions to an engine for its models, where none are given";

    DEFAULT_MODEL: "default_model", Anywhere, Text, "null", Engines,
        "model, or alias of one, for requests that name none; left out, those are refused";

    DNS_NAMES: "dns_names", Anywhere, List("NAME:PORT,NAME"), "[]", Discovery,
        "for dns: names, each address of which is an engine: [http://]NAME[:PORT][/PREFIX], or \
         without a port and beginning with _ for SRV records";
    DNS_SERVERS: "dns_servers", Anywhere, List("IP[:PORT],IP[:PORT]"), "[]", Discovery,
        "DNS servers to ask, also for names of listed engines; [] asks those of /etc/resolv.conf";
    DNS_LONGEST_TTL_MS: "dns_longest_ttl_ms", Anywhere, Millis(1000, DAY_MS), "300000", Discovery,
        "longest time, in milliseconds, before a name is looked up again, where its answer may be \
         kept for longer";
    DISCOVERY_FILE: "discovery_file", Anywhere, Path, "null", Discovery,
        "for file: YAML or JSON list of engines of the form of engines; changes are taken in as they come";
    K8S_NAMESPACE: "k8s_namespace", Anywhere, Text, "null", Discovery,
        "for k8s: namespace of the Service; left out, the one this runs in";
    K8S_SERVICE_NAME: "k8s_service_name", Anywhere, Text, "null", Discovery,
        "for k8s: Service whose ready pods are the engines";
    K8S_LABEL_SELECTOR: "k8s_label_selector", Anywhere, Text, "null", Discovery,
        "for k8s: labels of the Services whose ready pods are the engines, such as app=vllm";
    K8S_PORT: "k8s_port", Anywhere, Text, "8000", Discovery,
        "for k8s: port of the pods, by number or by the name it has in the Service";
    K8S_KUBECONFIG: "k8s_kubeconfig", Anywhere, Path, "null", Discovery,
        "for k8s: kubeconfig file; left out, KUBECONFIG, ~/.kube/config or the service account of the pod";

    ROUTING_LOGIC: "routing_logic", Anywhere,
        Choice(&["roundrobin", "leastload", "session", "prefixaware"], &[]), "roundrobin", Routing,
        "how an engine is chosen among those that serve the model: each in turn, the less busy one \
         of two, the one of the session, or the one that has the prompt's beginning in its cache";
    SESSION_KEY: "session_key", Anywhere, Text, "null", Routing,
        "header, or top-level field of the JSON body, that names the session; where a request has \
         neither, its user, prompt_cache_key or safety_identifier does";
    ENGINE_STATS_INTERVAL: "engine_stats_interval", Anywhere, Whole(0, 86_400), "5", Routing,
        "seconds between two looks at an engine's own load, for logics that weigh it; 0 looks at none";
    PREFIX_MIN_MATCH_LENGTH: "prefix_min_match_length", Anywhere, Whole(0, 1 << 30), "0", Routing,
        "shortest known beginning of a prompt that prefixaware goes by, in bytes";
    BALANCE_ABS_THRESHOLD: "balance_abs_threshold", Anywhere, Whole(0, 1_000_000), "64", Routing,
        "how far an engine that has the prompt may be above the least busy one before prefixaware looks at load alone, in requests";
    BALANCE_REL_THRESHOLD: "balance_rel_threshold", Anywhere, Number, "1.5", Routing,
        "how many times the least load its load may be, likewise; at least 1, and both must be exceeded";
    PREFIX_INDEX_BYTES: "prefix_index_bytes", Anywhere, Whole(1 << 16, 1 << 40), "67108864", Routing,
        "most memory for what prefixaware knows of the engines' caches, in bytes";
    PREFIX_TTL_MS: "prefix_ttl_ms", Anywhere, Millis(1, DAY_MS), "1800000", Routing,
        "how long an engine is taken to keep the beginning of a prompt in its cache, in milliseconds";
    ALLOW_PINS: "allow_pins", Anywhere, Switch, "false", Routing,
        "let every client choose the engine of a request, by ?id=ENGINE or x-vllm-pingora-engine";
    PIN_API_KEYS: "pin_api_keys", File, List("[KEY]"), "[]", Routing,
        "further keys of clients, whose holders may choose the engine even where others may not";
    EXTRA_ROUTES: "extra_routes", File, List("[{method, path, model, resend}]"), "[]", Routing,
        "routes to forward beyond vLLM's inference and read routes";

    HEALTH_CHECK_INTERVAL_MS: "health_check_interval_ms", Anywhere, Millis(0, DAY_MS), "5000", Health,
        "milliseconds between two probes of an engine; 0 probes none";
    HEALTH_CHECK_PATH: "health_check_path", Anywhere, Text, "/health", Health,
        "path that is probed, below the engine's prefix; a status below 500 passes";
    HEALTH_CHECK_TIMEOUT_MS: "health_check_timeout_ms", Anywhere, Millis(1, DAY_MS), "2000", Health,
        "longest wait for the answer to a probe, in milliseconds";
    HEALTH_CHECK_RISE: "health_check_rise", Anywhere, Whole(1, 1000), "1", Health,
        "probes in a row that must pass to let an engine back in";
    HEALTH_CHECK_FALL: "health_check_fall", Anywhere, Whole(1, 1000), "3", Health,
        "probes in a row that must fail to take an engine out; those of an engine that answers \
         requests meanwhile do not count";
    STATIC_BACKEND_HEALTH_CHECKS: "static_backend_health_checks", Anywhere, Switch, "false", Health,
        "make each engine work now and then, by the smallest request of its models' type, to find \
         out about those that only say that they are well";
    STATIC_BACKEND_HEALTH_CHECK_INTERVAL: "static_backend_health_check_interval", Anywhere,
        Whole(1, 86_400), "60", Health,
        "seconds between two such requests to an engine";
    STATIC_BACKEND_HEALTH_CHECK_TIMEOUT_SECONDS: "static_backend_health_check_timeout_seconds", Anywhere,
        Whole(1, 86_400), "10", Health,
        "longest wait for the answer to one, in seconds";
    STATIC_BACKEND_HEALTH_CHECK_FALL: "static_backend_health_check_fall", Anywhere,
        Whole(1, 1000), "2", Health,
        "such requests in a row that must fail to take an engine out; those of an engine that sends \
         good answers meanwhile do not count";
    EJECT_AFTER: "eject_after", Anywhere, Whole(0, 1_000_000), "3", Health,
        "requests in a row that must fail on an engine, without an answer, to take it out; 0 is never";
    EJECT_PAUSE_MS: "eject_pause_ms", Anywhere, Millis(1, DAY_MS), "1000", Health,
        "how long such an engine is out before one request tries it, in milliseconds; doubled each \
         time that fails";
    EJECT_LONGEST_PAUSE_MS: "eject_longest_pause_ms", Anywhere, Millis(1, DAY_MS), "60000", Health,
        "longest of these pauses, in milliseconds; at least eject_pause_ms";
    SLOW_START_MS: "slow_start_ms", Anywhere, Millis(0, DAY_MS), "0", Health,
        "how long an engine that comes back gets less than its share, in milliseconds; 0 is not at all";
    MOST_ENGINES_OUT: "most_engines_out", Anywhere, Number, "0.5", Health,
        "share of a model's engines that may be out, from 0 to 1; with more, all are asked";
    HOLD_TIMEOUT_MS: "hold_timeout_ms", Anywhere, Millis(0, DAY_MS), "0", Health,
        "longest wait of a request for an engine of its model to come up, where none is, in \
         milliseconds; 0 fails it at once";
    HOLD_QUEUE_SIZE: "hold_queue_size", Anywhere, Whole(1, 1_000_000), "1000", Health,
        "most requests that wait so at once; further ones fail at once";

    ENABLE_RETRIES: "enable_retries", Anywhere, Switch, "false", Retries,
        "hide transient failures of engines by asking again; off, the settings below are ignored";
    MAX_RETRIES: "max_retries", Anywhere, Whole(2, 4_294_967_295), "5", Retries,
        "all attempts of a request, the first included; at least 2";
    INITIAL_BACKOFF_MS: "initial_backoff_ms", Anywhere, Millis(1, u64::MAX), "50", Retries,
        "first wait between two attempts, in milliseconds; at least 1";
    MAX_BACKOFF_MS: "max_backoff_ms", Anywhere, Millis(1, u64::MAX), "30000", Retries,
        "longest wait before jitter, in milliseconds; at least initial_backoff_ms";
    BACKOFF_MULTIPLIER: "backoff_multiplier", Anywhere, Number, "1.5", Retries,
        "growth from one wait to the next; at least 1, where 1 is no growth";
    JITTER_FACTOR: "jitter_factor", Anywhere, Number, "0.2", Retries,
        "random share by which a wait is made longer or shorter, from 0 to 1; 0 is none";

    CONNECT_TIMEOUT_MS: "connect_timeout_ms", Anywhere, Millis(1, DAY_MS), "5000", Limits,
        "longest wait for a connection to an engine, in milliseconds";
    FIRST_BYTE_TIMEOUT_MS: "first_byte_timeout_ms", Anywhere, Millis(0, DAY_MS), "0", Limits,
        "longest wait for the first byte of an engine's answer, in milliseconds; 0 is off";
    STREAM_IDLE_TIMEOUT_MS: "stream_idle_timeout_ms", Anywhere, Millis(0, DAY_MS), "0", Limits,
        "longest silence between two body bytes from an engine, in milliseconds; 0 is off";
    ENGINE_KEEPALIVE_MS: "engine_keepalive_ms", Anywhere, Millis(0, DAY_MS), "4000", Limits,
        "how long an unused connection to an engine is kept, in milliseconds; 0 keeps none";
    HEADER_TIMEOUT_MS: "header_timeout_ms", Anywhere, Millis(1, DAY_MS), "30000", Limits,
        "longest time for a client to send its whole request head, in milliseconds";
    BODY_TIMEOUT_MS: "body_timeout_ms", Anywhere, Millis(1, DAY_MS), "60000", Limits,
        "longest silence while a client uploads its body, in milliseconds";
    BODY_MIN_BYTES_PER_SECOND: "body_min_bytes_per_second", Anywhere, Whole(0, 1 << 30), "512", Limits,
        "least bytes per second of such an upload, which may take body_timeout_ms longer in all; 0 is \
         no limit";
    CLIENT_SEND_TIMEOUT_MS: "client_send_timeout_ms", Anywhere, Millis(0, DAY_MS), "300000", Limits,
        "longest time in which a client takes nothing of an answer that waits for it, in milliseconds; \
         0 is no limit";
    CLIENT_KEEPALIVE_MS: "client_keepalive_ms", Anywhere, Millis(1, DAY_MS), "75000", Limits,
        "how long an unused connection of a client is kept, in milliseconds";
    MAX_REQUEST_BODY_BYTES: "max_request_body_bytes", Anywhere, Whole(1, 1 << 40), "67108864", Limits,
        "largest accepted request body, in bytes";
    MAX_BUFFERED_BODY_BYTES: "max_buffered_body_bytes", Anywhere, Whole(0, 1 << 50), "0", Limits,
        "most bytes of request bodies that are kept for their attempts, all together; at least \
         max_request_body_bytes; 0 is no limit";
    MAX_CONNECTIONS_PER_CLIENT: "max_connections_per_client", Anywhere, Whole(0, 1_000_000), "0", Limits,
        "most connections one client address may have open; 0 is no limit";

    API_KEYS: "api_keys", File, List("[KEY]"), "[]", Keys,
        "keys of which clients must present one as a bearer token; [] asks for none";
    API_KEY: "api_key", Typed("api_keys"), List("KEY"), "null", Keys,
        "a key of which clients must present one as a bearer token, in place of those of the file; \
         may be repeated, or hold several separated by commas";
    API_KEY_FILE: "api_key_file", Anywhere, Path, "null", Keys,
        "file with further such keys, one a line; blank lines and lines that start with # are skipped";
    ENGINE_API_KEY: "engine_api_key", Anywhere, Secret, "null", Keys,
        "key sent to the engines; left out, VLLM_API_KEY of the environment is taken, if set";

    DRAIN_SETTLE_MS: "drain_settle_ms", Anywhere, Millis(0, DAY_MS), "0", Running,
        "how long connections are still accepted after SIGTERM, with /ready at 503 and a close after \
         each answer, until load balancers have heard of it, in milliseconds";
    GRACE_PERIOD_MS: "grace_period_ms", Anywhere, Millis(0, DAY_MS), "30000", Running,
        "how long running requests may take to finish after that, in milliseconds; 0 cuts them";
    UPGRADE_SOCK: "upgrade_sock", Anywhere, Path, "null", Running,
        "socket at which a process started with --upgrade waits for the listeners of the one that \
         runs, which hands them over on SIGQUIT; a path only this user can write to";
    LOG_LEVEL: "log_level", Anywhere,
        Choice(&["off", "error", "warn", "info", "debug", "trace"], &[]), "info", Running,
        "least severity that is logged; off logs nothing but the access log, which has a switch of its own";
    LOG_FORMAT: "log_format", Anywhere, Choice(&["text", "json"], &[]), "text", Running,
        "form of a log line";
    ACCESS_LOG: "access_log", Anywhere, Switch, "true", Running,
        "write a line per request, whatever the log level";
    ACCESS_LOG_SAMPLE: "access_log_sample", Anywhere, Number, "1", Running,
        "share, from 0 to 1, of the requests that went well at the first attempt that get a line; \
         all others get one always";
    ACCESS_LOG_FILE: "access_log_file", Anywhere, Path, "null", Running,
        "file these lines are appended to; left out, they go to the standard error with all others";
    PRODUCTION_STACK_METRICS: "production_stack_metrics", Anywhere, Switch, "false", Running,
        "expose some series a second time, under the names of the production-stack's router";

    OTEL_ENDPOINT: "otel_endpoint", Anywhere, Text, "null", Traces,
        "collector that is sent a span per request and attempt over OTLP: http://HOST:PORT, or \
         https; left out, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT of the \
         environment is taken, and without those nothing is traced";
    OTEL_PROTOCOL: "otel_protocol", Anywhere, Choice(&["grpc", "http"], &[]), "grpc", Traces,
        "how the collector is spoken to; left out, OTEL_EXPORTER_OTLP_TRACES_PROTOCOL or \
         OTEL_EXPORTER_OTLP_PROTOCOL of the environment is taken, if set";
    OTEL_SERVICE_NAME: "otel_service_name", Anywhere, Text, "vllm-pingora", Traces,
        "name of the service in traces; left out, OTEL_SERVICE_NAME of the environment is taken, \
         if set";
    OTEL_SAMPLING_RATIO: "otel_sampling_ratio", Anywhere, Number, "1", Traces,
        "share of new traces that are recorded, from 0 to 1; a client's own trace is recorded if \
         the client says so";
}
