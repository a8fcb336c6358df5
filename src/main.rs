//! The `vllm-pingora` command: ask the library, print, and turn the outcome into an exit status.

use std::env;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use mimalloc::MiMalloc;
use vllm_pingora::cli::{self, Task};
use vllm_pingora::config::Settings;
use vllm_pingora::server::Start;
use vllm_pingora::{logging, server, simulator};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let status = run();
    logging::flush();
    status
}

fn run() -> ExitCode {
    // Answers --help and --version, and exits with 2 after an unknown flag.
    let matches = cli::command()
        .subcommand(simulator::command())
        .get_matches();
    if let Some((_, matches)) = matches.subcommand() {
        return simulator::main(matches);
    }
    match cli::task(&matches, cli::environment(env::vars_os())) {
        Ok(Task::Serve(loaded, start)) => serve(&loaded.settings, &loaded.warnings, start),
        Ok(Task::Print { text, warnings }) => {
            warn(&warnings);
            say(&mut io::stdout(), &text);
            ExitCode::SUCCESS
        }
        Err(errors) => {
            say(&mut io::stderr(), &format!("{errors}\n"));
            ExitCode::from(cli::USAGE)
        }
    }
}

fn serve(settings: &Settings, warnings: &[String], start: Start) -> ExitCode {
    let access_file = settings.access_log.file.as_deref();
    let started = logging::start(&logging::Options {
        level: settings.log_level,
        format: settings.log_format,
        access_file: access_file.filter(|_| settings.access_log.on),
    });
    if let Err(error) = started {
        let path = access_file.unwrap_or(Path::new("")).display();
        say(
            &mut io::stderr(),
            &format!("access_log_file: {path}: {error}\n"),
        );
        return ExitCode::FAILURE;
    }
    for warning in warnings {
        log::warn!("{warning}");
    }
    match server::run(settings, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // What was logged came before it.
            logging::flush();
            say(&mut io::stderr(), &format!("{error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn warn(warnings: &[String]) {
    for warning in warnings {
        say(&mut io::stderr(), &format!("warning: {warning}\n"));
    }
}

/// Writes what can be written: a reader that has gone away is no reason to fail.
fn say(out: &mut impl Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
