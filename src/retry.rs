//! The retry policy: what follows a failed attempt, and after what wait.
//!
//! An **attempt** is one try to get an answer from one engine, connecting included; a **backoff**
//! is a wait between two attempts. `max_retries` is the one budget of a request and counts every
//! attempt, the first included: 3 is one send and at most two more.
//!
//! Everything here is plain Rust: no sockets, no clock, no dice. The one random draw a backoff
//! needs comes in as an argument, so tests are exact and requests spread.
//!
//! - [`Outcome`] says how an attempt ended, and which ends may be tried again;
//! - [`Backoff`] is the schedule of the waits;
//! - [`Attempts`] is the state of one request: outcome in, [`Next`] out.

mod attempts;
mod backoff;
mod config;
mod outcome;

pub use attempts::{Attempts, Next, Resend, Standing, StopReason};
pub use backoff::Backoff;
pub use config::{MIN_MAX_RETRIES, RetryConfig, RetryConfigError, RetryValues};
pub use outcome::{Failure, NOT_SERVED, Outcome, RetryReason, is_retryable_status};
