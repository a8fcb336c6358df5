//! The `vllm-pingora` command: ask the library, print, and turn the outcome into an exit status.

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use vllm_pingora::cli::{self, Task};
use vllm_pingora::config::Settings;
use vllm_pingora::server::Start;
use vllm_pingora::{logging, server, simulator};

fn main() -> ExitCode {
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
    logging::start(settings.log_level, settings.log_format);
    for warning in warnings {
        log::warn!("{warning}");
    }
    match server::run(settings, start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
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
