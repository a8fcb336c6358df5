//! What the bench is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::plan::Load;
use super::subject::{Subject, Tools};

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    pub subjects: Vec<Subject>,
    pub loads: Vec<Load>,
    /// How often everything is measured.
    pub rounds: usize,
    /// How long a load lasts.
    pub time: Duration,
    /// Streams that are open at a time where memory is looked at.
    pub streams: usize,
    pub tools: Tools,
    /// Where tables and picture go, without `.md` and `.svg`.
    pub out: Option<PathBuf>,
}

/// Reads the command line; explains itself and exits when it is wrong.
pub fn read() -> Options {
    given(&command().get_matches())
}

fn command() -> Command {
    let words: Vec<_> = Subject::ALL.map(Subject::word).into();
    let letters: Vec<_> = Load::ALL.map(Load::letter).into();
    let list = |name: &'static str, values: Vec<&'static str>| {
        Arg::new(name)
            .long(name)
            .value_delimiter(',')
            .value_parser(values)
    };
    let rounds = Arg::new("rounds")
        .long("rounds")
        .value_parser(value_parser!(u16).range(1..))
        .help("how often everything is measured [default: 5, or 1 with --quick]");
    let seconds = Arg::new("seconds")
        .long("seconds")
        .value_parser(value_parser!(f64))
        .help("how long a load lasts [default: 1.5, or 0.7 with --quick]");
    let quick = Arg::new("quick")
        .long("quick")
        .action(ArgAction::SetTrue)
        .help("a trial: one short round, fewer idle streams");
    let peers = Arg::new("peers")
        .long("peers")
        .value_parser(value_parser!(PathBuf))
        .default_value("target/peers")
        .help("the Python environment made by `make compare-peers`");
    let production_stack = Arg::new("production-stack")
        .long("production-stack")
        .value_name("PYTHON")
        .value_parser(value_parser!(PathBuf))
        .help("a Python in which the router of the vLLM production-stack is installed");
    let trained = Arg::new("trained")
        .long("trained")
        .value_parser(value_parser!(PathBuf))
        .default_value("target/pgo/vllm-pingora")
        .help("the router made by `make pgo`");
    let out = Arg::new("out")
        .long("out")
        .value_parser(value_parser!(PathBuf))
        .help("where tables and picture go, without .md and .svg");
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .hide(true);
    Command::new("compare")
        .about("Compares proxies in front of the same engines, under the same loads")
        .arg(list("only", words).help("whom to compare [default: all that are installed]"))
        .arg(list("loads", letters).help("under which loads [default: all]"))
        .args([rounds, seconds, quick, peers, production_stack, trained])
        .args([out, bench])
}

fn given(matches: &ArgMatches) -> Options {
    let quick = matches.get_flag("quick");
    let chosen = |name: &str| {
        let chosen = matches.get_many::<String>(name);
        chosen.map(|it| it.cloned().collect::<Vec<_>>())
    };
    let (only, loads) = (chosen("only"), chosen("loads"));
    let is_in = |list: &Option<Vec<String>>, word: &str| {
        let list = list.as_ref();
        list.is_none_or(|list| list.iter().any(|it| it == word))
    };
    let rounds = matches.get_one::<u16>("rounds").copied();
    let seconds = matches.get_one::<f64>("seconds").copied();
    let seconds = seconds.unwrap_or(if quick { 0.7 } else { 1.5 });
    Options {
        subjects: Subject::ALL
            .into_iter()
            .filter(|it| is_in(&only, it.word()))
            .collect(),
        loads: Load::ALL
            .into_iter()
            .filter(|it| is_in(&loads, it.letter()))
            .collect(),
        rounds: usize::from(rounds.unwrap_or(if quick { 1 } else { 5 })),
        time: Duration::from_secs_f64(seconds.clamp(0.1, 600.0)),
        streams: if quick { 1000 } else { 5000 },
        tools: Tools {
            peers: matches
                .get_one::<PathBuf>("peers")
                .expect("has a default")
                .clone(),
            production_stack: matches.get_one("production-stack").cloned(),
            trained: matches
                .get_one::<PathBuf>("trained")
                .expect("has a default")
                .clone(),
        },
        out: matches.get_one("out").cloned(),
    }
}
