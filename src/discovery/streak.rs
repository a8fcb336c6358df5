//! How tries have gone: what is news, and when to try again.

use std::time::Duration;

/// The first wait after a failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest one.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The share by which a wait is made longer or shorter, so that many routers do not come in step.
const JITTER: f64 = 0.2;
/// Two failures so far apart do not belong together, even where no success was seen in between.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The failures in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streak {
    failures: u32,
    last: Duration,
}

impl Streak {
    /// It failed at `now`. Whether that is news, and how long to wait before the next try: a
    /// second, doubled with each failure up to half a minute, spread by `draw` in `[0, 1)`.
    pub(super) fn failed(&mut self, now: Duration, draw: f64) -> (bool, Duration) {
        if now.saturating_sub(self.last) > FORGOTTEN_AFTER {
            self.failures = 0;
        }
        self.last = now;
        let pause = FIRST_PAUSE
            .saturating_mul(1 << self.failures.min(16))
            .min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        let spread = 1.0 + JITTER * (2.0 * draw - 1.0);
        (self.failures == 1, pause.mul_f64(spread))
    }

    /// It worked. Whether that is news: it had failed before.
    pub(super) fn worked(&mut self) -> bool {
        let had_failed = self.failures > 0;
        self.failures = 0;
        had_failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SPREAD: f64 = 0.5;

    fn second(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn waits_grow_to_half_a_minute_and_only_the_first_failure_is_news() {
        let mut streak = Streak::default();
        let told: Vec<_> = (0..8)
            .map(|at| streak.failed(second(at), NO_SPREAD))
            .collect();
        let waits: Vec<_> = told.iter().map(|(_, wait)| wait.as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert!(
            told.iter()
                .enumerate()
                .all(|(at, (news, _))| *news == (at == 0))
        );
        assert!(streak.worked());
        assert!(!streak.worked());
        assert_eq!(streak.failed(second(9), NO_SPREAD), (true, second(1)));
    }

    #[test]
    fn a_wait_is_spread_by_a_fifth() {
        let wait = |draw| Streak::default().failed(second(0), draw).1;
        assert_eq!(wait(0.0), Duration::from_millis(800));
        assert!(wait(0.999_999) < Duration::from_millis(1200));
    }

    #[test]
    fn failures_far_apart_do_not_add_up() {
        let mut streak = Streak::default();
        for at in [0, 120, 240] {
            streak.failed(second(at), NO_SPREAD);
        }
        assert_eq!(streak.failed(second(361), NO_SPREAD), (true, second(1)));
    }
}
