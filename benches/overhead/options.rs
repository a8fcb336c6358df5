//! What the bench is asked to do.

use std::time::Duration;

use clap::{Arg, ArgAction, Command, value_parser};

use crate::plan::Load;

/// Those of the comparison in which requests go straight through.
const LOADS: [Load; 3] = [Load::Chat, Load::Stream, Load::Long];

/// The options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    pub loads: Vec<Load>,
    /// How often processes are started.
    pub starts: u16,
    /// How many rounds each of them has.
    pub rounds: u16,
    /// How long a turn lasts.
    pub time: Duration,
}

/// Reads the command line; explains itself and exits when it is wrong.
pub fn read() -> Options {
    let number = |name: &'static str, default: &'static str| {
        Arg::new(name)
            .long(name)
            .default_value(default)
            .value_parser(value_parser!(u16).range(1..))
    };
    let loads = Arg::new("loads")
        .long("loads")
        .value_delimiter(',')
        .default_value("a,b")
        .value_parser(LOADS.map(Load::letter))
        .help("under which loads of the bench `compare`: answers, streams, long prompts");
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .hide(true);
    let matches = Command::new("overhead")
        .about("Measures what metrics, the status page and the search for tokens cost a request")
        .arg(loads)
        .arg(number("starts", "8").help("how often processes are started anew"))
        .arg(number("rounds", "10").help("how many turns each process has before that"))
        .arg(number("millis", "500").help("how long a turn lasts, in milliseconds"))
        .arg(bench)
        .get_matches();
    let number = |name: &str| *matches.get_one::<u16>(name).expect("has a default");
    let letters: Vec<_> = matches
        .get_many::<String>("loads")
        .expect("has a default")
        .collect();
    Options {
        loads: LOADS
            .into_iter()
            .filter(|load| letters.iter().any(|letter| *letter == load.letter()))
            .collect(),
        starts: number("starts"),
        rounds: number("rounds"),
        time: Duration::from_millis(number("millis").into()),
    }
}
