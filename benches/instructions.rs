//! How many instructions does a request take?
//!
//! ```text
//! make instructions
//! cargo bench --locked --bench instructions -- --write
//! ```
//!
//! Instructions are the one measure of time that a busy machine does not change. The router, with
//! retries on, and the smallest proxy that can be made of Pingora run under callgrind, twice each:
//! once for a few requests, once for many more. What the second run has more, start and stop taken
//! off thereby, belongs to the requests it has more. Only the program is counted, not the system
//! under it.
//!
//! Counts are compared to `benches/instructions.toml`; exit status 1 means that one has moved by
//! more than a tenth. `--write` puts the new ones there instead. They depend on the compiler's
//! version, so that a new one may call for new counts.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on should say so; figures are for people; nothing is exported"
)]

mod load;

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Arg, ArgAction, value_parser};
use load::child::{Running, cores, free_port};
use load::client::Client;
use load::engine::Engines;
use load::ours::{self, Features, SMALLEST};
use load::{prompt, smallest};
use tokio::time::{Instant, sleep};
use vllm_pingora::retry::RetryValues;

/// Requests of the short run.
const WARM: u32 = 500;
/// Bytes of a prompt.
const PROMPT: usize = 1 << 10;
/// How far a count may move.
const TOLERANCE: f64 = 0.1;
/// Programs take fifty times as long to start and stop as they do without callgrind.
const PATIENCE: Duration = Duration::from_secs(60);
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.toml");

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(SMALLEST) {
        smallest::serve(arguments);
    }
    let requests = Arg::new("requests")
        .long("requests")
        .default_value("2000")
        .value_parser(value_parser!(u32).range(1..))
        .help("how many more requests the long run has");
    let write = Arg::new("write")
        .long("write")
        .action(ArgAction::SetTrue)
        .help("keep the counts in benches/instructions.toml");
    // Cargo says it to every bench.
    let bench = Arg::new("bench")
        .long("bench")
        .action(ArgAction::SetTrue)
        .hide(true);
    let matches = clap::Command::new("instructions")
        .about("Counts the instructions of a request")
        .args([requests, write, bench])
        .get_matches();
    let requests = *matches.get_one::<u32>("requests").expect("has a default");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let counts = runtime.block_on(async {
        let engines = Engines::start(3).expect("engines");
        let mut counts = Vec::new();
        for name in ["router", "smallest_pingora"] {
            counts.push((name, per_request(name, &engines, requests).await));
        }
        counts
    });
    if matches.get_flag("write") {
        keep(&counts);
        return ExitCode::SUCCESS;
    }
    compare(&counts)
}

/// The instructions of one request.
async fn per_request(name: &str, engines: &Engines, requests: u32) -> f64 {
    let short = instructions(name, engines, WARM).await;
    let long = instructions(name, engines, WARM + requests).await;
    (long as f64 - short as f64) / f64::from(requests)
}

/// The instructions of a whole run with so many requests.
async fn instructions(name: &str, engines: &Engines, requests: u32) -> u64 {
    let [port, admin] = [free_port(), free_port()].map(|port| port.expect("a port"));
    let program = match name {
        "router" => router(port, admin, &engines.addresses),
        _ => ours::smallest(port, &engines.addresses),
    };
    let dir = std::env::temp_dir();
    let of = |what: &str| dir.join(format!("instructions-{}.{what}", std::process::id()));
    let (log, counts) = (of("log"), of("out"));
    let (first, last) = (cores()[0], *cores().last().expect("a core"));
    let mut proxy = Running::start(counted(&program, &counts), first, last, &log)
        .unwrap_or_else(|error| panic!("valgrind cannot be started, install it: {error}"));
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let mut client = Client::new(address);
    let request = prompt::chat(address, 0, PROMPT, false);
    let deadline = Instant::now() + PATIENCE;
    while client.ask(&request).await.is_err() {
        let waits = proxy.is_running() && Instant::now() < deadline;
        assert!(waits, "{name} does not forward: {}", proxy.last_words());
        client = Client::new(address);
        sleep(Duration::from_millis(20)).await;
    }
    // One after the other: how many answers are found ready at a time would depend on the moment.
    for _ in 0..requests {
        let answer = client.ask(&request).await;
        assert!(
            answer.as_ref().is_ok_and(|answer| answer.status == 200),
            "{name}: {answer:?}"
        );
    }
    proxy.stop(PATIENCE).await;
    let found = total(&counts);
    for file in [log, counts] {
        let _ = fs::remove_file(file);
    }
    found.unwrap_or_else(|| panic!("callgrind has not told how many instructions there were"))
}

/// The router as it is compared to others, without what it does by the clock.
fn router(port: u16, admin: u16, engines: &[SocketAddr]) -> Command {
    let features = Features {
        retries: Some(RetryValues::default()),
        access_log: false,
        logic: "roundrobin",
    };
    let mut command = ours::router(port, admin, engines, features);
    command.args(["--health-check-interval-ms=0", "--engine-stats-interval=0"]);
    command
}

/// The same command under callgrind.
fn counted(command: &Command, counts: &Path) -> Command {
    let mut counted = Command::new("valgrind");
    counted
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .arg(command.get_program())
        .args(command.get_args());
    counted
}

/// What a file of callgrind's has as the sum.
fn total(file: &PathBuf) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("totals:"))?;
    line.trim().parse().ok()
}

fn keep(counts: &[(&str, f64)]) {
    let mut text = "# Instructions of one request, by `cargo bench --locked --bench instructions -- --write`:\n\
                    # a chat completion with a prompt of 1 KiB and an answer of 416 bytes, retries on.\n"
        .to_owned();
    for (name, count) in counts {
        let _ = writeln!(text, "{name} = {count:.0}");
    }
    fs::write(KEPT, &text).expect("the file can be written");
    print!("{text}");
}

fn compare(counts: &[(&str, f64)]) -> ExitCode {
    let text = fs::read_to_string(KEPT).unwrap_or_default();
    let mut moved = false;
    println!("| subject | instructions per request | kept | change |\n|---|---|---|---|");
    for (name, count) in counts {
        let kept = text.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            (key.trim() == *name).then(|| value.trim().parse::<f64>().ok())?
        });
        let change = kept.map(|kept| count / kept - 1.0);
        moved |= change.is_none_or(|change| change.abs() > TOLERANCE);
        let kept = kept.map_or("–".to_owned(), |kept| format!("{kept:.0}"));
        let change = change.map_or("–".to_owned(), |it| format!("{:+.1} %", 100.0 * it));
        println!("| {name} | {count:.0} | {kept} | {change} |");
    }
    println!(
        "\nThe router takes {:.2} times what the smallest proxy takes.",
        counts[0].1 / counts[1].1
    );
    if moved {
        println!(
            "More than {:.0} % away from what is kept in {KEPT}.",
            100.0 * TOLERANCE
        );
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
