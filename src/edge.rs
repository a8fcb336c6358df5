//! The client's side of the proxy: connections in, requests to Pingora's proxy, connections kept.
//!
//! Pingora's own server loop reads a request head with a timeout per read, buffers 64 KiB of a
//! body for a retry and sends a response head on as soon as it comes. A router in front of LLM
//! engines needs a deadline for the whole head, bodies of any size and framing replayed, and the
//! head held until the first token. So this module stands between the listener and Pingora's
//! proxy:
//!
//! - [`head`] reads and judges a request head, byte by byte;
//! - `ClientSession` wraps the client's connection for one request: it keeps the body
//!   for every attempt and holds the response head back;
//! - `Standstill` notices a client that takes nothing of its answer;
//! - `Intake` sees that an upload takes no more time and memory than it may;
//! - [`Exchange`] is what the wrapper and the proxy's hooks share while a request runs;
//! - [`Edge`] is the application a listener serves.

mod buffered;
mod chunks;
mod closing;
mod collect;
mod connection;
mod exchange;
mod flushed;
mod h2;
pub mod head;
mod intake;
mod quota;
mod saved_body;
mod scratch;
mod session;
mod standstill;
mod stream;
mod upload_time;
mod wishes;

pub use buffered::{Buffered, is_lack_of_room};
pub use connection::{Edge, EdgeOptions, OnRefusal};
pub use exchange::{Exchange, Patience, Silence};
pub use stream::BodyFraming;
pub use wishes::connection_options;
