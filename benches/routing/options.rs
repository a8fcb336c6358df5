//! What the bench is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

/// What to do; both where nothing is asked for.
#[derive(Clone, Debug)]
pub enum Task {
    /// Replay conversations in virtual time.
    Simulate(Simulate),
    /// Time picks.
    Cost,
}

/// The options of a simulation.
#[derive(Clone, Debug)]
pub struct Simulate {
    /// Seeds from 1 up to this one.
    pub seeds: u64,
    /// Sizes of fleets; the first one is also looked at closely.
    pub engines: Vec<usize>,
    /// Virtual time in which figures are taken.
    pub measured: Duration,
    /// Where the picture goes.
    pub svg: Option<PathBuf>,
}

/// Reads the command line; explains itself and exits when it is wrong.
pub fn read() -> Vec<Task> {
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .global(true)
        .hide(true);
    let matches = Command::new("routing")
        .about("Compares the routing logics")
        .arg(bench)
        .subcommand(simulate())
        .subcommand(Command::new("cost").about("nanoseconds per pick"))
        .get_matches();
    match matches.subcommand() {
        Some(("simulate", matches)) => vec![Task::Simulate(given(matches))],
        Some(_) => vec![Task::Cost],
        None => {
            let defaults = simulate().get_matches_from(["simulate"]);
            vec![Task::Simulate(given(&defaults)), Task::Cost]
        }
    }
}

fn simulate() -> Command {
    let seeds = Arg::new("seeds")
        .long("seeds")
        .default_value("5")
        .value_parser(value_parser!(u64).range(1..))
        .help("how many runs of each kind");
    let engines = Arg::new("engines")
        .long("engines")
        .value_delimiter(',')
        .default_value("8,32")
        .value_parser(value_parser!(u16).range(2..=1000))
        .help("sizes of fleets");
    let minutes = Arg::new("minutes")
        .long("minutes")
        .default_value("20")
        .value_parser(value_parser!(u64).range(12..))
        .help("virtual time in which figures are taken");
    let svg = Arg::new("svg")
        .long("svg")
        .value_parser(value_parser!(PathBuf))
        .help("file for the picture");
    Command::new("simulate")
        .about("conversations in virtual time")
        .args([seeds, engines, minutes, svg])
}

fn given(matches: &ArgMatches) -> Simulate {
    let number = |name| *matches.get_one::<u64>(name).expect("has a default");
    let engines = matches.get_many::<u16>("engines").expect("has a default");
    Simulate {
        seeds: number("seeds"),
        engines: engines.copied().map(usize::from).collect(),
        measured: Duration::from_secs(60 * number("minutes")),
        svg: matches.get_one("svg").cloned(),
    }
}
