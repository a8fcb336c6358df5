//! How the simulated engine behaves just now: speed, limits and faults, in a type that cannot hold
//! a wrong value.
//!
//! Flags, the control path and tests all come through one door, [`Behaviour::changed`], which takes
//! a JSON object. So a flag `--fail-share` and the key `fail_share` are checked by the same rule
//! and refused with the same words.

mod values;

use serde_json::{Map, Value, json};

use super::fault::{self, Fault, Point};
use values::{count, is_header_text, length, number, script, word};

/// Every key [`Behaviour::changed`] accepts.
pub(super) const KEYS: [&str; 16] = [
    "script",
    "fail_share",
    "fail_status",
    "reset_share",
    "reset_at",
    "hang_share",
    "retry_after",
    "paused",
    "health_status",
    "ttft_ms",
    "ttft_jitter",
    "tokens_per_second",
    "tokens",
    "max_num_seqs",
    "max_num_queued_reqs",
    "seed",
];

/// A key that is unknown or holds a value that is not accepted.
///
/// The text starts with the key, then says what was found and what is accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BehaviourError {
    /// The change is not a JSON object.
    #[error("the change must be a JSON object with any of these keys: {}", KEYS.join(", "))]
    NotAnObject,
    /// No such key.
    #[error("{0}: unknown key; accepted are {keys}", keys = KEYS.join(", "))]
    UnknownKey(String),
    /// A value out of its range or of the wrong type.
    #[error("{key}: {found} is not accepted; it must be {accepted}")]
    Value {
        /// The key at fault.
        key: String,
        /// The value as given.
        found: String,
        /// What would be accepted.
        accepted: String,
    },
    /// The three shares together are more than all requests.
    #[error("fail_share, reset_share, hang_share: they add up to {0}; at most 1 is accepted")]
    Shares(String),
}

/// Speed, limits and faults of a simulated engine. Having one means it is valid.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    pub(super) script: Vec<Option<Fault>>,
    pub(super) fail_share: f64,
    pub(super) fail_status: u16,
    pub(super) reset_share: f64,
    pub(super) reset_at: Point,
    pub(super) hang_share: f64,
    pub(super) retry_after: Option<String>,
    pub(super) paused: bool,
    pub(super) health_status: u16,
    pub(super) ttft_ms: f64,
    pub(super) ttft_jitter: f64,
    pub(super) tokens_per_second: f64,
    pub(super) tokens: (u32, u32),
    pub(super) max_num_seqs: usize,
    pub(super) max_num_queued_reqs: Option<usize>,
    pub(super) seed: u64,
}

// === impl Behaviour ===

impl Default for Behaviour {
    /// An engine that answers everything at once with 16 tokens, 256 requests at a time.
    fn default() -> Self {
        Self {
            script: Vec::new(),
            fail_share: 0.0,
            fail_status: 503,
            reset_share: 0.0,
            reset_at: Point::BeforeHead,
            hang_share: 0.0,
            retry_after: None,
            paused: false,
            health_status: 200,
            ttft_ms: 0.0,
            ttft_jitter: 0.0,
            tokens_per_second: 0.0,
            tokens: (16, 16),
            max_num_seqs: 256,
            max_num_queued_reqs: None,
            seed: 0,
        }
    }
}

impl Behaviour {
    /// The default behaviour with the changes of a JSON object, such as `{"script":"503,200"}`.
    ///
    /// # Errors
    /// As [`Behaviour::changed`].
    pub fn from_json(text: &str) -> Result<Self, BehaviourError> {
        let change: Value = serde_json::from_str(text).map_err(|_| BehaviourError::NotAnObject)?;
        Self::default().changed(&change)
    }

    /// This behaviour with the keys of a JSON object put in place; all of them or none.
    ///
    /// # Errors
    /// - [`BehaviourError::NotAnObject`] when `change` is anything else
    /// - [`BehaviourError::UnknownKey`] and [`BehaviourError::Value`] for the first key at fault
    /// - [`BehaviourError::Shares`] when the resulting shares add up to more than 1
    pub fn changed(&self, change: &Value) -> Result<Self, BehaviourError> {
        let change = change.as_object().ok_or(BehaviourError::NotAnObject)?;
        let mut next = self.clone();
        for (key, value) in change {
            next.set(key, value)?;
        }
        let shares = next.fail_share + next.reset_share + next.hang_share;
        if shares > 1.0 + 1e-9 {
            return Err(BehaviourError::Shares(format!("{shares:.3}")));
        }
        Ok(next)
    }

    /// The behaviour as the JSON object that [`Behaviour::changed`] would accept.
    pub fn to_json(&self) -> Value {
        let words = self.script.iter().map(|step| match step {
            None => "200".to_owned(),
            Some(fault) => fault.to_string(),
        });
        let tokens = match self.tokens {
            (least, most) if least == most => json!(least),
            (least, most) => json!(format!("{least}-{most}")),
        };
        let mut object = Map::new();
        for (key, value) in KEYS.into_iter().zip([
            json!(words.collect::<Vec<_>>().join(",")),
            json!(self.fail_share),
            json!(self.fail_status),
            json!(self.reset_share),
            json!(self.reset_at.to_string()),
            json!(self.hang_share),
            json!(self.retry_after),
            json!(self.paused),
            json!(self.health_status),
            json!(self.ttft_ms),
            json!(self.ttft_jitter),
            json!(self.tokens_per_second),
            tokens,
            json!(self.max_num_seqs),
            json!(self.max_num_queued_reqs),
            json!(self.seed),
        ]) {
            object.insert(key.to_owned(), value);
        }
        Value::Object(object)
    }

    fn set(&mut self, key: &str, value: &Value) -> Result<(), BehaviourError> {
        let refuse = |accepted: &str| BehaviourError::Value {
            key: key.to_owned(),
            found: value.to_string(),
            accepted: accepted.to_owned(),
        };
        let share = || number(value, 0.0, 1.0).ok_or_else(|| refuse("a number between 0 and 1"));
        let limit = |least| {
            count(value)
                .filter(|count| *count >= least)
                .ok_or_else(|| refuse(&format!("a whole number of at least {least}")))
        };
        let status = || {
            value
                .as_u64()
                .and_then(|status| u16::try_from(status).ok())
                .filter(|status| (400..=599).contains(status))
                .ok_or_else(|| refuse("a status from 400 to 599"))
        };
        match key {
            "script" => {
                self.script = script(value)
                    .ok_or_else(|| refuse(&format!("steps, each {}", fault::WORDS)))?;
            }
            "fail_share" => self.fail_share = share()?,
            "reset_share" => self.reset_share = share()?,
            "hang_share" => self.hang_share = share()?,
            "ttft_jitter" => self.ttft_jitter = share()?,
            "fail_status" => self.fail_status = status()?,
            "health_status" if value.as_u64() == Some(200) => self.health_status = 200,
            "health_status" => {
                self.health_status =
                    status().map_err(|_| refuse("200 or a status from 400 to 599"))?;
            }
            "reset_at" => {
                self.reset_at = word(value)
                    .and_then(|text| fault::point(&text).ok())
                    .ok_or_else(|| refuse("`before-head`, `after-head` or a number of tokens"))?;
            }
            "retry_after" if value.is_null() => self.retry_after = None,
            "retry_after" => {
                self.retry_after = Some(
                    word(value)
                        .filter(|text| is_header_text(text))
                        .ok_or_else(|| refuse("seconds or an HTTP date"))?,
                );
            }
            "paused" => {
                self.paused = value.as_bool().ok_or_else(|| refuse("true or false"))?;
            }
            "ttft_ms" => {
                self.ttft_ms = number(value, 0.0, 3_600_000.0)
                    .ok_or_else(|| refuse("a number between 0 and 3600000"))?;
            }
            "tokens_per_second" => {
                self.tokens_per_second = number(value, 0.0, 1e6)
                    .filter(|rate| *rate == 0.0 || *rate >= 0.001)
                    .ok_or_else(|| {
                        refuse("0 (as fast as possible) or a number from 0.001 to 1000000")
                    })?;
            }
            "tokens" => {
                self.tokens = length(value)
                    .ok_or_else(|| refuse("a number from 1 to 1000000 or a range such as 8-32"))?;
            }
            "max_num_seqs" => self.max_num_seqs = limit(1)?,
            "max_num_queued_reqs" if value.is_null() => self.max_num_queued_reqs = None,
            "max_num_queued_reqs" => self.max_num_queued_reqs = Some(limit(0)?),
            "seed" => {
                self.seed = value.as_u64().ok_or_else(|| refuse("a whole number"))?;
            }
            _ => return Err(BehaviourError::UnknownKey(key.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
