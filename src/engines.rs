//! The engines behind the router: who they are, where they are, what they serve.
//!
//! - [`Engine`] is one vLLM server: its URL, the addresses of its name, its running requests;
//! - [`Fleet`] holds them all, as they come and go, and which of them serve which model;
//! - [`Pool`] is those that serve one model, and the logic that chooses among them;
//! - [`Health`] is what real requests and the probes of the [`Prober`] and the [`InferenceProber`]
//!   say of one;
//! - [`Scraper`] asks them how busy they are;
//! - [`Catalog`] asks them what they serve, for `/v1/models` and for engines whose models are not
//!   configured;
//! - [`Responses`] remembers which of them made which response.

mod ask;
mod attend;
mod catalog;
mod engine;
mod engine_key;
mod fleet;
mod gauges;
mod health;
mod inference_prober;
mod model_type;
mod pool;
mod prober;
mod responses;
mod roster;
mod scraper;
mod sleep;
mod state;

pub use ask::{AskError, Asker, Question};
pub use attend::attend;
pub use catalog::{Catalog, ModelEntry};
pub use engine::{Engine, EngineId, InFlight};
pub use engine_key::EngineKey;
pub use fleet::{Fleet, Policy};
pub use gauges::Gauges;
pub use health::{Check, Condition, Finding, Fitness, Health, HealthLimits, Unready};
pub use inference_prober::{InferenceProbe, InferenceProber};
pub use model_type::{ModelType, Sample};
pub use pool::{Hope, Placed, Pool};
pub use prober::{Probe, Prober};
pub use responses::{LONGEST_ID, REMEMBERED, Responses};
pub use roster::Lookup;
pub use scraper::Scraper;
pub use sleep::{IS_SLEEPING, Sleep};
