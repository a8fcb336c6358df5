//! A simulated vLLM engine: the answers, errors, metrics and connection habits of a real one, at a
//! chosen speed and with chosen faults.
//!
//! It is the target of load tests and the engine of the test suite, and it runs by hand as
//! `vllm-pingora simulate`. Everything it decides (`plan`) follows from its seed and the order of
//! requests; everything an operator can change while it runs is one JSON object (`behaviour`),
//! whether it comes from flags, from `POST /sim` or from [`Control::change`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use vllm_pingora::simulator::{Behaviour, Simulator, SimulatorConfig};
//!
//! let engine = Simulator::bind(SimulatorConfig {
//!     behaviour: Behaviour::from_json(r#"{"script":"503,200","ttft_ms":20}"#)?,
//!     ..SimulatorConfig::default()
//! })
//! .await?
//! .spawn();
//! println!("listening on {}", engine.local_addr());
//! # Ok(()) }
//! ```
//!
//! What a client can rely on:
//! - the first token of an answer is [`echo`] of its prompt, so each client can tell its own;
//! - an `X-Request-Id` becomes the id of the answer (`chatcmpl-…`, `cmpl-…`, `embd-…`);
//! - the head of a stream leaves before the wait for the first token, one event is one HTTP chunk;
//! - a close or half-close by the client ends the answer, and its place is free at once;
//! - a hanging request keeps its place, as on a frozen engine, until the client leaves.

mod adapters;
mod answer;
mod ask;
mod behaviour;
mod connection;
mod control;
mod engine;
mod fault;
mod flags;
mod generate;
mod head;
mod ledger;
mod metrics;
mod plan;
mod reply;
mod responses;
mod route;
mod server;
mod sleep;
mod slots;
mod tokens;

use std::env;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::ArgMatches;

use crate::config::{LogFormat, LogLevel};
use crate::logging;

pub use answer::echo;
pub use behaviour::{Behaviour, BehaviourError};
pub use engine::SimulatorConfig;
pub use flags::command;
pub use ledger::Counts;
pub use server::{Control, RunningSimulator, Simulator};

/// Runs `vllm-pingora simulate` until it is told to end.
///
/// Exit status 2 is a wrong flag, 1 an address that cannot be listened on, 0 an end by SIGINT or
/// SIGTERM.
pub fn main(matches: &ArgMatches) -> ExitCode {
    let flags = match flags::read(matches) {
        Ok(flags) => flags,
        Err(error) => {
            eprintln!("error: {}", flags::explain(&error));
            return ExitCode::from(2);
        }
    };
    let level = env::var("RUST_LOG")
        .ok()
        .and_then(|level| level.parse().ok());
    let started = logging::start(&logging::Options {
        level: LogLevel(level.unwrap_or(log::LevelFilter::Info)),
        format: LogFormat::Text,
        access_file: None,
    });
    if let Err(error) = started {
        eprintln!("error: no log: {error}");
        return ExitCode::FAILURE;
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = flags.threads {
        runtime.worker_threads(threads);
    }
    let address = format!("{}:{}", flags.config.host, flags.config.port);
    let ended = runtime
        .enable_all()
        .build()
        .and_then(|runtime| runtime.block_on(run(flags.config)));
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: SimulatorConfig) -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let simulator = Simulator::bind(config).await?;
    let mut stdout = io::stdout();
    writeln!(stdout, "listening on {}", simulator.local_addr())?;
    stdout.flush()?;
    // In a task: a task of the runtime's workers accepts without a hop from this thread.
    let _running = simulator.spawn();
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
