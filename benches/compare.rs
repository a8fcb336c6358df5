//! What does a request cost in processor time, compared to other proxies?
//!
//! ```text
//! make compare-peers && make compare
//! cargo bench --locked --bench compare -- --only pingora,ours-off,ours-on,ours-all --loads a,b,c
//! ```
//!
//! The same scripted engines and the same clients, in one thread on one core, with each proxy in
//! turn between them, which has another core and one worker: nginx, HAProxy, Envoy, other routers
//! for fleets of engines, the smallest proxy that can be made of Pingora, and this router with
//! more and more turned on. Those that are not installed are left out, which is said.
//!
//! The figure that counts is the processor time of the proxy, user and system, per request it
//! serves; waits and rates are shown beside it. Tables in Markdown go to the standard output, or
//! with a picture to the files named by `--out`.

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
mod load;

mod compare {
    pub mod figures;
    pub mod general;
    pub mod idle;
    pub mod measure;
    pub mod options;
    pub mod paced;
    pub mod picture;
    pub mod plan;
    pub mod report;
    pub mod routers;
    pub mod run;
    pub mod start;
    pub mod subject;
    pub mod targets;
}

use std::process::ExitCode;

use compare::options::{self, Options};
use compare::report::Findings;
use compare::{picture, run};
use load::ours::SMALLEST;
use load::smallest;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(SMALLEST) {
        smallest::serve(arguments);
    }
    let options = options::read();
    // Engines have a descriptor for each stream, and so have clients.
    load::child::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt()).expect("a signal handler"),
            signal(SignalKind::terminate()).expect("a signal handler"),
        );
        // Children end with what is dropped.
        tokio::select! {
            findings = run::run(&options) => {
                write(&options, &findings.expect("files and sockets"));
                ExitCode::SUCCESS
            }
            _ = interrupt.recv() => ExitCode::FAILURE,
            _ = terminate.recv() => ExitCode::FAILURE,
        }
    })
}

fn write(options: &Options, findings: &Findings) {
    let Some(out) = &options.out else {
        print!("{}", findings.markdown(None));
        return;
    };
    let (tables, drawn) = (out.with_extension("md"), out.with_extension("svg"));
    let name = drawn.file_name().map(|name| name.to_string_lossy());
    std::fs::write(&tables, findings.markdown(name.as_deref())).expect("tables can be written");
    std::fs::write(&drawn, picture::draw(findings)).expect("a picture can be written");
    println!("{} and {}", tables.display(), drawn.display());
}
