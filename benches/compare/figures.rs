//! What was measured.

use std::collections::BTreeMap;

use super::plan::Load;
use super::subject::Subject;

/// A figure of a load; times are in microseconds, memory is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Processor time of the proxy per unit: a request, an event, an attempt.
    Cpu,
    /// Units per second.
    Rate,
    /// Part of its core the proxy was busy.
    Busy,
    /// Waits for the whole answer, or for the first event of a stream.
    P50,
    P99,
    P999,
    /// Part of the answers that was not as it should be.
    Wrong,
    /// Events that came with one read.
    PerRead,
    /// Memory per open stream: at its first token, with more of them passed, and what as many
    /// again add to that.
    Held,
    Passed,
    Grown,
    /// From the start of the process to the first answer through it.
    Start,
}

/// All figures, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Figures(BTreeMap<(Load, Subject, What), Vec<f64>>);

impl Figures {
    /// Takes note of one.
    pub fn note(&mut self, load: Load, subject: Subject, what: What, value: f64) {
        self.0.entry((load, subject, what)).or_default().push(value);
    }

    /// What was found in each round.
    pub fn all(&self, load: Load, subject: Subject, what: What) -> &[f64] {
        self.0
            .get(&(load, subject, what))
            .map_or(&[], Vec::as_slice)
    }

    /// The median over the rounds.
    pub fn median(&self, load: Load, subject: Subject, what: What) -> Option<f64> {
        median(self.all(load, subject, what))
    }

    /// The median over the rounds of how one compares to another in the same round.
    pub fn paired(
        &self,
        one: (Load, Subject, What),
        other: (Load, Subject, What),
        compare: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let all = |(load, subject, what)| self.all(load, subject, what).iter();
        let pairs = all(one).zip(all(other));
        median(
            &pairs
                .map(|(one, other)| compare(*one, *other))
                .collect::<Vec<_>>(),
        )
    }

    /// Whether anything was measured of this subject under this load.
    pub fn has(&self, load: Load, subject: Subject) -> bool {
        self.0.keys().any(|key| (key.0, key.1) == (load, subject))
    }
}

/// The median of those that are numbers; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.retain(|value| !value.is_nan());
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

/// The value below which this part of all nanoseconds lies, in microseconds; no number
/// of none.
pub fn quantile(nanos: &mut [u64], part: f64) -> f64 {
    if nanos.is_empty() {
        return f64::NAN;
    }
    let place = (part * (nanos.len() - 1) as f64).round() as usize;
    *nanos.select_nth_unstable(place).1 as f64 / 1e3
}
