//! What a run is to be, and the unit of its clock.

use std::time::Duration;

use vllm_pingora::routing::Kind;

/// What a run is to be.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The logic under test.
    pub kind: Kind,
    /// What everything is drawn from.
    pub seed: u64,
    /// How many engines there are.
    pub engines: usize,
    /// The rate of new conversations, relative to 0.45 a second and engine.
    pub load: f64,
    /// Time until figures are taken: caches fill, and as many conversations end as begin.
    pub warm_up: Duration,
    /// Time in which they are taken.
    pub measured: Duration,
    /// When the first engine is lost and when it is back, with nothing in its cache.
    pub lost: Option<(Duration, Duration)>,
}

/// Whole microseconds of so many seconds.
pub fn seconds(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// Whole microseconds.
pub fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).expect("no run takes so long")
}
