//! Whether an engine is fit to be asked: what real requests and probes say of it.
//!
//! Transport failures of real requests take an engine out at once; a trial lets it back in after a
//! pause that grows. Probes find out about engines that nobody asks. Statuses never take an engine
//! out: a busy one says 429 and 503, and a bad request is nobody's illness. One that says nothing
//! but 500, as a vLLM server does while it drains, is picked last for a while.
//!
//! Pure: the time since the process started and a random draw come in as arguments.

use std::time::Duration;

use crate::retry::Failure;

/// How many answers of 500 in a row make an engine picked last.
const ERRORS_IN_A_ROW: u32 = 5;
/// The share by which pauses are spread, so that engines that fell ill together are not tried
/// together.
const SPREAD: f64 = 0.2;

/// When an engine is out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HealthLimits {
    /// Transport failures in a row that take it out; 0 is never.
    pub failures: u32,
    /// The first pause before it is tried again.
    pub first_pause: Duration,
    /// The longest one; each is twice the one before.
    pub longest_pause: Duration,
    /// Probes in a row that must succeed to let it back in.
    pub rise: u32,
    /// Probes in a row that must fail to take it out.
    pub fall: u32,
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
            rise: 1,
            fall: 3,
            slow_start: Duration::ZERO,
            most_out: 0.5,
        }
    }
}

/// What an engine is fit for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fitness {
    /// Its share of the requests.
    Fit,
    /// This part of its share, from 0 to 1: it has just come back.
    Warming(f64),
    /// Requests that no other engine can take.
    Last,
    /// One request, to see whether it is back.
    Trial,
    /// Nothing.
    Out,
}

/// The condition of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing speaks against it.
    Up,
    /// Real requests failed on it.
    Ejected(Failure),
    /// Its probes fail.
    Down,
    /// It says nothing but 500.
    Erring,
}

impl Condition {
    /// The word for logs, metrics and `/engines`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Ejected(_) => "ejected",
            Self::Down => "down",
            Self::Erring => "erring",
        }
    }

    /// Why, in a word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Up => "answers",
            Self::Ejected(failure) => failure.label(),
            Self::Down => "probe",
            Self::Erring => "status_500",
        }
    }
}

/// What is known of one engine's health.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    condition: Condition,
    since: Duration,
    /// When it may be tried, or counts as others do again.
    until: Duration,
    /// How often it was taken out since it last was well, and with it the length of the pause.
    pauses: u32,
    /// A request was sent to see whether it is back.
    on_trial: bool,
    failures: u32,
    errors: u32,
    probes_failed: u32,
    probes_passed: u32,
    /// Since when it has been back; `None` where it was never out.
    back: Option<Duration>,
}

impl Default for Health {
    /// Nothing is known, so nothing speaks against it.
    fn default() -> Self {
        Self {
            condition: Condition::Up,
            since: Duration::ZERO,
            until: Duration::ZERO,
            pauses: 0,
            on_trial: false,
            failures: 0,
            errors: 0,
            probes_failed: 0,
            probes_passed: 0,
            back: None,
        }
    }
}

impl Health {
    /// Its condition, and since when.
    pub fn condition(&self) -> (Condition, Duration) {
        (self.condition, self.since)
    }

    /// Whether it is up and no row of failures or errors has begun.
    pub fn is_settled(&self) -> bool {
        self.condition == Condition::Up && self.failures == 0 && self.errors == 0
    }

    /// What it is fit for now.
    pub fn fitness(&self, limits: &HealthLimits, now: Duration) -> Fitness {
        match self.condition {
            Condition::Up => self.warmth(limits, now),
            Condition::Down => Fitness::Out,
            Condition::Ejected(_) if now < self.until => Fitness::Out,
            Condition::Ejected(_) => Fitness::Trial,
            Condition::Erring if now < self.until => Fitness::Last,
            Condition::Erring => Fitness::Fit,
        }
    }

    /// When it may be tried, where it is out until then.
    pub fn next_trial(&self) -> Option<Duration> {
        matches!(self.condition, Condition::Ejected(_)).then_some(self.until)
    }

    fn warmth(&self, limits: &HealthLimits, now: Duration) -> Fitness {
        let Some(back) = self.back else {
            return Fitness::Fit;
        };
        let warm = now.saturating_sub(back).as_secs_f64() / limits.slow_start.as_secs_f64();
        // 0 / 0 where there is no slow start.
        if warm < 1.0 {
            // Never nothing, or it would not warm up.
            Fitness::Warming(warm.max(0.1))
        } else {
            Fitness::Fit
        }
    }

    /// A trial begins: until it has ended, or another pause has passed, no other one does.
    pub fn trial_begins(&mut self, limits: &HealthLimits, now: Duration) {
        self.until = now + self.pause(limits, 0.5);
        self.on_trial = true;
    }

    /// A request failed on it. Whether its condition changed.
    pub fn failed(
        &mut self,
        limits: &HealthLimits,
        failure: Failure,
        now: Duration,
        draw: f64,
    ) -> bool {
        self.failures = self.failures.saturating_add(1);
        if limits.failures == 0 || self.failures < limits.failures {
            return false;
        }
        let is_out = matches!(self.condition, Condition::Ejected(_));
        if is_out && !self.on_trial {
            // It was sent before the engine was out, and says nothing new.
            return false;
        }
        self.pause_begins(limits, now, draw);
        self.condition = Condition::Ejected(failure);
        if !is_out {
            self.since = now;
        }
        !is_out
    }

    /// It answered with this status, whatever that is. Whether its condition changed.
    pub fn answered(
        &mut self,
        limits: &HealthLimits,
        status: u16,
        now: Duration,
        draw: f64,
    ) -> bool {
        self.failures = 0;
        if status == 500 {
            self.errors = self.errors.saturating_add(1);
            if self.errors < ERRORS_IN_A_ROW {
                return self.recover(now);
            }
            if self.condition == Condition::Erring && now < self.until {
                return false;
            }
            self.pause_begins(limits, now, draw);
            let changed = self.condition != Condition::Erring;
            if changed {
                self.since = now;
            }
            self.condition = Condition::Erring;
            return changed;
        }
        self.errors = 0;
        self.recover(now)
    }

    /// It was probed. `busy` says that it has answered real requests since the probe before: then
    /// a probe that fails says no more than that it is slow. Whether its condition changed.
    pub fn probed(
        &mut self,
        limits: &HealthLimits,
        passed: bool,
        busy: bool,
        now: Duration,
    ) -> bool {
        if passed {
            self.probes_failed = 0;
            self.probes_passed = self.probes_passed.saturating_add(1);
            let back = match self.condition {
                // It listens again. A frozen engine's probes pass all the time: of that, only a
                // trial can tell.
                Condition::Down
                | Condition::Ejected(Failure::Connect | Failure::ConnectTimeout) => true,
                Condition::Ejected(_) | Condition::Erring | Condition::Up => false,
            };
            return back && self.probes_passed >= limits.rise && self.recover(now);
        }
        self.probes_passed = 0;
        if busy {
            self.probes_failed = 0;
            return false;
        }
        self.probes_failed = self.probes_failed.saturating_add(1);
        if self.probes_failed < limits.fall || self.condition == Condition::Down {
            return false;
        }
        self.condition = Condition::Down;
        self.since = now;
        true
    }

    fn recover(&mut self, now: Duration) -> bool {
        if self.condition == Condition::Up {
            return false;
        }
        // An engine that only erred has been warm all the time.
        if self.condition != Condition::Erring {
            self.back = Some(now);
        }
        self.condition = Condition::Up;
        self.since = now;
        self.failures = 0;
        self.pauses = 0;
        self.probes_failed = 0;
        self.on_trial = false;
        true
    }

    fn pause_begins(&mut self, limits: &HealthLimits, now: Duration, draw: f64) {
        self.pauses = self.pauses.saturating_add(1);
        self.until = now + self.pause(limits, draw);
        // What passed before says nothing of how it is now.
        self.probes_passed = 0;
        self.on_trial = false;
    }

    fn pause(&self, limits: &HealthLimits, draw: f64) -> Duration {
        let doublings = self.pauses.saturating_sub(1).min(31);
        let pause = limits.first_pause.saturating_mul(1 << doublings);
        let pause = pause.min(limits.longest_pause);
        pause.mul_f64(1.0 + SPREAD * (2.0 * draw - 1.0))
    }
}

#[cfg(test)]
mod tests;
