//! When an engine is out, and for how long.

use std::time::Duration;

use super::Check;

/// When an engine is out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthLimits {
    /// Transport failures in a row that take it out; 0 is never.
    pub failures: u32,
    /// The first pause before it is tried again.
    pub first_pause: Duration,
    /// The longest one; each is twice the one before.
    pub longest_pause: Duration,
    /// Engines are probed, so that nobody else need find out that one is back.
    pub is_probed: bool,
    /// Probes in a row that must succeed to let it back in.
    pub rise: u32,
    /// Probes in a row that must fail to take it out.
    pub fall: u32,
    /// Inference probes in a row that must fail to take it out; `None` where there are none.
    pub inference_fall: Option<u32>,
    /// How long an engine that comes back gets less than its share.
    pub slow_start: Duration,
    /// The share of a pool that may be out, from 0 to 1; beyond it, health is ignored.
    pub most_out: f64,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            failures: 3,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(60),
            is_probed: true,
            rise: 1,
            fall: 3,
            inference_fall: None,
            slow_start: Duration::ZERO,
            most_out: 0.5,
        }
    }
}

impl HealthLimits {
    /// Whether probes of this kind tell when an engine is back.
    pub(super) fn tells(&self, check: Check) -> bool {
        match check {
            Check::Health => self.is_probed,
            Check::Inference => self.inference_fall.is_some(),
        }
    }
}
