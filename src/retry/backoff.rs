//! The schedule of the waits: exponential growth, a cap, and jitter on top.

use std::time::Duration;

use super::RetryConfig;

/// How long to wait before each further round of a request.
///
/// Background: <https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/>.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    initial_ms: f64,
    max_ms: f64,
    multiplier: f64,
    jitter: f64,
}

impl Backoff {
    /// The schedule these settings ask for.
    pub fn new(config: &RetryConfig) -> Self {
        Self {
            initial_ms: config.initial_backoff().as_secs_f64() * 1e3,
            max_ms: config.max_backoff().as_secs_f64() * 1e3,
            multiplier: config.backoff_multiplier(),
            jitter: config.jitter_factor(),
        }
    }

    /// The wait before the next attempt.
    ///
    /// `min(initial * multiplier^taken, max)`, then spread over ±`jitter_factor` by `draw`. The
    /// cap binds before the jitter, so the result lies within `max * (1 ± jitter_factor)`.
    ///
    /// `taken` counts the backoffs this request has already waited out: `0` asks for the first.
    /// `draw` is uniform in `[0, 1)`; equal draws give equal waits.
    pub fn delay(&self, taken: u32, draw: f64) -> Duration {
        let exponent = i32::try_from(taken).unwrap_or(i32::MAX);
        // Infinity is fine here: the cap takes it away, and `initial` is never zero.
        let capped = (self.initial_ms * self.multiplier.powi(exponent)).min(self.max_ms);
        let spread = 1.0 + self.jitter * (2.0 * draw - 1.0);
        Duration::try_from_secs_f64((capped * spread).max(0.0) / 1e3).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::retry::RetryValues;

    fn backoff(initial: u64, max: u64, multiplier: f64, jitter: f64) -> Backoff {
        Backoff::new(
            &RetryConfig::try_new(RetryValues {
                initial_backoff_ms: initial,
                max_backoff_ms: max,
                backoff_multiplier: multiplier,
                jitter_factor: jitter,
                ..RetryValues::default()
            })
            .unwrap(),
        )
    }

    fn ms(delay: Duration) -> f64 {
        delay.as_secs_f64() * 1e3
    }

    #[test]
    fn the_defaults_wait_50_75_112_5_and_168_75_milliseconds() {
        let schedule = Backoff::new(&RetryConfig::try_new(RetryValues::default()).unwrap());
        let waits: Vec<f64> = (0..4).map(|n| ms(schedule.delay(n, 0.5))).collect();
        for (wait, expected) in waits.iter().zip([50.0, 75.0, 112.5, 168.75]) {
            assert!((wait - expected).abs() < 1e-6, "{wait} is not {expected}");
        }
    }

    #[test]
    fn the_draw_spreads_a_wait_over_plus_and_minus_the_jitter_factor() {
        let schedule = backoff(100, 1000, 2.0, 0.2);
        assert!((ms(schedule.delay(0, 0.0)) - 80.0).abs() < 1e-6);
        assert!((ms(schedule.delay(0, 0.75)) - 110.0).abs() < 1e-6);
        assert!(ms(schedule.delay(0, 1.0 - f64::EPSILON)) <= 120.0);
    }

    #[test]
    fn the_cap_binds_before_the_jitter() {
        let schedule = backoff(10, 50, 10.0, 0.5);
        assert!((ms(schedule.delay(7, 0.0)) - 25.0).abs() < 1e-6);
        assert!((ms(schedule.delay(7, 0.9)) - 70.0).abs() < 1e-6);
    }

    #[test]
    fn growth_beyond_every_number_is_the_cap() {
        let schedule = backoff(1, 2, 1e9, 0.0);
        assert_eq!(schedule.delay(400, 0.5), Duration::from_millis(2));
        let widest = backoff(u64::MAX, u64::MAX, f64::MAX, 1.0);
        assert!(widest.delay(u32::MAX, 1.0 - f64::EPSILON) > Duration::from_secs(1 << 54));
    }

    #[test]
    fn a_whole_jitter_never_turns_negative() {
        assert_eq!(backoff(100, 100, 1.0, 1.0).delay(0, 0.0), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn a_wait_lies_within_the_capped_delay_and_its_jitter(
            initial in 1..=u64::MAX,
            longer in 0..=u64::MAX,
            multiplier in prop_oneof![1.0..4.0f64, 1.0..=f64::MAX],
            jitter in 0.0..=1.0f64,
            taken in any::<u32>(),
            draw in 0.0..1.0f64,
        ) {
            let max = initial.saturating_add(longer);
            let wait = ms(backoff(initial, max, multiplier, jitter).delay(taken, draw));
            #[allow(clippy::cast_precision_loss)]
            let (low, high) = (initial as f64 * (1.0 - jitter), max as f64 * (1.0 + jitter));
            prop_assert!(wait >= low * (1.0 - 1e-9) - 1e-6);
            prop_assert!(wait <= high * (1.0 + 1e-9) + 1e-6);
        }

        #[test]
        fn waits_without_jitter_never_shrink(
            initial in 1..10_000u64,
            longer in 0..100_000u64,
            multiplier in 1.0..10.0f64,
            taken in 0..200u32,
        ) {
            let schedule = backoff(initial, initial + longer, multiplier, 0.0);
            prop_assert!(schedule.delay(taken, 0.5) <= schedule.delay(taken + 1, 0.5));
        }
    }
}
