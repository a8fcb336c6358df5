//! The turns that routers take.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::options::Options;
use super::serve::Subject;
use crate::load::child::{Running, cores, free_port};
use crate::load::client::Client;
use crate::load::closed::Crowd;
use crate::load::engine::Engines;
use crate::load::prompt;
use crate::load::script::Script;
use crate::plan::Load;

/// How long a router may take to forward its first request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Until connections are open, and streams have begun.
const WARM_UP: Duration = Duration::from_millis(400);

/// Processor time per request, or per event of a stream, of one round, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub without: f64,
    pub with: f64,
    pub control: f64,
}

/// All rounds under one load.
#[derive(Debug)]
pub struct Found {
    pub load: Load,
    pub rounds: Vec<Round>,
}

/// A router that forwards.
struct Router {
    address: SocketAddr,
    process: Running,
}

/// Measures everything that was asked for.
pub async fn run(options: &Options) -> Vec<Found> {
    let engines = Engines::start(3).expect("engines");
    let mut found: Vec<_> = options
        .loads
        .iter()
        .map(|load| Found {
            load: *load,
            rounds: Vec::new(),
        })
        .collect();
    for number in 0..options.starts {
        eprintln!("start {} of {}", number + 1, options.starts);
        let mut routers = Vec::new();
        for subject in Subject::ALL {
            routers.push(start(subject, &engines).await);
        }
        for Found { load, rounds } in &mut found {
            engines.play(load.script());
            for round in 0..options.rounds {
                // Whoever is first has other caches than who is last.
                let first = usize::from(number + round);
                rounds.push(turns(&routers, first, *load, options.time).await);
            }
        }
    }
    found
}

async fn turns(routers: &[Router], first: usize, load: Load, time: Duration) -> Round {
    let mut spent = [0.0; Subject::ALL.len()];
    for turn in 0..routers.len() {
        let who = (first + turn) % routers.len();
        spent[who] = turn_of(&routers[who], load, time).await;
    }
    let of = |subject: Subject| {
        let place = Subject::ALL.iter().position(|it| *it == subject);
        spent[place.expect("one of all")]
    };
    Round {
        without: of(Subject::Without),
        with: of(Subject::With),
        control: of(Subject::Control),
    }
}

async fn turn_of(router: &Router, load: Load, time: Duration) -> f64 {
    let crowd = Crowd::start(router.address, load.question());
    sleep(WARM_UP).await;
    let before = router.process.cpu();
    let window = crowd.watch(time).await;
    let spent = router.process.cpu().saturating_sub(before);
    assert!(
        window.wrong == 0 && window.answers + window.events > 0,
        "{} of {} answers were wrong: {}",
        window.wrong,
        window.answers,
        router.process.last_words()
    );
    let units = match load {
        Load::Stream => window.events,
        _ => window.answers,
    };
    1e6 * spent.as_secs_f64() / units as f64
}

/// Starts a router on the first core, and waits until it forwards.
async fn start(subject: Subject, engines: &Engines) -> Router {
    engines.play(Script::Answer);
    let port = free_port().expect("a port");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let name = format!("overhead-{}-{}.log", std::process::id(), subject.word());
    let log = std::env::temp_dir().join(name);
    let (first, last) = (cores()[0], *cores().last().expect("a core"));
    let command = subject.command(port, &engines.addresses);
    let mut process = Running::start(command, first, last, &log).expect("this program");
    let request = prompt::chat(address, 0, 1 << 10, false);
    let deadline = Instant::now() + PATIENCE;
    while !matches!(Client::new(address).ask(&request).await, Ok(answer) if answer.status == 200) {
        let waits = process.is_running() && Instant::now() < deadline;
        let word = subject.word();
        assert!(waits, "{word} does not forward: {}", process.last_words());
        sleep(Duration::from_millis(5)).await;
    }
    // What it says from here on is lost with it.
    let _ = std::fs::remove_file(&log);
    Router { address, process }
}
