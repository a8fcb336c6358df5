//! The engines behind the router: who they are, where they are, what they serve.
//!
//! - [`Engine`] is one vLLM server: its URL, the addresses of its name, its running requests;
//! - [`Fleet`] holds them all, and which of them serve which model;
//! - [`Pool`] is those that serve one model, and the logic that chooses among them;
//! - [`Scraper`] asks them how busy they are;
//! - [`Catalog`] asks them what they serve, for `/v1/models` and for engines whose models are not
//!   configured;
//! - [`Responses`] remembers which of them made which response.

mod ask;
mod catalog;
mod engine;
mod fleet;
mod gauges;
mod pool;
mod responses;
mod scraper;

pub use ask::{AskError, Asker, Question};
pub use catalog::{Catalog, ModelEntry};
pub use engine::{Engine, EngineId, InFlight};
pub use fleet::{Fleet, Lookup};
pub use gauges::Gauges;
pub use pool::{Placed, Pool};
pub use responses::{LONGEST_ID, REMEMBERED, Responses};
pub use scraper::Scraper;
