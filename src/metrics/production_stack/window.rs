//! How much totals have grown lately.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How far back is looked.
const LENGTH: Duration = Duration::from_secs(60);

/// What has been counted of an engine since it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Attempts begun.
    pub(super) begun: u64,
    /// Requests answered.
    pub(super) answered: u64,
    /// Their durations.
    pub(super) latency: Duration,
    /// Steps from one token of a stream to the next.
    pub(super) gaps: u64,
    /// The time they took.
    pub(super) decoding: Duration,
}

impl Totals {
    pub(super) fn plus(&self, more: &Self) -> Self {
        Self {
            begun: self.begun + more.begun,
            answered: self.answered + more.answered,
            latency: self.latency + more.latency,
            gaps: self.gaps + more.gaps,
            decoding: self.decoding + more.decoding,
        }
    }

    fn minus(&self, less: &Self) -> Self {
        Self {
            begun: self.begun.saturating_sub(less.begun),
            answered: self.answered.saturating_sub(less.answered),
            latency: self.latency.saturating_sub(less.latency),
            gaps: self.gaps.saturating_sub(less.gaps),
            decoding: self.decoding.saturating_sub(less.decoding),
        }
    }
}

/// What was found at earlier looks: requests need not keep any time for it.
#[derive(Debug, Default)]
pub(super) struct Window(VecDeque<(Instant, Totals)>);

impl Window {
    /// By how much the totals have grown, and in which time: a minute, or as far back as there was
    /// a look. Where nobody has looked for longer, since the last look.
    pub(super) fn look(&mut self, totals: Totals, now: Instant) -> (Totals, Duration) {
        let age = |(at, _): &(Instant, Totals)| now.saturating_duration_since(*at);
        while self.0.get(1).is_some_and(|second| age(second) >= LENGTH) {
            self.0.pop_front();
        }
        let (at, before) = self.0.front().copied().unwrap_or((now, totals));
        // Looks that follow at once would grow the list and tell nothing new.
        let last = self.0.back().map(age);
        if last.is_none_or(|age| age >= LENGTH / 60) {
            self.0.push_back((now, totals));
        }
        (totals.minus(&before), now.saturating_duration_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun(begun: u64) -> Totals {
        Totals {
            begun,
            ..Totals::default()
        }
    }

    #[test]
    fn growth_is_that_of_the_last_minute() {
        let start = Instant::now();
        let mut window = Window::default();
        let mut look = |total, after| {
            let (grown, time) = window.look(begun(total), start + Duration::from_secs(after));
            (grown.begun, time.as_secs())
        };
        assert_eq!(look(100, 0), (0, 0));
        assert_eq!(look(115, 15), (15, 15));
        assert_eq!(look(130, 30), (30, 30));
        assert_eq!(look(160, 60), (60, 60));
        assert_eq!(look(175, 75), (60, 60));
        assert_eq!(look(175, 90), (45, 60));
        // After a long time without a look, since the last one.
        assert_eq!(look(1175, 1090), (1000, 1000));
        assert_eq!(look(1175, 1150), (0, 60));
    }

    #[test]
    fn looks_that_follow_at_once_are_not_kept() {
        let start = Instant::now();
        let mut window = Window::default();
        for after in 0..100_000 {
            window.look(begun(after), start + Duration::from_millis(after));
        }
        assert!(window.0.len() <= 62, "{}", window.0.len());
    }
}
