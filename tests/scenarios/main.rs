//! Behaviour of the proxy as its clients and its engines see it: bytes in, bytes out.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    clippy::missing_panics_doc,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::too_many_lines,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    reason = "test code: a failed expectation is a panic, and nothing here is anyone's API"
)]

mod admin;
mod backoff;
mod body_bytes;
mod body_chunks;
mod body_limits;
mod buffered;
mod chunks;
mod client_gone;
mod coded_body;
mod connecting;
mod control;
mod corpus;
mod credentials;
mod dashboards;
mod denied;
mod discovery_file;
mod dns;
mod failed_uploads;
mod framing;
mod fuzz;
mod h2;
mod h2_requests;
mod head_held;
mod headers;
mod health;
mod hold;
mod inference;
mod kubernetes;
mod limits;
mod memory;
mod metrics;
mod models;
mod multipart;
mod odd_answers;
mod off;
mod outcomes;
mod overload;
mod paths;
mod pins;
mod pipelined;
mod pool;
mod prefix_aware;
mod quota;
mod realtime;
mod refused;
mod reload;
mod request_body;
mod responses;
mod retry_connect;
mod retry_status;
mod routes;
mod routing;
mod shutdown;
mod sleeping;
mod slow_heads;
mod splits;
mod stalled_clients;
mod state_changing;
mod states;
mod status;
mod streaming;
mod support;
mod support_selftest;
mod switching;
mod traces;
mod unread_body;
mod upgrade;
mod uploads;
mod without_books;
