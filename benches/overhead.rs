//! What does it cost to write down what becomes of requests?
//!
//! ```text
//! cargo bench --locked --bench overhead
//! ```
//!
//! This program serves as the router itself, through the library, with its books and without any:
//! metrics, the status page's figures, the search for tokens and the pace of streams. Both are one
//! executable, and processes that take turns on one core, many times for a short while each, under
//! the same clients and engines on another. What counts is the ratio of their processor time per
//! request within a round; the median of all rounds is told, with how far they are apart.
//!
//! A third process is one more without books: its ratio to the first is what chance alone makes.
//! Processes are started anew now and then, since where memory lies in one makes a difference that
//! lasts as long as it does. Traces and the access log are off, as without books. It all takes seven
//! minutes.

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

#[allow(
    dead_code,
    reason = "the loads of the comparison: some are of use here"
)]
#[path = "compare/plan.rs"]
mod plan;

mod overhead {
    pub mod options;
    pub mod report;
    pub mod rounds;
    pub mod serve;
}

use mimalloc::MiMalloc;
use overhead::{options, report, rounds, serve};

/// That of the router's own program.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() {
    let mut arguments = std::env::args().skip(1);
    if let Some(subject) = arguments
        .next()
        .and_then(|word| serve::Subject::named(&word))
    {
        serve::serve(subject, arguments);
    }
    let options = options::read();
    load::child::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let found = runtime.block_on(rounds::run(&options));
    print!("{}", report::markdown(&options, &found));
}
