//! An edge proxy for fleets of vLLM engines.

pub mod access_log;
pub mod admin;
pub mod api_error;
pub mod cli;
pub mod config;
pub mod edge;
pub mod engines;
pub mod logging;
pub mod metrics;
pub mod proxy;
pub mod request;
pub mod retry;
pub mod routing;
pub mod server;
pub mod simulator;
