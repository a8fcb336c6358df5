//! What does a fleet go through when everybody asks it again, and which retry settings spare it?
//!
//! ```text
//! cargo bench --locked --bench herd -- simulate --svg herd.svg
//! cargo bench --locked --bench herd -- real
//! ```
//!
//! `simulate`: a fleet fails with 10,000 requests in flight, refuses everything for a while, and is
//! back with nothing to do, while others go on to ask. The router's own retry policy and its own
//! pool of engines decide, in virtual time; engines take in no more at a time than they can
//! prefill, and refuse what their queue has no room for, as vLLM does with a queue limit. A seed
//! replays its run; every policy gets the same requests.
//!
//! `real`: the same at a scale one machine carries, first simulated and then measured, with real
//! clients, the built router and three simulated engines of the kind of `vllm-pingora simulate`.
//!
//! Both print Markdown on the standard output.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    unreachable_pub,
    missing_docs,
    reason = "a bench that cannot go on should say so; figures are for people; nothing is exported"
)]

mod drawing;
mod fleet;
mod load;

mod herd {
    pub mod engine;
    pub mod figures;
    pub mod options;
    pub mod picture;
    pub mod policy;
    pub mod real;
    pub mod report;
    pub mod scenario;
    pub mod simulate;
    pub mod world;
}

use herd::options::{self, Task};
use herd::{real, simulate};

fn main() {
    for task in options::read() {
        match task {
            Task::Simulate { seeds, svg } => simulate::simulate(seeds, svg.as_deref()),
            Task::Real { runs } => real::compare(runs),
        }
    }
}
