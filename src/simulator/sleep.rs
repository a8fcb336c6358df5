//! `/sleep`, `/wake_up` and `/is_sleeping`.
//!
//! As with a vLLM server, an engine that sleeps still answers probes and accepts requests; those
//! wait until it is awake.

use serde_json::{Value, json};
use tokio::sync::watch;

use super::reply::Reply;

/// Whether an engine sleeps.
#[derive(Debug)]
pub(super) struct Sleep(watch::Sender<bool>);

impl Default for Sleep {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Sleep {
    /// Falls asleep, at a level from 0 to 2, 1 if none is given.
    pub(super) fn fall(&self, query: &str) -> Reply {
        let level = values(query, "level").next().unwrap_or("1");
        if !matches!(level, "0" | "1" | "2") {
            let text = "1 validation error:\n  {'loc': 'query.level', 'msg': 'Input should be a valid integer from 0 to 2'}";
            return Reply::error(400, "Bad Request", Some("query.level"), text);
        }
        self.0.send_replace(true);
        Reply::json(200, format!(r#"{{"status":"sleeping","level":{level}}}"#))
    }

    /// Wakes up.
    pub(super) fn wake(&self, query: &str) -> Reply {
        let tags: Vec<&str> = values(query, "tags").collect();
        let tags = if tags.is_empty() {
            Value::Null
        } else {
            json!(tags)
        };
        self.0.send_replace(false);
        Reply::json(200, format!(r#"{{"status":"awake","tags":{tags}}}"#))
    }

    /// Says whether it sleeps.
    pub(super) fn tell(&self) -> Reply {
        Reply::json(200, json!({"is_sleeping": self.is_on()}).to_string())
    }

    pub(super) fn is_on(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is awake.
    pub(super) async fn over(&self) {
        let mut asleep = self.0.subscribe();
        // It cannot fail: the sender lives as long as `self`.
        drop(asleep.wait_for(|asleep| !asleep).await);
    }
}

/// The values a query gives for a key.
fn values<'q>(query: &'q str, key: &'static str) -> impl Iterator<Item = &'q str> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter_map(move |(name, value)| (name == key).then_some(value))
}
