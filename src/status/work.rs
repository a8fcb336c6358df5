//! What engines did of late, each by itself.

use std::sync::Arc;
use std::time::Duration;

use super::{CELLS_OF_AN_ENGINE, Histogram, MOST_ENGINES, Ring, SPAN_OF_AN_ENGINE};
use crate::record::{ANSWERED, Attempt, Record, is_failure};
use crate::words::Words;

/// What one engine did in a cell of time.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Attempts on it that ended.
    pub attempts: u64,
    /// Those that failed, by its own fault.
    pub errors: u64,
    /// Those that another attempt followed.
    pub retried: u64,
    /// From their start to the first byte of a successful answer sent to the client.
    pub first_byte: Histogram,
}

impl Work {
    /// Adds what was done in another cell.
    pub fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.errors += other.errors;
        self.retried += other.retried;
        self.first_byte.add(&other.first_byte);
    }
}

/// What every engine did that anything was asked of.
///
/// Of engines that come and go no more than [`MOST_ENGINES`] are remembered: beyond that, the one
/// that has not been asked for the longest is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Engines {
    by_label: Words<Arc<Ring<Work>>>,
}

impl Engines {
    /// Counts the attempts of a request that has ended.
    pub fn count(&mut self, record: &Record<'_>, now: Duration) {
        let Some((last, before)) = record.attempts.split_last() else {
            return;
        };
        for attempt in before {
            self.count_one(attempt, now, |work| work.retried += 1);
        }
        let first_byte = record
            .first_byte
            .filter(|_| last.outcome == "answered" && (200..300).contains(&record.status))
            .map(|at| at.saturating_sub(last.begun));
        self.count_one(last, now, |work| {
            if let Some(first_byte) = first_byte {
                work.first_byte.count(first_byte);
            }
        });
    }

    /// Counts an attempt, and what `more` knows of it.
    fn count_one(&mut self, attempt: &Attempt, now: Duration, more: impl FnOnce(&mut Work)) {
        let label = &attempt.engine;
        // Looked for once, since nearly always it is there.
        let ring = match self.by_label.get_mut(label) {
            Some(ring) => ring,
            None => self.added(label),
        };
        let work = Arc::make_mut(ring).at(now);
        work.attempts += 1;
        work.errors += u64::from(is_error(attempt));
        more(work);
    }

    fn added(&mut self, label: &Arc<str>) -> &mut Arc<Ring<Work>> {
        self.make_room();
        self.by_label
            .entry(Arc::clone(label))
            .or_insert_with(|| Ring::new(SPAN_OF_AN_ENGINE, CELLS_OF_AN_ENGINE).into())
    }

    fn make_room(&mut self) {
        if self.by_label.len() < MOST_ENGINES {
            return;
        }
        let idlest = self.by_label.iter().min_by_key(|(_, ring)| ring.newest());
        if let Some(label) = idlest.map(|(label, _)| Arc::clone(label)) {
            self.by_label.remove(&label);
        }
    }

    /// Forgets the engines that have done nothing for the last `seconds`.
    pub fn forget(&mut self, seconds: u64, now: Duration) {
        self.by_label
            .retain(|_, ring| ring.last(seconds, now).next().is_some());
    }

    /// What the engine called `label` did; `None` where nothing is remembered.
    pub fn get(&self, label: &str) -> Option<&Ring<Work>> {
        self.by_label.get(label).map(|ring| &**ring)
    }

    /// All that are remembered.
    pub fn labels(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_label.keys()
    }
}

/// Whether an attempt failed by the engine's fault.
fn is_error(attempt: &Attempt) -> bool {
    match attempt.outcome {
        ANSWERED => matches!(attempt.status, Some(408 | 429 | 500..)),
        outcome => is_failure(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::testing::{attempt, ms, record, retried};

    const NOW: Duration = Duration::from_secs(1000);

    fn work(engines: &Engines, label: &str) -> Work {
        let mut sum = Work::default();
        for (_, cell) in engines.get(label).unwrap().last(900, NOW) {
            sum.add(cell);
        }
        sum
    }

    #[test]
    fn every_attempt_counts_for_its_own_engine() {
        let mut engines = Engines::default();
        // On a, b, c in turn; the third begins at 60 ms.
        let attempts = retried(&["connect", "retryable_status", "answered"], 10);
        engines.count(
            &Record {
                first_byte: Some(attempts[2].begun + ms(200)),
                ..record(&attempts)
            },
            NOW,
        );
        for (label, expected) in [("a", (1, 1, 1)), ("b", (1, 1, 1)), ("c", (1, 0, 0))] {
            let work = work(&engines, &format!("http://{label}"));
            assert_eq!((work.attempts, work.errors, work.retried), expected);
        }
        // Its own time, without what went before.
        let first = work(&engines, "http://c").first_byte.quantile(1.0).unwrap();
        assert!((175.0..225.0).contains(&first), "{first}");
        assert_eq!(work(&engines, "http://a").first_byte.quantile(1.0), None);
    }

    #[test]
    fn an_engine_is_not_blamed_for_what_others_do() {
        for (outcome, status, error) in [
            ("answered", Some(200), 0),
            ("answered", Some(400), 0),
            ("answered", Some(429), 1),
            ("answered", Some(500), 1),
            ("retryable_status", Some(503), 1),
            ("closed", None, 1),
            ("cut", Some(200), 1),
            ("client_gone", None, 0),
            ("internal", Some(200), 0),
        ] {
            let mut engines = Engines::default();
            let attempts = [attempt("http://a", outcome, status)];
            engines.count(&record(&attempts), NOW);
            let found = work(&engines, "http://a");
            assert_eq!((found.attempts, found.errors), (1, error), "{outcome}");
        }
    }

    #[test]
    fn however_many_engines_come_and_go_few_are_remembered() {
        let mut engines = Engines::default();
        let mut now = Duration::ZERO;
        for number in 0..3 * MOST_ENGINES {
            now += Duration::from_secs(SPAN_OF_AN_ENGINE);
            let attempts = [attempt(
                &format!("http://e-{number}"),
                "answered",
                Some(200),
            )];
            engines.count(&record(&attempts), now);
            // One that stays is asked all the time.
            let attempts = [attempt("http://stays", "answered", Some(200))];
            engines.count(&record(&attempts), now);
        }
        assert_eq!(engines.labels().count(), MOST_ENGINES);
        assert!(engines.get("http://stays").is_some());
        let last = 3 * MOST_ENGINES - 1;
        assert!(engines.get(&format!("http://e-{last}")).is_some());
        assert!(engines.get("http://e-0").is_none());
    }

    #[test]
    fn an_engine_that_does_nothing_is_forgotten_in_time() {
        let mut engines = Engines::default();
        let attempts = [attempt("http://a", "answered", Some(200))];
        engines.count(&record(&attempts), NOW);
        engines.forget(900, NOW + Duration::from_secs(880));
        assert_eq!(engines.labels().count(), 1);
        engines.forget(900, NOW + Duration::from_secs(920));
        assert_eq!(engines.labels().count(), 0);
    }
}
