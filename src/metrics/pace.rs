//! How fast a stream flows.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::Histogram;
use prometheus::local::LocalHistogram;
use tokio::time::Instant;

/// How long the times of a stream are kept before they are counted for all to see.
const KEPT: Duration = Duration::from_secs(1);

/// The times between the pieces of one stream. Thousands of streams with a hundred pieces a second
/// each would get into each other's way at a common counter, so each counts for itself, and adds up
/// now and then, and at its end.
#[derive(Debug)]
pub struct Pace {
    /// Locked by nobody; a request's context has to be one that threads could share.
    gaps: Mutex<LocalHistogram>,
    last: Option<Instant>,
    told: Option<Instant>,
}

impl Pace {
    pub(super) fn new(histogram: &Histogram) -> Self {
        Self {
            gaps: Mutex::new(histogram.local()),
            last: None,
            told: None,
        }
    }

    /// A piece has come.
    pub fn piece(&mut self, now: Instant) {
        let gaps = self.gaps.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = self.last.replace(now) {
            gaps.observe(now.duration_since(last).as_secs_f64());
        }
        let told = *self.told.get_or_insert(now);
        if now.duration_since(told) >= KEPT {
            gaps.flush();
            self.told = Some(now);
        }
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        let gaps = self.gaps.get_mut().unwrap_or_else(PoisonError::into_inner);
        gaps.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::HistogramOpts;

    #[test]
    fn times_are_told_every_second_and_at_the_end() {
        let all = Histogram::with_opts(HistogramOpts::new("a", "b")).unwrap();
        let start = Instant::now();
        let mut pace = Pace::new(&all);
        for tenths in 0..15 {
            pace.piece(start + Duration::from_millis(tenths * 100));
        }
        assert_eq!(all.get_sample_count(), 10);
        drop(pace);
        assert_eq!(all.get_sample_count(), 14);
        assert!((all.get_sample_sum() - 1.4).abs() < 1e-9);
    }

    #[test]
    fn one_piece_has_no_pace() {
        let all = Histogram::with_opts(HistogramOpts::new("a", "b")).unwrap();
        Pace::new(&all).piece(Instant::now());
        assert_eq!(all.get_sample_count(), 0);
    }
}
