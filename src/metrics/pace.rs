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

    /// A piece has come; the client had `taken` the one before it then. While it took its time
    /// nobody asked the engine for more, so that time is not the engine's. A piece that has waited
    /// meanwhile comes at once: how long the engine took for it is not known.
    pub fn piece(&mut self, now: Instant, taken: Option<Instant>) {
        let gaps = self.gaps.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = self.last.replace(now) {
            let since = taken.map_or(last, |taken| taken.max(last));
            gaps.observe(now.saturating_duration_since(since).as_secs_f64());
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
            pace.piece(start + Duration::from_millis(tenths * 100), None);
        }
        assert_eq!(all.get_sample_count(), 10);
        drop(pace);
        assert_eq!(all.get_sample_count(), 14);
        assert!((all.get_sample_sum() - 1.4).abs() < 1e-9);
    }

    #[test]
    fn the_time_a_client_takes_to_read_is_not_the_engines() {
        let all = Histogram::with_opts(HistogramOpts::new("a", "b")).unwrap();
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(&all);
        pace.piece(at(0), None);
        // Taken at once, taken late, waiting meanwhile, and two that came together.
        pace.piece(at(100), Some(at(0)));
        pace.piece(at(5_150), Some(at(5_100)));
        pace.piece(at(9_000), Some(at(9_000)));
        pace.piece(at(9_000), Some(at(8_000)));
        drop(pace);
        assert_eq!(all.get_sample_count(), 4);
        assert!((all.get_sample_sum() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn one_piece_has_no_pace() {
        let all = Histogram::with_opts(HistogramOpts::new("a", "b")).unwrap();
        Pace::new(&all).piece(Instant::now(), None);
        assert_eq!(all.get_sample_count(), 0);
    }
}
