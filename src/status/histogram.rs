//! Durations by size, for percentiles of a few seconds as of a quarter of an hour.

use std::time::Duration;

/// Buckets of each doubling.
const PER_DOUBLING: u32 = 4;
/// Below 2^10 microseconds, about a millisecond, everything is in one bucket.
const LOWEST: u32 = 10;
/// From 2^29 microseconds, about nine minutes, likewise.
const HIGHEST: u32 = 29;
const BUCKETS: usize = ((HIGHEST - LOWEST) * PER_DOUBLING + 2) as usize;

/// How many durations were of about which length.
///
/// A bucket is a quarter of a doubling wide, so that a percentile is off by an eighth at most
/// between one millisecond and nine minutes.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: [u32; BUCKETS],
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
        }
    }
}

impl Histogram {
    /// Counts one duration.
    pub fn count(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        if let Some(bucket) = self.buckets.get_mut(bucket_of(micros)) {
            *bucket = bucket.saturating_add(1);
        }
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum = sum.saturating_add(*more);
        }
    }

    /// The duration that a share `q` of all, from 0 to 1, does not exceed, in milliseconds; `None`
    /// where nothing was counted.
    #[allow(clippy::cast_precision_loss)] // counts of a quarter of an hour
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let all: u64 = self.buckets.iter().map(|count| u64::from(*count)).sum();
        let rank = (q * all as f64).max(1.0);
        let mut below = 0.0;
        for (place, count) in self.buckets.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= rank {
                let (low, high) = (lower_bound(place), lower_bound(place + 1));
                // As if those of a bucket were spread evenly over it.
                let within = (rank - below - 0.5).max(0.0) / count;
                return Some(low + (high - low) * within);
            }
            below += count;
        }
        None
    }
}

/// The place of the bucket for a duration: its highest bit, and the two that follow.
fn bucket_of(micros: u64) -> usize {
    let exponent = micros.max(1).ilog2();
    if exponent < LOWEST {
        return 0;
    }
    if exponent >= HIGHEST {
        return BUCKETS - 1;
    }
    let quarter = (micros >> (exponent - 2)) & 3;
    usize::try_from(u64::from((exponent - LOWEST) * PER_DOUBLING) + quarter + 1)
        .unwrap_or(BUCKETS - 1)
}

/// The shortest duration of a bucket, in milliseconds.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)] // fewer than a hundred
fn lower_bound(place: usize) -> f64 {
    let Some(place) = place.checked_sub(1) else {
        return 0.0;
    };
    let place = place.min(BUCKETS - 1) as u32;
    let doublings = f64::from(place / PER_DOUBLING);
    let quarter = f64::from(place % PER_DOUBLING) / f64::from(PER_DOUBLING);
    2f64.powf(f64::from(LOWEST) + doublings) * (1.0 + quarter) / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(millis: impl IntoIterator<Item = u64>) -> Histogram {
        let mut histogram = Histogram::default();
        for duration in millis {
            histogram.count(Duration::from_millis(duration));
        }
        histogram
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let histogram = of(1..=1000);
        for (q, expected) in [(0.5, 500.0), (0.95, 950.0), (0.99, 990.0), (1.0, 1000.0)] {
            let found = histogram.quantile(q).unwrap();
            let off = (found / expected - 1.0).abs();
            assert!(off < 0.125, "{q}: {found} instead of {expected}");
        }
    }

    #[test]
    fn what_is_out_of_range_is_counted_at_its_end() {
        let mut histogram = of([0]);
        histogram.count(Duration::from_nanos(1));
        assert!(histogram.quantile(1.0).unwrap() < 1.024);
        let mut histogram = of([1_000_000]);
        histogram.count(Duration::MAX);
        assert!(histogram.quantile(0.01).unwrap() >= 500_000.0);
    }

    #[test]
    fn two_together_are_as_if_one_had_counted_all() {
        let (mut low, high) = (of(1..=50), of(51..=100));
        low.add(&high);
        assert_eq!(low.buckets, of(1..=100).buckets);
    }

    proptest! {
        #[test]
        fn one_duration_is_every_percentile_of_itself(micros in 1_024u64..536_000_000, q in 0.0..=1.0) {
            let mut histogram = Histogram::default();
            histogram.count(Duration::from_micros(micros));
            let found = histogram.quantile(q).unwrap() * 1e3;
            #[allow(clippy::cast_precision_loss)]
            let off = (found / micros as f64 - 1.0).abs();
            prop_assert!(off <= 0.125, "{found} instead of {micros}");
        }

        #[test]
        fn a_longer_duration_is_in_no_lower_bucket(a: u64, b: u64) {
            let (short, long) = (a.min(b), a.max(b));
            prop_assert!(bucket_of(short) <= bucket_of(long));
            prop_assert!(bucket_of(long) < BUCKETS);
        }
    }
}
