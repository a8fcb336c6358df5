//! Which routing logic serves conversations best, and what does a pick cost?
//!
//! ```text
//! cargo bench --locked --bench routing -- simulate --seeds 5 --engines 8,32 --minutes 20
//! cargo bench --locked --bench routing -- cost
//! ```
//!
//! `simulate` replays synthetic conversations of many users in virtual time: the router's own
//! fleet, pools, logics and retry policy choose among simulated engines, each with continuous
//! batching and a prefix cache. It tells how much of the prompts was cached, how long clients
//! waited for a first token, and how evenly the load lay, and draws a picture of it. A seed
//! replays its run; every logic gets the same conversations.
//!
//! `cost` times picks on the real clock, as the proxy makes them and of the logic alone.
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

mod routing {
    pub mod blocks;
    pub mod cache;
    pub mod conversation;
    pub mod cost;
    pub mod draws;
    pub mod engine;
    pub mod figures;
    pub mod fixed;
    pub mod options;
    pub mod picture;
    pub mod plan;
    pub mod prompt;
    pub mod report;
    pub mod simulate;
    pub mod talk;
    pub mod trace;
    pub mod world;
}

use routing::options::{self, Task};
use routing::{cost, simulate};

fn main() {
    for task in options::read() {
        match task {
            Task::Simulate(options) => simulate::simulate(&options),
            Task::Cost => cost::cost(),
        }
    }
}
