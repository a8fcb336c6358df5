//! Everything that is remembered of the last quarter of an hour.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::work::Engines;
use super::{CELLS, Recent, Ring, SPAN, Totals, WINDOW, millis};
use crate::engines::Condition;
use crate::record::Record;

/// How many changes of engines' conditions are remembered.
pub const CHANGES: usize = 100;

/// A change of an engine's condition.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Change {
    /// Its number among all changes.
    pub number: u64,
    /// When it was, since the process started.
    #[serde(rename = "at_ms", serialize_with = "millis")]
    pub at: Duration,
    /// The engine.
    pub engine: Arc<str>,
    /// Its new condition.
    pub condition: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// What is remembered. It takes a bounded amount of memory, whatever happens, and is copied quickly:
/// copies share all that is in the past.
#[derive(Clone, Debug)]
pub struct History {
    /// What came of all requests.
    pub(super) totals: Ring<Totals>,
    /// What each engine did.
    pub(super) engines: Engines,
    /// The last requests somebody may ask about.
    pub(super) recent: Recent,
    /// The last changes of engines' conditions, the last first.
    pub(super) changes: VecDeque<Change>,
    next_change: u64,
}

impl Default for History {
    fn default() -> Self {
        Self {
            totals: Ring::new(SPAN, CELLS),
            engines: Engines::default(),
            recent: Recent::default(),
            changes: VecDeque::new(),
            next_change: 0,
        }
    }
}

impl History {
    /// A request has ended at `now`, the time since the process started.
    pub fn ended(&mut self, record: &Record<'_>, now: Duration) {
        self.totals.at(now).count(record);
        self.engines.count(record, now);
        self.recent.note(record, now);
    }

    /// An engine is in this condition from `now` on.
    pub fn changed(&mut self, engine: &Arc<str>, condition: Condition, now: Duration) {
        self.changes.truncate(CHANGES - 1);
        self.changes.push_front(Change {
            number: self.next_change,
            at: now,
            engine: Arc::clone(engine),
            condition: condition.label(),
            reason: condition.reason(),
        });
        self.next_change += 1;
    }

    /// Forgets the engines that have done nothing for so long that nothing is shown of them.
    pub fn tidy(&mut self, now: Duration) {
        self.engines.forget(WINDOW, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Failure;
    use crate::status::testing::{record, retried};

    #[test]
    fn the_last_changes_are_remembered() {
        let mut history = History::default();
        let engine: Arc<str> = "http://a".into();
        for second in 0..300 {
            let condition = match second % 2 {
                0 => Condition::Ejected(Failure::Connect),
                _ => Condition::Up,
            };
            history.changed(&engine, condition, Duration::from_secs(second));
        }
        assert_eq!(history.changes.len(), CHANGES);
        let last = serde_json::to_value(&history.changes[1]).unwrap();
        assert_eq!(
            last,
            serde_json::json!({
                "number": 298, "at_ms": 298_000.0, "engine": "http://a", "condition": "ejected",
                "reason": "connect",
            })
        );
    }

    #[test]
    fn a_request_is_counted_in_all_books() {
        let mut history = History::default();
        let now = Duration::from_secs(42);
        let attempts = retried(&["connect", "answered"], 10);
        history.ended(&record(&attempts), now);
        let (cell, totals) = history.totals.last(SPAN, now).next().unwrap();
        assert_eq!((cell, totals.requests, totals.attempts), (8, 1, 2));
        assert_eq!(history.engines.labels().count(), 2);
        assert_eq!(history.recent.all().len(), 1);
        history.tidy(now + Duration::from_secs(2 * WINDOW));
        assert_eq!(history.engines.labels().count(), 0);
    }
}
