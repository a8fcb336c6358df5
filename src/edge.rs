//! The client's side of the proxy: connections in, requests to Pingora's proxy, connections kept.
//!
//! Pingora's own server reads a request head with a timeout per read and by lax rules, buffers
//! 64 KiB of a body for a retry and sends a response head on as soon as it comes. A router in front
//! of LLM engines needs a deadline for the whole head, one reading of it, bodies of any size and
//! framing replayed, and the head held until the first token. So this module stands between the
//! listener and Pingora's proxy:
//!
//! - [`head`] judges a request head, byte by byte, and takes it apart;
//! - `H1` reads requests from a client's connection and writes the answers;
//! - `ClientSession` is what a request came on as Pingora's proxy sees it: it keeps the body for
//!   every attempt and holds the response head back;
//! - `Standstill` notices a client that takes nothing of its answer;
//! - `Intake` sees that an upload takes no more time and memory than it may;
//! - [`Exchange`] is what the wrapper and the proxy's hooks share while a request runs;
//! - [`Edge`] is the application a listener serves.

mod alarm;
mod buffered;
mod chunks;
mod client_wire;
mod closing;
mod connection;
mod exchange;
mod flushed;
mod h1;
mod h2;
pub mod head;
mod intake;
mod quota;
mod saved_body;
mod scratch;
mod session;
mod standstill;
mod upload_time;
mod wishes;

pub use buffered::{Buffered, is_lack_of_room};
pub use connection::{Edge, EdgeOptions, OnRefusal};
pub use exchange::{Exchange, Patience, Silence};
pub use head::BodyFraming;
pub use wishes::{asks_for_websocket, connection_options};
