//! What came of the requests of a cell of time, or of several together.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Histogram;
use super::fault::{self, Fault};
use crate::record::Record;

/// What came of requests.
///
/// Whatever is counted by a word is counted by one of a closed list, so that nothing a client
/// sends makes it grow.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// All that ended.
    pub requests: u64,
    /// By how they ended.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Failures, by whose fault they were and by what went wrong.
    pub errors: BTreeMap<(Fault, Box<str>), u64>,
    /// Attempts on engines.
    pub attempts: u64,
    /// What retrying cost and saved.
    pub retries: Retries,
    /// From the head read to the first byte of a successful answer of an engine sent.
    pub first_byte: Histogram,
    /// From the head read to the end of such an answer.
    pub total: Histogram,
}

/// What retrying cost and saved.
#[derive(Clone, Debug, Default)]
pub struct Retries {
    /// Attempts beyond the first one of their request.
    pub extra_attempts: u64,
    /// Those, by what made them necessary.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Requests that failed at first and were answered in the end.
    pub saved: u64,
    /// Requests that failed in spite of further attempts.
    pub lost: u64,
    /// Time spent waiting between attempts.
    pub backoff: Duration,
    /// Time spent in attempts that another one followed.
    pub discarded: Duration,
}

impl Totals {
    /// Counts a request that has ended.
    pub fn count(&mut self, record: &Record<'_>) {
        self.requests += 1;
        *self.outcomes.entry(record.outcome).or_default() += 1;
        let fault = Fault::of(record);
        if let Some(fault) = fault {
            let error = fault::error(record).into();
            *self.errors.entry((fault, error)).or_default() += 1;
        }
        self.attempts += record.attempts.len() as u64;
        self.retries.count(record, fault);
        if record.attempts.is_empty() || record.outcome != "answered" || fault.is_some() {
            return;
        }
        self.total.count(record.total);
        if let Some(first_byte) = record.first_byte {
            self.first_byte.count(first_byte);
        }
    }

    /// Adds what others have counted.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        sum(&mut self.outcomes, &other.outcomes);
        sum(&mut self.errors, &other.errors);
        self.attempts += other.attempts;
        self.retries.add(&other.retries);
        self.first_byte.add(&other.first_byte);
        self.total.add(&other.total);
    }

    /// How many failures were the fault of `fault`.
    pub fn faults(&self, fault: Fault) -> u64 {
        let errors = self.errors.iter();
        errors
            .filter(|((owner, _), _)| *owner == fault)
            .map(|(_, count)| count)
            .sum()
    }
}

impl Retries {
    fn count(&mut self, record: &Record<'_>, fault: Option<Fault>) {
        let Some((_, discarded)) = record.attempts.split_last() else {
            return;
        };
        // Of a client that left in its first backoff, too.
        self.backoff += record.backoff;
        if discarded.is_empty() {
            return;
        }
        self.extra_attempts += discarded.len() as u64;
        self.discarded += discarded.iter().map(|attempt| attempt.took).sum();
        for (reason, _) in record.attempts.iter().filter_map(|attempt| attempt.retry) {
            *self.reasons.entry(reason).or_default() += 1;
        }
        match fault {
            Some(Fault::Fleet | Fault::Router) => self.lost += 1,
            None if record.outcome == "answered" => self.saved += 1,
            // An engine's verdict on the request, which others failed to give; or nobody waited.
            Some(Fault::Client) | None => {}
        }
    }

    fn add(&mut self, other: &Self) {
        self.extra_attempts += other.extra_attempts;
        sum(&mut self.reasons, &other.reasons);
        self.saved += other.saved;
        self.lost += other.lost;
        self.backoff += other.backoff;
        self.discarded += other.discarded;
    }
}

fn sum<K: Ord + Clone>(counts: &mut BTreeMap<K, u64>, more: &BTreeMap<K, u64>) {
    for (key, count) in more {
        *counts.entry(key.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::testing::{ms, record, retried};

    fn counted(records: &[Record<'_>]) -> Totals {
        let mut totals = Totals::default();
        for record in records {
            totals.count(record);
        }
        totals
    }

    #[test]
    fn a_request_that_was_saved_tells_what_that_cost() {
        // Two attempts of 10 ms each, with waits of 50 and 75 ms, and a third that answered.
        let attempts = retried(&["retryable_status", "connect", "answered"], 10);
        let totals = counted(&[Record {
            backoff: ms(125),
            first_byte: Some(ms(150)),
            total: ms(160),
            ..record(&attempts)
        }]);
        let retries = &totals.retries;
        assert_eq!((totals.requests, totals.attempts), (1, 3));
        assert_eq!(
            (retries.extra_attempts, retries.saved, retries.lost),
            (2, 1, 0)
        );
        assert_eq!((retries.backoff, retries.discarded), (ms(125), ms(20)));
        assert_eq!(retries.reasons, BTreeMap::from([("503", 2)]));
        assert!(totals.errors.is_empty());
    }

    #[test]
    fn a_request_that_failed_in_spite_of_it_all_is_lost() {
        let attempts = retried(&["retryable_status", "retryable_status"], 10);
        let exhausted = Record {
            outcome: "exhausted",
            reason: "budget_spent",
            status: 503,
            ..record(&attempts)
        };
        let unreachable = Record {
            outcome: "own_error",
            reason: "engine_unreachable",
            status: 502,
            ..record(&attempts)
        };
        let totals = counted(&[exhausted, unreachable]);
        assert_eq!((totals.retries.saved, totals.retries.lost), (0, 2));
        assert_eq!(totals.faults(Fault::Fleet), 2);
        let errors = [
            ((Fault::Fleet, "503".into()), 1),
            ((Fault::Fleet, "engine_unreachable".into()), 1),
        ];
        assert_eq!(totals.errors, BTreeMap::from(errors));
    }

    #[test]
    fn nobody_was_saved_who_left_or_was_refused_by_an_engine_at_last() {
        let attempts = retried(&["retryable_status", "answered"], 10);
        let left = Record {
            outcome: "client_gone",
            ..record(&attempts)
        };
        let bad = Record {
            status: 400,
            ..record(&attempts)
        };
        let totals = counted(&[left, bad]);
        let retries = &totals.retries;
        assert_eq!(
            (retries.extra_attempts, retries.saved, retries.lost),
            (2, 0, 0)
        );
        assert_eq!(totals.faults(Fault::Client), 1);
    }

    #[test]
    fn only_answers_of_engines_that_succeeded_have_a_latency() {
        let attempts = retried(&["answered"], 10);
        let good = Record {
            first_byte: Some(ms(100)),
            total: ms(1000),
            ..record(&attempts)
        };
        let refused = Record {
            status: 401,
            first_byte: Some(ms(1)),
            total: ms(1),
            ..record(&[])
        };
        let local = Record {
            first_byte: Some(ms(1)),
            total: ms(1),
            ..record(&[])
        };
        let gone = Record {
            outcome: "client_gone",
            ..good
        };
        let bad = Record {
            status: 400,
            total: ms(1),
            ..good
        };
        let totals = counted(&[good, refused, local, gone, bad]);
        assert_eq!(totals.requests, 5);
        let slowest = totals.total.quantile(0.01).unwrap();
        assert!((900.0..1100.0).contains(&slowest), "{slowest}");
        let first = totals.first_byte.quantile(1.0).unwrap();
        assert!((90.0..110.0).contains(&first), "{first}");
    }

    #[test]
    fn cells_add_up() {
        let attempts = retried(&["retryable_status", "answered"], 10);
        let saved = Record {
            backoff: ms(50),
            ..record(&attempts)
        };
        let refused = Record {
            outcome: "own_error",
            reason: "invalid_api_key",
            status: 401,
            ..record(&[])
        };
        let mut sum = counted(&[saved]);
        sum.add(&counted(&[saved, refused]));
        let all = counted(&[saved, saved, refused]);
        assert_eq!(format!("{sum:?}"), format!("{all:?}"));
    }
}
