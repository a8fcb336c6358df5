//! Other routers for fleets of engines, all of them Python packages.

use std::path::Path;
use std::process::Command;

use super::subject::{ATTEMPTS, Setting};

/// The version of a package that a Python knows.
pub fn version(python: &Path, package: &str) -> Option<String> {
    let code = format!("import importlib.metadata as m; print(m.version('{package}'))");
    let output = Command::new(python).args(["-c", &code]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A command of the environment with the peers, where this package is in it.
fn installed(setting: &Setting<'_>, package: &str) -> Result<Command, String> {
    let python = setting.tools.peers.join("bin/python");
    version(&python, package).ok_or("make compare-peers")?;
    Ok(Command::new(python))
}

/// What the two that are written in Rust have in common.
fn rust_router(command: &mut Command, setting: &Setting<'_>) {
    let (port, spare) = (setting.port.to_string(), setting.spare.to_string());
    let attempts = ATTEMPTS.to_string();
    command
        .args(["--host", "127.0.0.1", "--port", &port])
        .args([
            "--prometheus-host",
            "127.0.0.1",
            "--prometheus-port",
            &spare,
        ])
        .args(["--policy", "round_robin"])
        .args(["--worker-startup-check-interval", "1"])
        .args(["--retry-max-retries", &attempts])
        .args(["--retry-initial-backoff-ms", "1"])
        .args(["--retry-max-backoff-ms", "1"])
        .args(["--retry-jitter-factor", "0"])
        .arg("--worker-urls")
        .args(setting.urls());
}

/// The router of the vLLM project that is written in Rust.
pub fn vllm_router(setting: &Setting<'_>) -> Result<Command, String> {
    let mut command = installed(setting, "vllm-router")?;
    command.args(["-m", "vllm_router.launch_router", "--log-level", "warning"]);
    rust_router(&mut command, setting);
    Ok(command)
}

/// The Shepherd model gateway.
pub fn smg(setting: &Setting<'_>) -> Result<Command, String> {
    let mut command = installed(setting, "smg")?;
    command.args(["-m", "smg", "launch", "--log-level", "warn"]);
    command.args(["--disable-tokenizer-autoload"]);
    // As many as the others take; by default it is 4,096 on few cores.
    command.args(["--max-concurrent-requests", "16384"]);
    rust_router(&mut command, setting);
    Ok(command)
}

/// The router of the vLLM production-stack, which is no package of its own: the Python to use is
/// told on the command line.
pub fn production_stack(setting: &Setting<'_>) -> Result<Command, String> {
    let python = setting.tools.production_stack.as_deref();
    let python = python.ok_or("--production-stack PYTHON")?;
    let here = Command::new(python)
        .args(["-c", "import vllm_router.app"])
        .output();
    if !here.is_ok_and(|output| output.status.success()) {
        return Err(format!("{} has no vllm_router.app", python.display()));
    }
    let port = setting.port.to_string();
    let models = vec!["m"; setting.engines.len()].join(",");
    let mut command = Command::new(python);
    command
        .args(["-m", "vllm_router.app"])
        .args(["--host", "127.0.0.1", "--port", &port])
        .args([
            "--service-discovery",
            "static",
            "--routing-logic",
            "roundrobin",
        ])
        .args(["--static-backends", &setting.urls().join(",")])
        .args(["--static-models", &models])
        .args(["--log-level", "warning"]);
    Ok(command)
}
