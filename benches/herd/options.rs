//! What the bench is asked to do.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// What to do; both where nothing is asked for.
#[derive(Clone, Debug)]
pub enum Task {
    /// A large fleet in virtual time: with how many seeds, and where the picture goes.
    Simulate { seeds: u64, svg: Option<PathBuf> },
    /// A small one, simulated and measured: how often each.
    Real { runs: u64 },
}

/// Reads the command line; explains itself and exits when it is wrong.
pub fn read() -> Vec<Task> {
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .global(true)
        .hide(true);
    let matches = Command::new("herd")
        .about("Shows what retries do to a fleet that has failed")
        .arg(bench)
        .subcommand(simulate())
        .subcommand(real())
        .get_matches();
    match matches.subcommand() {
        Some(("simulate", matches)) => vec![simulated(matches)],
        Some((_, matches)) => vec![measured(matches)],
        None => vec![
            simulated(&simulate().get_matches_from(["simulate"])),
            measured(&real().get_matches_from(["real"])),
        ],
    }
}

fn simulate() -> Command {
    let svg = Arg::new("svg")
        .long("svg")
        .value_parser(value_parser!(PathBuf))
        .help("file for the picture");
    let seeds = count("seeds", "5", "how many runs of each policy");
    Command::new("simulate")
        .about("a fleet with 10,000 requests in flight, in virtual time")
        .args([seeds, svg])
}

fn real() -> Command {
    Command::new("real")
        .about("300 clients, simulated and measured")
        .arg(count("runs", "3", "how often each policy is measured"))
}

fn count(name: &'static str, default: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .default_value(default)
        .value_parser(value_parser!(u64).range(1..))
        .help(help)
}

fn simulated(matches: &ArgMatches) -> Task {
    Task::Simulate {
        seeds: *matches.get_one("seeds").expect("has a default"),
        svg: matches.get_one("svg").cloned(),
    }
}

fn measured(matches: &ArgMatches) -> Task {
    Task::Real {
        runs: *matches.get_one("runs").expect("has a default"),
    }
}
