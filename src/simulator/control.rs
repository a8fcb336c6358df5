//! The control path: `GET /sim`, `POST /sim` and `GET /sim/requests?last=N`.
//!
//! It needs no key, is not counted, and answers even while accepting is paused.

use serde_json::{Value, json};

use super::behaviour::BehaviourError;
use super::engine::Engine;
use super::reply::Reply;

/// How many requests are shown when the query does not say.
const SHOWN: usize = 20;

/// Puts a change in place and shows the status after it, or says with 400 what is accepted.
pub(super) fn change(engine: &Engine, body: &[u8]) -> Reply {
    let changed = serde_json::from_slice::<Value>(body)
        .map_err(|_| BehaviourError::NotAnObject)
        .and_then(|change| engine.change(&change));
    match changed {
        Ok(()) => Reply::json(200, engine.status().to_string()),
        Err(error) => Reply::json(400, json!({"error": error.to_string()}).to_string()),
    }
}

/// The last requests received.
pub(super) fn requests(engine: &Engine, query: &str) -> Reply {
    let last = query
        .split('&')
        .find_map(|pair| pair.strip_prefix("last="))
        .map_or(Ok(SHOWN), str::parse);
    match last {
        Ok(last) => Reply::json(200, engine.ledger.last(last).to_string()),
        Err(_) => Reply::json(400, r#"{"error":"last: a whole number is accepted"}"#),
    }
}
