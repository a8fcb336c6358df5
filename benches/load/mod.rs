//! Engines and clients that take next to nothing, and proxies between them as child processes.
//!
//! Engines and clients are tasks of one thread, so that one core carries both; the proxy under
//! test has another one for itself.

#![allow(dead_code, reason = "each bench uses what it needs")]

pub mod child;
pub mod client;
pub mod closed;
pub mod engine;
pub mod machine;
pub mod ours;
pub mod prompt;
pub mod script;
pub mod smallest;
pub mod wire;
