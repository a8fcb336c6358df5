//! The pauses of an engine that is out, and the trials between them.

use std::time::Duration;

use super::HealthLimits;

/// The share by which pauses are spread, so that engines that fell ill together are not tried
/// together.
const SPREAD: f64 = 0.2;

/// How long an engine is left alone, which grows each time a trial fails.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pauses {
    until: Duration,
    /// How many there were since it last was well, and with it the length of the next.
    taken: u32,
    /// A request was sent to see whether it is back.
    on_trial: bool,
}

impl Pauses {
    /// Another one begins; `draw` spreads it.
    pub(super) fn begin(&mut self, limits: &HealthLimits, now: Duration, draw: f64) {
        self.taken = self.taken.saturating_add(1);
        self.until = now + self.length(limits, draw);
        self.on_trial = false;
    }

    /// A trial begins: until it has ended, or another pause has passed, no other one does.
    pub(super) fn try_out(&mut self, limits: &HealthLimits, now: Duration) {
        self.until = now + self.length(limits, 0.5);
        self.on_trial = true;
    }

    /// It is well again.
    pub(super) fn end(&mut self) {
        self.taken = 0;
        self.on_trial = false;
    }

    /// When the last one ends.
    pub(super) fn until(&self) -> Duration {
        self.until
    }

    /// Whether one runs.
    pub(super) fn is_on(&self, now: Duration) -> bool {
        now < self.until
    }

    /// Whether a trial was begun after the last one.
    pub(super) fn is_on_trial(&self) -> bool {
        self.on_trial
    }

    fn length(&self, limits: &HealthLimits, draw: f64) -> Duration {
        let doublings = self.taken.saturating_sub(1).min(31);
        let length = limits.first_pause.saturating_mul(1 << doublings);
        let length = length.min(limits.longest_pause);
        length.mul_f64(1.0 + SPREAD * (2.0 * draw - 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread() {
        let limits = HealthLimits::default();
        let ends = |draw, at| {
            let mut pauses = Pauses::default();
            pauses.begin(&limits, Duration::ZERO, draw);
            !pauses.is_on(Duration::from_millis(at))
        };
        assert!(!ends(0.0, 799) && ends(0.0, 800));
        assert!(!ends(0.99, 1190) && ends(0.99, 1200));
    }
}
