//! The same, measured: real clients, the built router, and engines in this process.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use vllm_pingora::simulator::{Behaviour, RunningSimulator, Simulator, SimulatorConfig};

use super::figures::{Figures, Summary};
use super::policy::{Policy, policies};
use super::report;
use super::scenario::{SMALL, SPREAD};
use super::simulate::{Runs, run};
use crate::load::child::{Running, cores, free_port, raise_descriptors};
use crate::load::client::Client;
use crate::load::ours::{self, Features};
use crate::load::prompt;

/// Bytes of a prompt.
const PROMPT: usize = 256;
/// Seeds of the simulation.
const SEEDS: u64 = 20;
/// How often engines are asked what they have received.
const LOOK: Duration = Duration::from_millis(5);
/// How long the router may take to start and to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// Simulates and measures every policy, and prints the table.
pub fn compare(runs: u64) {
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let simulated: Vec<Runs> = policies()
        .into_iter()
        .map(|policy| run(&SMALL, policy, SEEDS))
        .collect();
    let mut measured = Vec::new();
    for policy in policies() {
        eprintln!("{}", policy.word);
        let summaries = (0..runs).map(|seed| runtime.block_on(measure(policy, seed)));
        measured.push(summaries.collect());
    }
    print!("{}", report::small(&simulated, &measured));
}

/// One run.
async fn measure(policy: Policy, seed: u64) -> Summary {
    let mut engines = Vec::new();
    for place in 0..SMALL.engines as u64 {
        engines.push(engine(seed * 10 + place).await);
    }
    let addresses: Vec<_> = engines.iter().map(RunningSimulator::local_addr).collect();
    let log = std::env::temp_dir().join(format!("herd-{}.log", std::process::id()));
    let (router, address) = router(policy, &addresses, &log).await;

    let start = Arc::new(Barrier::new(SMALL.herd + 1));
    let mut asking = JoinSet::new();
    for number in 0..SMALL.herd {
        asking.spawn(ask(address, number, Arc::clone(&start)));
    }
    start.wait().await;
    let asked = Instant::now();
    let mut figures = Figures::default();
    let (mut received, mut refused) = (0, 0);
    let mut back = None;
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !asking.is_empty() {
        ticks.tick().await;
        let now = asked.elapsed();
        let counts = counts(&engines);
        figures.arrivals.extend((received..counts.0).map(|_| now));
        figures.refusals.extend((refused..counts.1).map(|_| now));
        (received, refused) = counts;
        if back.is_none() && now >= SMALL.refuses {
            back = Some(now);
            for engine in &engines {
                let change = json!({"script": ""});
                engine.control().change(&change).expect("a behaviour");
            }
        }
        while let Some(answered) = asking.try_join_next() {
            figures.lost += u64::from(!answered.expect("no panic"));
        }
    }
    router.stop(PATIENCE).await;
    let _ = std::fs::remove_file(log);
    figures.summary(&SMALL, back.unwrap_or(SMALL.refuses))
}

/// One client: connects, waits for all others, asks once, and tells whether it was answered.
async fn ask(router: SocketAddr, number: usize, start: Arc<Barrier>) -> bool {
    let mut client = Client::new(router);
    let request = prompt::chat(router, number, PROMPT, false);
    let health = format!("GET /health HTTP/1.1\r\nhost: {router}\r\n\r\n");
    client.ask(health.as_bytes()).await.expect("a connection");
    start.wait().await;
    matches!(client.ask(&request).await, Ok(answer) if answer.status == 200)
}

/// Requests that engines have received, and those they have refused.
fn counts(engines: &[RunningSimulator]) -> (u64, u64) {
    let counts = engines.iter().map(|engine| engine.control().counts());
    counts.fold((0, 0), |(received, refused), counts| {
        let more = counts.statuses.get(&503).copied().unwrap_or(0);
        (received + counts.received, refused + more)
    })
}

/// An engine that refuses everything until it is told otherwise.
async fn engine(seed: u64) -> RunningSimulator {
    let behaviour = json!({
        "max_num_seqs": SMALL.slots,
        "max_num_queued_reqs": SMALL.queue,
        "ttft_ms": SMALL.service.as_millis() as u64,
        "ttft_jitter": SPREAD,
        "tokens": 1,
        "seed": seed,
        "script": "503",
    });
    let config = SimulatorConfig {
        behaviour: Behaviour::from_json(&behaviour.to_string()).expect("a behaviour"),
        ..SimulatorConfig::default()
    };
    Simulator::bind(config).await.expect("a port").spawn()
}

/// The router with these retries.
async fn router(policy: Policy, engines: &[SocketAddr], log: &Path) -> (Running, SocketAddr) {
    let [port, admin] = [free_port(), free_port()].map(|port| port.expect("a port"));
    let features = Features {
        retries: policy.values,
        access_log: false,
        logic: "roundrobin",
    };
    let mut command = ours::router(port, admin, engines, features);
    // The simulation knows no health.
    command.args(["--health-check-interval-ms=0", "--eject-after=0"]);
    let (first, last) = (cores()[0], *cores().last().expect("a core"));
    let mut router = Running::start(command, first, last, log).expect("the router starts");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + PATIENCE;
    while tokio::net::TcpStream::connect(address).await.is_err() {
        let waits = router.is_running() && Instant::now() < deadline;
        assert!(waits, "the router does not start: {}", router.last_words());
        sleep(Duration::from_millis(5)).await;
    }
    (router, address)
}
