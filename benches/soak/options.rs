//! What a run is asked to do.

use std::time::Duration;

use clap::{Arg, ArgAction, Command, value_parser};

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long there is traffic.
    pub traffic: Duration,
    /// How many clients there are at a time.
    pub concurrency: usize,
    /// What clients and engines draw their moods from.
    pub seed: u64,
}

/// Reads the command line; explains itself and exits when it is wrong.
pub fn read() -> Options {
    let minutes = Arg::new("minutes")
        .long("minutes")
        .default_value("1")
        .value_parser(value_parser!(f64))
        .help("how long there is traffic");
    let concurrency = Arg::new("concurrency")
        .long("concurrency")
        .default_value("64")
        .value_parser(value_parser!(u16).range(1..))
        .help("clients at a time");
    let seed = Arg::new("seed")
        .long("seed")
        .default_value("1")
        .value_parser(value_parser!(u64))
        .help("what clients and engines draw their moods from");
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .hide(true);
    let matches = Command::new("soak")
        .args([minutes, concurrency, seed, bench])
        .get_matches();
    let minutes = *matches.get_one::<f64>("minutes").expect("has a default");
    Options {
        traffic: Duration::from_secs_f64((minutes * 60.0).clamp(1.0, 7.0 * 86_400.0)),
        concurrency: usize::from(
            *matches
                .get_one::<u16>("concurrency")
                .expect("has a default"),
        ),
        seed: *matches.get_one::<u64>("seed").expect("has a default"),
    }
}
