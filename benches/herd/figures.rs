//! What comes of a run.

use std::time::Duration;

use super::scenario::Scenario;

/// What is counted while a run goes on; times are from the start of the incident.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// When each attempt arrived at an engine, in order.
    pub arrivals: Vec<Duration>,
    /// When each attempt was refused.
    pub refusals: Vec<Duration>,
    /// When each request of the herd was let in by an engine that served it.
    pub let_in: Vec<Duration>,
    /// Requests whose client got an error: of the herd, and of others.
    pub lost: u64,
    pub others_lost: u64,
    /// Requests of others.
    pub others: u64,
}

/// What a run came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Requests of the herd without an answer, and the part of those of others.
    pub lost: f64,
    pub others_lost: f64,
    /// Attempts that were refused, and those of them after the fleet was back.
    pub refused: f64,
    pub refused_after: f64,
    /// The most arrivals after that within the time in which they are counted.
    pub peak: f64,
    /// Seconds from then to the last refusal.
    pub recovered: f64,
    /// Seconds from then until the middle one of the herd, and the last but one in a hundred, was
    /// let in; those that were lost are left out.
    pub let_in: [f64; 2],
}

impl Figures {
    /// What it came to under this scenario, with a fleet that was back after this time.
    pub fn summary(&self, scenario: &Scenario, back: Duration) -> Summary {
        let refused_after = self.refusals.iter().filter(|at| **at >= back);
        let last = refused_after.clone().max();
        let since = |at: &Duration| at.saturating_sub(back).as_secs_f64();
        let mut let_in: Vec<_> = self.let_in.iter().map(since).collect();
        let_in.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (part * let_in.len().saturating_sub(1) as f64).round();
            let_in.get(place as usize).copied().unwrap_or(f64::NAN)
        };
        Summary {
            lost: self.lost as f64,
            others_lost: self.others_lost as f64 / self.others.max(1) as f64,
            refused: self.refusals.len() as f64,
            refused_after: refused_after.count() as f64,
            peak: self.peak(back, scenario.counted_in) as f64,
            recovered: last.map_or(0.0, since),
            let_in: [at(0.5), at(0.99)],
        }
    }

    /// The most arrivals within some time, wherever it begins after the fleet was back.
    fn peak(&self, back: Duration, within: Duration) -> usize {
        let first = self.arrivals.partition_point(|at| *at < back);
        let after = &self.arrivals[first..];
        let mut last = 0;
        let counts = after.iter().enumerate().map(|(nth, begin)| {
            while after.get(last).is_some_and(|at| *at < *begin + within) {
                last += 1;
            }
            last - nth
        });
        counts.max().unwrap_or(0)
    }
}
