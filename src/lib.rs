//! An edge proxy for fleets of vLLM engines.

pub mod engines;
pub mod retry;
