//! The retry policy: what follows a failed attempt, and after what wait.
//!
//! An **attempt** is one try to get an answer from one engine, connecting included; a **backoff**
//! is a wait between two attempts. `max_retries` is the one budget of a request and counts every
//! attempt, the first included: 3 is one send and at most two more.
//!
//! Everything here is plain Rust: no sockets, no clock, no dice. The one random draw a backoff
//! needs comes in as an argument, so tests are exact and requests spread.

mod config;

pub use config::{RetryConfig, RetryConfigError, RetryValues};
