//! An edge proxy for fleets of vLLM engines.

pub mod api_error;
pub mod cli;
pub mod config;
pub mod edge;
pub mod engines;
pub mod request;
pub mod retry;
pub mod routing;
