//! Which traces are recorded.

use opentelemetry::trace::TraceId;

/// Trace ids are compared by so many of their last bits.
const BITS: u32 = 63;

/// The share of new traces that are recorded, from 0 to 1.
///
/// The trace's id alone decides, so that everybody who goes by the same share decides alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(f64);

impl Ratio {
    /// Every trace.
    pub const ALL: Self = Self(1.0);

    /// A share; `None` unless it is between 0 and 1.
    pub fn new(share: f64) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self(share))
    }

    /// The share.
    pub fn share(self) -> f64 {
        self.0
    }

    /// Whether a new trace with this id is recorded.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss
    )] // the last half of the id; a share of 2^63, which need not be exact
    pub fn samples(self, id: TraceId) -> bool {
        let last = u128::from_be_bytes(id.to_bytes()) as u64;
        last >> (u64::BITS - BITS) < (self.0 * (1_u64 << BITS) as f64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{SeedableRng as _, rngs::StdRng};

    #[test]
    fn a_share_lies_between_nothing_and_all() {
        for share in [0.0, 0.001, 1.0] {
            assert_eq!(Ratio::new(share).map(Ratio::share), Some(share));
        }
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::new(share), None);
        }
    }

    #[test]
    fn as_many_are_recorded_as_asked_for() {
        let mut random = StdRng::seed_from_u64(1);
        let ids: Vec<_> = (0..100_000)
            .map(|_| TraceId::from(random.random::<u128>()))
            .collect();
        for share in [0.0, 0.01, 0.5, 1.0] {
            let ratio = Ratio::new(share).unwrap();
            let recorded: u32 = ids.iter().map(|id| u32::from(ratio.samples(*id))).sum();
            let difference = (f64::from(recorded) / 100_000.0 - share).abs();
            assert!(difference < 0.005, "{recorded} for {share}");
        }
    }

    #[test]
    fn the_end_of_the_id_decides() {
        let half = Ratio::new(0.5).unwrap();
        assert!(half.samples(TraceId::from(0x7FFF_FFFF_FFFF_FFFF)));
        assert!(half.samples(TraceId::from(u128::MAX << 64)));
        assert!(!half.samples(TraceId::from(0x8000_0000_0000_0000)));
        assert!(Ratio::ALL.samples(TraceId::from(u128::MAX)));
        assert!(!Ratio::new(0.0).unwrap().samples(TraceId::from(1 << 64)));
    }

    proptest! {
        #[test]
        fn what_a_smaller_share_records_a_larger_one_does_too(id: u128, a in 0.0..=1.0, b in 0.0..=1.0) {
            let (small, large) = (Ratio::new(f64::min(a, b)).unwrap(), Ratio::new(f64::max(a, b)).unwrap());
            let id = TraceId::from(id);
            prop_assert!(large.samples(id) || !small.samples(id));
        }
    }
}
