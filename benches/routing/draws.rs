//! Random lengths, waits and choices.

use rand::RngExt as _;
use rand::rngs::StdRng;

/// A length or a wait whose logarithm is normally distributed, as those of people are: many short
/// ones, and a long tail.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Half of all lie below.
    pub median: f64,
    /// The standard deviation of the logarithm.
    pub sigma: f64,
    /// None lies below.
    pub least: f64,
    /// None lies above.
    pub most: f64,
}

impl Spread {
    /// Draws one.
    pub fn draw(&self, dice: &mut StdRng) -> f64 {
        (self.median * (self.sigma * normal(dice)).exp()).clamp(self.least, self.most)
    }
}

/// The wait until the next of events that come at this rate and know nothing of each other.
pub fn gap(dice: &mut StdRng, per_second: f64) -> f64 {
    -(1.0 - dice.random::<f64>()).ln() / per_second
}

/// By Box and Muller.
fn normal(dice: &mut StdRng) -> f64 {
    let (radius, angle) = (1.0 - dice.random::<f64>(), dice.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// Chooses among ranks, of which the n-th is chosen in proportion to n to the power of `-skew`.
#[derive(Clone, Debug)]
pub struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    /// A choice among `count` ranks.
    pub fn new(count: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let weigh = |rank: usize| {
            sum += (rank as f64).powf(-skew);
            sum
        };
        Self {
            sums: (1..=count).map(weigh).collect(),
        }
    }

    /// Draws a rank, from 0 on.
    pub fn draw(&self, dice: &mut StdRng) -> usize {
        let at = dice.random::<f64>() * self.sums.last().copied().unwrap_or(0.0);
        let rank = self.sums.partition_point(|sum| *sum <= at);
        rank.min(self.sums.len() - 1)
    }

    /// The part of all draws that go to a rank.
    pub fn share(&self, rank: usize) -> f64 {
        let before = rank.checked_sub(1).map_or(0.0, |before| self.sums[before]);
        (self.sums[rank] - before) / self.sums[self.sums.len() - 1]
    }
}
