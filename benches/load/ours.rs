//! This project's router, and the smallest proxy that can be made of Pingora, as commands.

use std::env;
use std::net::SocketAddr;
use std::process::Command;

use vllm_pingora::retry::RetryValues;

/// The subcommand that makes a bench the smallest proxy.
pub const SMALLEST: &str = "smallest-pingora";

/// As many attempts of a request, each a millisecond after the one before.
pub fn at_once(attempts: u32) -> RetryValues {
    RetryValues {
        max_retries: attempts.into(),
        initial_backoff_ms: 1,
        max_backoff_ms: 1,
        backoff_multiplier: 1.0,
        jitter_factor: 0.0,
    }
}

/// What of the router is turned on.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    pub retries: Option<RetryValues>,
    pub access_log: bool,
    pub logic: &'static str,
}

/// The router with one worker and these features.
pub fn router(port: u16, admin: u16, engines: &[SocketAddr], features: Features) -> Command {
    let list = |each: &dyn Fn(&SocketAddr) -> String| {
        let each: Vec<_> = engines.iter().map(each).collect();
        each.join(",")
    };
    let retries = features.retries.unwrap_or_default();
    let flags = [
        ("host", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("admin-port", admin.to_string()),
        ("threads", "1".to_owned()),
        (
            "static-backends",
            list(&|engine| format!("http://{engine}")),
        ),
        ("static-models", list(&|_| "m".to_owned())),
        ("routing-logic", features.logic.to_owned()),
        ("enable-retries", features.retries.is_some().to_string()),
        // Without retries these are ignored.
        ("max-retries", retries.max_retries.to_string()),
        ("initial-backoff-ms", retries.initial_backoff_ms.to_string()),
        ("max-backoff-ms", retries.max_backoff_ms.to_string()),
        ("backoff-multiplier", retries.backoff_multiplier.to_string()),
        ("jitter-factor", retries.jitter_factor.to_string()),
        ("access-log", features.access_log.to_string()),
        ("log-level", "warn".to_owned()),
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"));
    command.args(flags.map(|(name, value)| format!("--{name}={value}")));
    command
}

/// The smallest proxy, which is another role of the program that runs.
pub fn smallest(port: u16, engines: &[SocketAddr]) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args([SMALLEST, &format!("127.0.0.1:{port}")])
        .args(engines.iter().map(ToString::to_string));
    command
}

/// The version of Pingora that is built in.
pub fn pingora_version() -> Option<&'static str> {
    let lock = include_str!("../../Cargo.lock");
    let (_, rest) = lock.split_once("name = \"pingora-proxy\"\nversion = \"")?;
    rest.split_once('"').map(|(version, _)| version)
}
