//! What is accepted as configuration, what is refused, and in which words.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on should say so"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use vllm_pingora::cli;
use vllm_pingora::config::keys::KEYS;
use vllm_pingora::config::{self, Inputs, Loaded, Settings};
use vllm_pingora::engines::{InferenceProbe, ModelType};

const EXAMPLE: &str = include_str!("../conf/router.yaml");
const ENGINE: &str = "engines: [{url: http://127.0.0.1:9001, models: [m]}]\n";

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn load(flags: Pairs<'_>, env: Pairs<'_>, file: &str) -> Result<Loaded, Vec<String>> {
    let (flags, env) = (map(flags), map(env));
    let file = Some((Path::new("router.yaml"), file));
    config::load(Inputs {
        flags: &flags,
        env: &env,
        file,
    })
    .map_err(|e| e.lines().to_vec())
}

fn settings(flags: Pairs<'_>, env: Pairs<'_>, file: &str) -> Settings {
    load(flags, env, file).unwrap().settings
}

fn mistakes(flags: Pairs<'_>, env: Pairs<'_>, file: &str) -> Vec<String> {
    load(flags, env, file)
        .map(|loaded| loaded.settings)
        .unwrap_err()
}

// The documented example.

#[test]
fn the_example_loads_without_a_warning() {
    let loaded = load(&[], &[], EXAMPLE).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.settings.engines.len(), 1);
    assert_eq!(
        loaded.settings.engines[0].url.to_string(),
        "http://127.0.0.1:9001"
    );
    assert_eq!(loaded.settings.engines[0].models, ["facebook/opt-125m"]);
}

#[test]
fn the_example_holds_every_setting_with_its_default_and_in_order() {
    let example: serde_yaml::Mapping = serde_yaml::from_str(EXAMPLE).unwrap();
    let in_file: Vec<_> = KEYS.iter().filter(|key| key.is_in_file()).collect();
    let names: Vec<_> = example.keys().map(|key| key.as_str().unwrap()).collect();
    assert_eq!(
        names,
        in_file.iter().map(|key| key.name).collect::<Vec<_>>()
    );
    for key in in_file.iter().filter(|key| key.name != "engines") {
        let default: serde_yaml::Value = serde_yaml::from_str(key.default).unwrap();
        assert_eq!(example[key.name], default, "{}", key.name);
    }
    for key in KEYS.iter().filter(|key| !key.is_in_file()) {
        assert!(
            EXAMPLE.contains(&format!("--{}", key.flag())),
            "{}",
            key.name
        );
    }
}

#[test]
fn the_example_says_what_the_defaults_are() {
    let engine = "engines: [{url: http://127.0.0.1:9001, models: [facebook/opt-125m]}]";
    assert_eq!(
        settings(&[], &[], EXAMPLE).to_yaml(),
        settings(&[], &[], engine).to_yaml()
    );
}

#[test]
fn every_default_is_accepted() {
    let defaults = settings(&[], &[], ENGINE);
    assert_eq!(defaults.public_address(), "0.0.0.0:8001");
    assert_eq!(defaults.admin_address(), "127.0.0.1:9901");
    assert_eq!(defaults.retry, None);
    assert_eq!(defaults.first_byte_timeout, None);
    assert_eq!(defaults.engine_keepalive, Duration::from_secs(4));
    assert_eq!(defaults.max_request_body_bytes, 64 << 20);
    assert!(defaults.api_keys.is_empty() && defaults.engine_api_key.is_none());
}

#[test]
fn the_example_for_kubernetes_holds_a_configuration_and_the_rights_it_needs() {
    let text = include_str!("../conf/kubernetes.yaml");
    let documents: Vec<serde_yaml::Value> = serde_yaml::Deserializer::from_str(text)
        .map(|document| serde::Deserialize::deserialize(document).unwrap())
        .collect();
    let of_kind = |kind: &str| documents.iter().find(|doc| doc["kind"] == kind).unwrap();
    let file = of_kind("ConfigMap")["data"]["router.yaml"]
        .as_str()
        .unwrap();
    let loaded = load(&[], &[], file).unwrap();
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.settings.discovery.word(), "k8s");
    let pod = &of_kind("Deployment")["spec"]["template"]["spec"];
    let seconds = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    let needed = loaded.settings.drain_settle + loaded.settings.grace_period;
    assert!(Duration::from_secs(seconds) > needed);
    let expected: serde_yaml::Value = serde_yaml::from_str(
        "[{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}]",
    )
    .unwrap();
    assert_eq!(of_kind("Role")["rules"], expected);
}

// Discovery.

#[test]
fn engines_need_not_be_listed_where_they_are_found() {
    let names = "service_discovery: dns\ndns_names: [vllm:8000, _http._tcp.vllm]\n";
    for file in [
        names,
        "service_discovery: file\ndiscovery_file: engines.yaml\n",
        "service_discovery: k8s\nk8s_service_name: vllm\n",
        "service_discovery: kubernetes\nk8s_label_selector: app=vllm\nk8s_namespace: ''\n",
    ] {
        let loaded = load(&[], &[], file).unwrap();
        assert_eq!(loaded.warnings, Vec::<String>::new(), "{file}");
        assert!(loaded.settings.engines.is_empty());
        let printed = loaded.settings.to_yaml();
        assert_eq!(
            settings(&[], &[], &printed).discovery,
            loaded.settings.discovery
        );
    }
    // A model that nobody is known to serve may turn out to be served.
    let file = format!("{names}default_model: m\naliases: {{a: m}}\n");
    assert_eq!(
        settings(&[], &[], &file).default_model.as_deref(),
        Some("m")
    );
    let flags = [
        ("service_discovery", "dns"),
        ("dns_names", "vllm:8000,_http._tcp.vllm"),
        ("dns_servers", "10.0.0.1,[fd00::1]:5353,fd00::2"),
        ("dns_longest_ttl_ms", "1000"),
    ];
    let typed = settings(&flags, &[], "");
    assert_eq!(typed.discovery, settings(&[], &[], names).discovery);
    let servers: Vec<_> = typed.dns.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1:53", "[fd00::1]:5353", "[fd00::2]:53"]);
    assert_eq!(typed.dns.longest_ttl, Duration::from_secs(1));
}

#[test]
fn what_a_way_to_find_engines_needs_is_said_where_it_is_missing() {
    let missing = |way: &str| mistakes(&[("service_discovery", way)], &[], "");
    assert_eq!(
        missing("dns"),
        ["dns_names: none given; service_discovery dns needs one such as vllm.default.svc:8000"]
    );
    assert_eq!(
        missing("file"),
        ["discovery_file: none given; service_discovery file needs the path of a list of engines"]
    );
    assert_eq!(
        missing("k8s"),
        ["k8s_service_name: none given; service_discovery k8s needs it, or k8s_label_selector"]
    );
    assert_eq!(
        mistakes(&[("service_discovery", "external-only")], &[], ENGINE),
        [
            "--service-discovery: external-only is not available yet; accepted: static, dns, file, k8s, kubernetes"
        ]
    );
}

#[test]
fn settings_of_other_ways_to_find_engines_are_warned_of() {
    let file = format!("{ENGINE}service_discovery: file\ndiscovery_file: a\nk8s_port: http\n");
    let flags = [("dns_names", "vllm:8000"), ("k8s_namespace", "ours")];
    assert_eq!(
        load(&flags, &[], &file).unwrap().warnings,
        [
            "engines has no effect: service_discovery is file",
            "dns_names has no effect: service_discovery is file",
            "k8s_namespace has no effect: service_discovery is file",
            "k8s_port has no effect: service_discovery is file",
        ]
    );
}

// Precedence.

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = format!("{ENGINE}port: 3");
    let env = [("VLLM_PINGORA_PORT", "2")];
    assert_eq!(settings(&[("port", "1")], &env, &file).port, 1);
    assert_eq!(settings(&[], &env, &file).port, 2);
    assert_eq!(settings(&[], &[], &file).port, 3);
    assert_eq!(settings(&[], &[], ENGINE).port, 8001);
}

#[test]
fn a_switch_can_be_turned_off_again() {
    let file = format!("{ENGINE}enable_retries: true");
    let env = [("VLLM_PINGORA_ENABLE_RETRIES", "false")];
    assert!(settings(&[], &[], &file).retry.is_some());
    assert!(settings(&[], &env, &file).retry.is_none());
    assert!(
        settings(&[("enable_retries", "true")], &env, &file)
            .retry
            .is_some()
    );
}

#[test]
fn static_engines_replace_those_of_the_file_as_a_whole() {
    let flags = [
        ("static_backends", "http://a:1, http://b:2"),
        ("static_models", "x/y:z|w, v"),
    ];
    let engines = settings(&flags, &[], ENGINE).engines;
    let engines: Vec<_> = engines
        .iter()
        .map(|e| (e.url.to_string(), e.models.clone()))
        .collect();
    let models = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        engines,
        [
            ("http://a:1".into(), models(&["x/y:z", "w"])),
            ("http://b:2".into(), models(&["v"]))
        ],
    );
    let env = [("VLLM_PINGORA_STATIC_BACKENDS", "http://c")];
    let engines = settings(&[], &env, ENGINE).engines;
    assert_eq!((engines.len(), engines[0].models.len()), (1, 0));
}

#[test]
fn the_types_of_models_are_given_as_those_of_the_production_stack_are() {
    let flags = [
        ("static_backends", "http://a,http://b"),
        ("static_models", "m,n"),
        ("static_model_types", "chat, embeddings"),
        ("static_backend_health_checks", "true"),
        ("static_backend_health_check_interval", "30"),
        ("static_backend_health_check_timeout_seconds", "5"),
    ];
    let from_flags = settings(&flags, &[], "");
    let types = |settings: &Settings| {
        let engines = settings.engines.iter();
        engines.map(|engine| engine.model_type).collect::<Vec<_>>()
    };
    let expected = [Some(ModelType::Chat), Some(ModelType::Embeddings)];
    assert_eq!(types(&from_flags), expected);
    let probe = InferenceProbe {
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(5),
    };
    assert_eq!(from_flags.inference_probe, Some(probe));
    assert_eq!(from_flags.health.inference_fall, Some(2));
    let file = "engines: [{url: http://a, type: rerank}, {url: http://b}]";
    let from_file = settings(&[], &[], file);
    assert_eq!(types(&from_file), [Some(ModelType::Rerank), None]);
    assert_eq!(from_file.inference_probe, None);
    assert_eq!(from_file.health.inference_fall, None);
}

#[test]
fn a_static_alias_ends_at_the_first_colon() {
    let flags = [
        ("static_backends", "http://a"),
        ("static_aliases", "gpt-4o:llama3:8b,x:org/m"),
    ];
    let aliases = settings(&flags, &[], "aliases: {other: m}").aliases;
    assert_eq!(aliases, map(&[("gpt-4o", "llama3:8b"), ("x", "org/m")]));
}

// Refusals. In the cases without a file, one engine is given.

#[test]
fn a_bad_flag_is_named_with_its_value() {
    let mut lines = include_str!("config/bad_flags.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut seen = 0;
    while let (Some(args), Some(expected)) = (lines.next(), lines.next()) {
        let args = ["vllm-pingora"].into_iter().chain(args.split(' '));
        let flags = cli::flags(&cli::command().try_get_matches_from(args).unwrap());
        let flags: Vec<_> = flags
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(mistakes(&flags, &[], ENGINE), [expected.trim_start()]);
        seen += 1;
    }
    assert!(seen > 50);
}

#[test]
fn a_bad_file_is_reported_line_by_line() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/bad");
    let mut seen = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let expected = text
            .lines()
            .filter_map(|line| line.strip_prefix("# expect: "));
        let expected: Vec<_> = expected.map(|line| format!("router.yaml{line}")).collect();
        assert!(!expected.is_empty(), "{} expects nothing", path.display());
        assert_eq!(mistakes(&[], &[], &text), expected, "{}", path.display());
        seen += 1;
    }
    assert!(seen > 0);
}

#[test]
fn flags_environment_and_file_share_one_report() {
    let file = format!(
        "{ENGINE}prot: 80\nport: http\nmax_retries: 0\nenable_retries: true\nlog_format: xml\n"
    );
    let flags = [("jitter_factor", "2"), ("threads", "many")];
    let env = [
        ("VLLM_PINGORA_LOG_FORMAT", "csv"),
        ("VLLM_PINGORA_ENGINES", "http://a"),
    ];
    assert_eq!(
        mistakes(&flags, &env, &file),
        [
            "--threads: many is not a whole number",
            "--jitter-factor: 2 is not accepted; it must be a number between 0 and 1",
            "VLLM_PINGORA_ENGINES: not read from the environment; give VLLM_PINGORA_STATIC_BACKENDS",
            "VLLM_PINGORA_LOG_FORMAT: csv is not accepted; accepted: text, json",
            "router.yaml:2: prot: unknown key; --help lists the settings",
            "router.yaml:3: port: http is not a whole number",
            "router.yaml:4: max_retries: 0 is not accepted; it counts all attempts, the first included, and must be between 2 and 4294967295",
        ],
    );
}

#[test]
fn no_engine_at_all_is_a_mistake_that_shows_both_ways() {
    let expected =
        "none given; list them under engines in the file, or give --static-backends URL,URL";
    assert_eq!(mistakes(&[], &[], ""), [format!("engines: {expected}")]);
    assert_eq!(
        mistakes(&[], &[], "engines: []"),
        [format!("router.yaml:1: engines: {expected}")]
    );
}

// Retries that are off.

#[test]
fn retry_settings_out_of_range_are_ignored_while_retries_are_off() {
    let file = format!(
        "{ENGINE}max_retries: 0\ninitial_backoff_ms: -1\nmax_backoff_ms: 1.5\nbackoff_multiplier: .nan\njitter_factor: inf\n"
    );
    let loaded = load(&[("max_retries", "-1")], &[], &file).unwrap();
    assert_eq!(loaded.settings.retry, None);
    assert_eq!(
        loaded.warnings,
        [
            "retries are off, so max_retries, initial_backoff_ms, max_backoff_ms, backoff_multiplier, jitter_factor will be ignored; --enable-retries turns them on"
        ],
    );
}

#[test]
fn the_longest_accepted_retry_settings_are_accepted() {
    let flags = [
        ("enable_retries", "true"),
        ("max_retries", "4294967295"),
        ("initial_backoff_ms", "18446744073709551615"),
        ("max_backoff_ms", "18446744073709551615"),
        ("backoff_multiplier", "1e308"),
        ("jitter_factor", "1"),
    ];
    let retry = settings(&flags, &[], ENGINE).retry.unwrap();
    assert_eq!(retry.max_retries(), u32::MAX);
    assert_eq!(retry.max_backoff(), Duration::from_millis(u64::MAX));
}

// Warnings.

#[test]
fn what_will_surprise_is_warned_of() {
    let warnings = |flags: Pairs<'_>, env: Pairs<'_>| load(flags, env, ENGINE).unwrap().warnings;
    assert_eq!(
        warnings(&[("session_key", "x-user-id")], &[]),
        ["session_key has no effect: routing_logic roundrobin does not look at it"],
    );
    assert_eq!(
        warnings(
            &[],
            &[
                ("VLLM_PINGORA_MAX_RETRYS", "3"),
                ("VLLM_PINGORA_SERVICE_HOST", "10.0.0.1")
            ]
        ),
        ["VLLM_PINGORA_MAX_RETRYS is not read; did you mean VLLM_PINGORA_MAX_RETRIES"],
    );
    assert_eq!(
        warnings(&[], &[("VLLM_PINGORA_PORT", "tcp://10.0.0.1:8001")]),
        [
            "VLLM_PINGORA_PORT is ignored: it holds an address, as Kubernetes sets it for a Service called vllm-pingora"
        ],
    );
    assert_eq!(
        warnings(&[("enable_retries", "true"), ("max_retries", "3")], &[]),
        [""; 0]
    );
}

// Secrets.

#[test]
fn keys_come_from_flags_else_the_file_and_from_a_key_file() {
    let path = std::env::temp_dir().join(format!("vllm-pingora-keys-{}", std::process::id()));
    fs::write(&path, "# ours\n\n  three \nfour\n").unwrap();
    let file = format!(
        "{ENGINE}api_keys: [one, two]\napi_key_file: {}\n",
        path.display()
    );
    let keys = |flags: Pairs<'_>| {
        let keys = settings(flags, &[], &file).api_keys;
        keys.iter()
            .map(|key| key.expose().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&[]), ["one", "two", "three", "four"]);
    assert_eq!(
        keys(&[("api_key", "five,six")]),
        ["five", "six", "three", "four"]
    );
    fs::write(&path, "# none yet\n").unwrap();
    let expected = format!(
        "router.yaml:3: api_key_file: {} holds no key",
        path.display()
    );
    assert_eq!(mistakes(&[], &[], &file), [expected]);
    fs::remove_file(&path).unwrap();
}

#[test]
fn the_engines_key_falls_back_to_that_of_vllm() {
    let key = |env: Pairs<'_>, file: &str| {
        let key = settings(&[], env, &format!("{ENGINE}{file}")).engine_api_key;
        key.map(|key| key.expose().to_owned())
    };
    let vllm = ("VLLM_API_KEY", "a");
    assert_eq!(key(&[vllm], "").as_deref(), Some("a"));
    assert_eq!(key(&[vllm], "engine_api_key: b").as_deref(), Some("b"));
    assert_eq!(
        key(
            &[vllm, ("VLLM_PINGORA_ENGINE_API_KEY", "c")],
            "engine_api_key: b"
        )
        .as_deref(),
        Some("c")
    );
    assert_eq!(key(&[("VLLM_API_KEY", "")], ""), None);
}

#[test]
fn no_report_and_no_print_shows_a_secret() {
    let files = [
        "api_keys: hunter2",
        "api_keys: {hunter2: hunter2}",
        "api_keys: [[hunter2], {a: hunter2}, 'hunter2 x', !t hunter2]",
        "engine_api_key: [hunter2]",
        "engine_api_key: 'hunter2 '",
        "engine_api_key: !t hunter2",
        "engine_api_key: hunter2\n  api_keys: [x",
        "engine_api_key: \"hunter2",
        "engine_api_key: *hunter2",
        "engine_api_key: hunter2\nengine_api_key: hunter2",
        "- hunter2",
        "hunter2",
        "engines: [{url: 'http://u:hunter2@h'}, {url: 'http://h?k=hunter2'}, {url: 'hunter2@h'}]",
        "engines: hunter2",
    ];
    for file in files {
        let report = mistakes(&[], &[], file).join("\n");
        assert!(!report.contains("hunter2"), "{file}: {report}");
    }
    let flags = [
        ("api_key", "hunter2,hunter2 x"),
        ("engine_api_key", "hunter2 é"),
    ];
    let report = mistakes(&flags, &[("VLLM_API_KEY", "hunter2 x")], ENGINE).join("\n");
    assert!(!report.contains("hunter2"), "{report}");
    let loaded = load(
        &[("api_key", "hunter2"), ("engine_api_key", "hunter2")],
        &[],
        ENGINE,
    )
    .unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let printed = loaded.settings.to_yaml();
    assert!(
        !printed.contains("hunter2") && printed.contains("engine_api_key: '***'"),
        "{printed}"
    );
    assert!(
        mistakes(&[], &[], &printed)
            .join("\n")
            .contains("*** stands for a key that was hidden")
    );
}

// Printing.

#[test]
fn what_is_printed_loads_to_the_same_settings() {
    let full = "\
host: '::1'
engines:
  - {url: 'http://[::1]:9001/base/', models: [a, 'b:c', 'yes', '1']}
  - {url: http://h, type: embeddings}
aliases: {x: a, '2': y}
static_backend_health_checks: true
static_backend_health_check_fall: 7
session_key: x-user-id
enable_retries: true
max_retries: 7
max_backoff_ms: 18446744073709551615
backoff_multiplier: 2
first_byte_timeout_ms: 1
log_level: off
log_format: json
h2c: true
extra_routes:
  - {path: /v1/load_lora_adapter}
  - {method: GET, path: /x, model: body, resend: always}
";
    for file in [EXAMPLE, full] {
        let printed = settings(&[], &[], file).to_yaml();
        let again = settings(&[], &[], &printed);
        assert_eq!(again.to_yaml(), printed);
        let keys: serde_yaml::Mapping = serde_yaml::from_str(&printed).unwrap();
        let names: Vec<_> = keys.keys().map(|key| key.as_str().unwrap()).collect();
        let expected = KEYS
            .iter()
            .filter(|key| key.is_in_file())
            .map(|key| key.name);
        assert_eq!(names, expected.collect::<Vec<_>>());
    }
    let again = settings(&[], &[], &settings(&[], &[], full).to_yaml());
    assert_eq!(again.public_address(), "[::1]:8001");
    assert_eq!(again.engines[0].models, ["a", "b:c", "yes", "1"]);
    assert_eq!(
        again.retry.unwrap().max_backoff(),
        Duration::from_millis(u64::MAX)
    );
    assert_eq!(again.extra_routes.len(), 2);
    assert_eq!(again.engines[1].model_type, Some(ModelType::Embeddings));
    assert_eq!(again.health.inference_fall, Some(7));
}

// Traces, and the variables that other programs read, too.

const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://base:4318/otlp/");
const TRACES_ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1");
const HTTP: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");

fn endpoint(flags: Pairs<'_>, env: Pairs<'_>, file: &str) -> Option<String> {
    let options = settings(flags, env, &format!("{ENGINE}{file}")).traces;
    options.endpoint.map(|endpoint| endpoint.to_string())
}

#[test]
fn the_collector_is_given_here_or_by_the_environment() {
    let own = [("otel_endpoint", "collector:4317")];
    for (flags, env, file, expected) in [
        (&[][..], &[][..], "", None),
        (
            &own[..],
            &[TRACES_ENDPOINT][..],
            "",
            Some("http://collector:4317"),
        ),
        (
            &[],
            &[TRACES_ENDPOINT],
            "otel_endpoint: https://c",
            Some("https://c:443"),
        ),
        (
            &[],
            &[ENDPOINT, TRACES_ENDPOINT],
            "",
            Some("http://traces:1"),
        ),
        (
            &[],
            &[ENDPOINT, HTTP],
            "",
            Some("http://base:4318/otlp/v1/traces"),
        ),
        (
            &[],
            &[TRACES_ENDPOINT],
            "otel_protocol: http",
            Some("http://traces:1/v1/traces"),
        ),
        (&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")], "", None),
    ] {
        let found = endpoint(flags, env, file);
        assert_eq!(found.as_deref(), expected, "{flags:?} {env:?} {file}");
    }
    for off in [
        ("OTEL_SDK_DISABLED", "true"),
        ("OTEL_TRACES_EXPORTER", "none"),
    ] {
        assert_eq!(endpoint(&[], &[TRACES_ENDPOINT, off], ""), None);
        let explicit = endpoint(&own, &[off], "");
        assert_eq!(explicit.as_deref(), Some("http://collector:4317"));
    }
}

#[test]
fn what_else_is_said_of_traces_falls_back_to_the_environment() {
    let env = [
        TRACES_ENDPOINT,
        HTTP,
        ("OTEL_SERVICE_NAME", "edge"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
    ];
    let traces = settings(&[], &env, ENGINE).traces;
    assert_eq!(traces.protocol.word(), "http");
    assert_eq!(traces.service_name, "edge");
    assert_eq!(traces.timeout, Duration::from_millis(2500));
    let file = format!(
        "{ENGINE}otel_protocol: grpc\notel_service_name: mine\notel_sampling_ratio: 0.25\n"
    );
    let traces = settings(&[], &env, &file).traces;
    assert_eq!(traces.protocol.word(), "grpc");
    assert_eq!(traces.service_name, "mine");
    assert_eq!(traces.ratio.share().to_string(), "0.25");
    let traces = settings(&[], &[], ENGINE).traces;
    assert_eq!(
        (traces.protocol.word(), &*traces.service_name),
        ("grpc", "vllm-pingora")
    );
    assert_eq!(traces.timeout, Duration::from_secs(10));
}

#[test]
fn the_environment_is_judged_only_where_there_are_traces() {
    let env = [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
    ];
    assert!(settings(&[], &env, ENGINE).traces.endpoint.is_none());
    let env = [env[0], env[1], ("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")];
    let mut found = mistakes(&[], &env, ENGINE);
    found.sort();
    assert_eq!(
        found,
        [
            "OTEL_EXPORTER_OTLP_ENDPOINT: nowhere: neither a scheme nor a port is given; give http://HOST:PORT",
            "OTEL_EXPORTER_OTLP_PROTOCOL: http/json is not accepted; accepted: grpc, http/protobuf",
            "OTEL_EXPORTER_OTLP_TIMEOUT: soon is not a whole number",
        ]
    );
}
