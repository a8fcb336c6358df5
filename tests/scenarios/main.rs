//! Behaviour of the proxy as its clients and its engines see it: bytes in, bytes out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::too_many_lines,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "test code: a failed expectation is a panic, and nothing here is anyone's API"
)]

mod retry_status;
mod support;
mod support_selftest;
