//! The fleet, what is asked of it, and what happens to it.

use std::time::Duration;

/// A fleet and an incident.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub engines: usize,
    /// Requests an engine runs at a time, and how many more may wait; beyond that it answers 503.
    pub slots: usize,
    pub queue: usize,
    /// What an engine needs to take in a request, one after the other.
    pub prefill: Duration,
    /// How long a request runs, drawn evenly from this time more or less by a half.
    pub service: Duration,
    /// Requests that fail together at the start and are asked again, if they are.
    pub herd: usize,
    /// Requests per second of others, who ask all the while.
    pub others: f64,
    /// How long the fleet refuses everything.
    pub refuses: Duration,
    /// The time in which arrivals are counted.
    pub counted_in: Duration,
    /// How long others go on to ask after that.
    pub watched: Duration,
}

/// A drawn time is longer or shorter by up to this part.
pub const SPREAD: f64 = 0.5;

/// A large fleet: what its queues hold and what it takes in per second is far less than what was
/// running on it when it failed.
pub const LARGE: Scenario = Scenario {
    engines: 40,
    slots: 400,
    queue: 64,
    prefill: Duration::from_millis(40),
    service: Duration::from_secs(20),
    herd: 10_000,
    others: 300.0,
    refuses: Duration::from_secs(3),
    counted_in: Duration::from_millis(10),
    watched: Duration::from_secs(57),
};

/// One that a machine with two cores carries, router and clients included.
pub const SMALL: Scenario = Scenario {
    engines: 3,
    slots: 20,
    queue: 20,
    prefill: Duration::ZERO,
    service: Duration::from_secs(1),
    herd: 300,
    others: 0.0,
    refuses: Duration::from_secs(2),
    // The router itself takes some 20 ms to pass on 300 requests.
    counted_in: Duration::from_millis(100),
    watched: Duration::ZERO,
};

impl Scenario {
    /// A time that is drawn around this one.
    pub fn spread(time: Duration, draw: f64) -> Duration {
        time.mul_f64(1.0 + SPREAD * (2.0 * draw - 1.0))
    }
}
