//! The flags of `vllm-pingora simulate`.
//!
//! A flag that names a behaviour is the key of the same name with dashes, and is checked there.

use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Map, Value};

use super::behaviour::{Behaviour, BehaviourError};
use super::engine::SimulatorConfig;

const SPEED: &str = "Speed and limits (can be changed while it runs: POST /sim)";
const FAULTS: &str = "Faults (can be changed while it runs: POST /sim)";

/// Behaviour flags: name, value, group, help.
const BEHAVIOUR: [(&str, &str, &str, &str); 15] = [
    (
        "ttft-ms",
        "MS",
        SPEED,
        "Time to the first token, in milliseconds",
    ),
    (
        "ttft-jitter",
        "SHARE",
        SPEED,
        "Spread of the time to the first token: 0.2 is ±20 %",
    ),
    (
        "tokens-per-second",
        "RATE",
        SPEED,
        "Tokens per second of one answer; 0 is as fast as possible",
    ),
    (
        "tokens",
        "N|MIN-MAX",
        SPEED,
        "Length of an answer unless the request sets a shorter one",
    ),
    (
        "max-num-seqs",
        "N",
        SPEED,
        "Requests that run at the same time; others wait",
    ),
    (
        "max-num-queued-reqs",
        "N",
        SPEED,
        "Requests that may wait; beyond it they get vLLM's 503 [default: no limit]",
    ),
    (
        "seed",
        "N",
        SPEED,
        "Start of all draws: the same seed and order of requests give the same faults and lengths",
    ),
    (
        "script",
        "STEPS",
        FAULTS,
        "What inference requests get in turn, over and over, such as 503,503,200. A step is 200, a status from 400 to 599, \
         hang, first-event-error, reset-|close-|stall- with before-head, after-head or after-N (tokens), or error-after-N. \
         With a script the shares below are not drawn",
    ),
    (
        "fail-share",
        "SHARE",
        FAULTS,
        "Share of requests that get --fail-status, from 0 to 1",
    ),
    (
        "fail-status",
        "STATUS",
        FAULTS,
        "The status of --fail-share",
    ),
    (
        "reset-share",
        "SHARE",
        FAULTS,
        "Share of requests whose connection is reset at --reset-at",
    ),
    (
        "reset-at",
        "POINT",
        FAULTS,
        "Where: before-head, after-head, or after this many tokens",
    ),
    (
        "hang-share",
        "SHARE",
        FAULTS,
        "Share of requests that are never answered; a stream gets its head",
    ),
    (
        "retry-after",
        "VALUE",
        FAULTS,
        "A Retry-After header on error answers; a real vLLM sends none",
    ),
    (
        "health-status",
        "STATUS",
        FAULTS,
        "The status of /health: 200, or from 400 to 599",
    ),
];

/// The flags as a configuration, and the number of threads.
pub(super) struct Flags {
    pub(super) config: SimulatorConfig,
    pub(super) threads: Option<usize>,
}

/// The subcommand `simulate`.
pub fn command() -> Command {
    let defaults = Behaviour::default().to_json();
    let mut command = Command::new("simulate")
        .about("Run a simulated vLLM engine, with its faults, to test and load-test against")
        .after_help(
            "GET /sim shows counters and behaviour; POST /sim with a JSON object such as \
             {\"script\":\"503,200\",\"ttft_ms\":50,\"paused\":true} changes the behaviour; \
             GET /sim/requests?last=20 shows the last requests.\n\
             An answer begins with echo- and the 64-bit FNV-1a hash of the prompt's JSON, so that \
             a client can tell its own.\n\
             One log line per request goes to standard error; RUST_LOG=warn turns it off.",
        )
        .arg(text("host", "ADDRESS", "The address to listen on").default_value("127.0.0.1"))
        .arg(
            text("port", "PORT", "The port to listen on; 0 takes a free one")
                .value_parser(value_parser!(u16))
                .default_value("8000"),
        )
        .arg(
            text(
                "model",
                "NAME",
                "A served model; may be given several times, the first is the default",
            )
            .action(ArgAction::Append)
            .value_parser(clap::builder::NonEmptyStringValueParser::new())
            .default_value("m"),
        )
        .arg(
            text(
                "api-key",
                "KEY",
                "Ask for this key on /v1 paths, as vLLM does",
            )
            .value_parser(clap::builder::NonEmptyStringValueParser::new()),
        )
        .arg(
            text(
                "max-model-len",
                "N",
                "Longest prompt and longest answer, in tokens",
            )
            .value_parser(value_parser!(u32).range(1..))
            .default_value("131072"),
        )
        .arg(
            text(
                "keep-alive",
                "SECONDS",
                "Close an idle connection this long after an answer",
            )
            .value_parser(seconds)
            .default_value("5"),
        )
        .arg(
            text(
                "threads",
                "N",
                "Worker threads [default: one per processor]",
            )
            .value_parser(value_parser!(u16).range(1..=1024)),
        );
    for (name, value, group, help) in BEHAVIOUR {
        let default = match defaults.get(name.replace('-', "_")) {
            Some(Value::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Value::Number(number)) => number.as_f64().map(|number| number.to_string()),
            _ => None,
        };
        let mut arg = text(name, value, help)
            .help_heading(group)
            .allow_hyphen_values(true);
        if let Some(default) = default {
            arg = arg.default_value(default);
        }
        command = command.arg(arg);
    }
    command.arg(
        Arg::new("paused")
            .long("paused")
            .help("Start with accepting paused: new connections get no answer")
            .help_heading(FAULTS)
            .action(ArgAction::SetTrue),
    )
}

fn text(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// A time in seconds, above 0.
fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.001..=86_400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "a number of seconds from 0.001 to 86400 is accepted".to_owned())
}

/// Reads the flags.
///
/// # Errors
/// A behaviour flag with a value that is not accepted.
pub(super) fn read(matches: &ArgMatches) -> Result<Flags, BehaviourError> {
    let mut change = Map::new();
    for (name, ..) in BEHAVIOUR {
        let typed = matches.value_source(name) == Some(ValueSource::CommandLine);
        if let Some(text) = matches.get_one::<String>(name).filter(|_| typed) {
            let number = text.parse().map(Value::Number);
            let value = number.unwrap_or_else(|_| Value::String(text.clone()));
            change.insert(name.replace('-', "_"), value);
        }
    }
    change.insert("paused".to_owned(), matches.get_flag("paused").into());
    let string = |name| matches.get_one::<String>(name).cloned();
    let defaults = SimulatorConfig::default();
    Ok(Flags {
        threads: matches.get_one::<u16>("threads").copied().map(usize::from),
        config: SimulatorConfig {
            host: string("host").unwrap_or(defaults.host),
            port: matches.get_one("port").copied().unwrap_or(defaults.port),
            models: matches
                .get_many::<String>("model")
                .map_or(defaults.models, |models| models.cloned().collect()),
            api_key: string("api-key"),
            keep_alive: matches
                .get_one("keep-alive")
                .copied()
                .unwrap_or(defaults.keep_alive),
            max_model_len: matches
                .get_one("max-model-len")
                .copied()
                .unwrap_or(defaults.max_model_len),
            behaviour: Behaviour::default().changed(&Value::Object(change))?,
        },
    })
}

/// The text of a wrong flag: the key of the behaviour becomes the flag's name.
pub(super) fn explain(error: &BehaviourError) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((keys, rest)) => {
            let flags: Vec<String> = keys
                .split(", ")
                .map(|key| format!("--{}", key.replace('_', "-")))
                .collect();
            format!("{}: {rest}", flags.join(", "))
        }
        None => text,
    }
}

#[cfg(test)]
mod tests;
