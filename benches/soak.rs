//! Does a router that runs for a long time among failing engines and rude clients stay correct,
//! and does it keep what it takes: memory, descriptors, connections, requests in flight?
//!
//! ```text
//! cargo bench --bench soak -- --minutes 30 --concurrency 64 --seed 1
//! ```
//!
//! The built router runs as a child process over five simulated engines on 127.0.0.1. Engines
//! change their mind all the time: they refuse, reset, close, hang, stall, pause, fill up, and stop
//! and start again on the same port. Clients send all that clients send, on raw sockets.
//!
//! Checked of every answer: its status is one the request can have; a complete answer carries the
//! hash of its own prompt and of no other; a stream without `[DONE]` does not end as if it were
//! complete; no well-formed request goes unanswered while its client waits. Checked of the process:
//! it does not panic or exit, memory does not grow, and after the traffic nothing is in flight, the
//! descriptors are those of an idle router, and it answers everything again.
//!
//! The report is Markdown on the standard output. Exit status 1 means that something was wrong; the
//! seed is printed, though two runs of one seed differ in timing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    unreachable_pub,
    reason = "a bench that cannot go on should say so; figures are for people; nothing is exported"
)]

mod soak {
    pub mod answer;
    pub mod calm;
    pub mod clients;
    pub mod engines;
    pub mod h2_client;
    pub mod hostile;
    pub mod judge;
    pub mod leaving;
    pub mod metrics;
    pub mod options;
    pub mod ordinary;
    pub mod process;
    pub mod prompt;
    pub mod report;
    pub mod router;
    pub mod run;
    pub mod tally;
    pub mod watch;
    pub mod wire;
}

use std::process::ExitCode;

fn main() -> ExitCode {
    let options = soak::options::read();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(soak::run::run(&options))
}
