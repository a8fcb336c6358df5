//! An edge proxy for fleets of vLLM engines.

pub mod retry;
pub mod simulator;
