//! Whether an engine is fit to be asked: what real requests and probes say of it.
//!
//! Transport failures of real requests take an engine out at once; a trial lets it back in after a
//! pause that grows. Probes find out about engines that nobody asks. Statuses never take an engine
//! out: a busy one says 429 and 503, and a bad request is nobody's illness. One that says nothing
//! but 500, as a vLLM server does while it drains, is picked last for a while. One that was never
//! heard to work and takes no connection is starting, and one that sleeps was told to: neither has
//! failed.
//!
//! Pure: the time since the process started and a random draw come in as arguments.

mod condition;
mod limits;
mod pauses;

use std::time::Duration;

use crate::retry::Failure;

pub use condition::{Check, Condition, Fitness, Unready};
pub use limits::HealthLimits;
use pauses::Pauses;

/// How many answers of 500 in a row make an engine picked last.
const ERRORS_IN_A_ROW: u32 = 5;

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The engine is well, and says whether it sleeps; `None` where that is not known.
    Well {
        /// It sleeps.
        asleep: Option<bool>,
    },
    /// It says that it is not, or is silent.
    Unwell,
    /// It takes no connection.
    Unreachable(Failure),
}

/// What is known of one engine's health.
#[derive(Clone, Copy, Debug)]
pub struct Health {
    condition: Condition,
    since: Duration,
    /// After each it may be tried, or counts as others do again.
    pauses: Pauses,
    /// It was heard to work at least once.
    has_worked: bool,
    failures: u32,
    errors: u32,
    probes_failed: u32,
    probes_passed: u32,
    inferences_failed: u32,
    /// Since when it has been back; `None` where it was never out.
    back: Option<Duration>,
}

impl Default for Health {
    /// Nothing is known, so nothing speaks against it.
    fn default() -> Self {
        Self {
            condition: Condition::Up,
            since: Duration::ZERO,
            pauses: Pauses::default(),
            has_worked: false,
            failures: 0,
            errors: 0,
            probes_failed: 0,
            probes_passed: 0,
            inferences_failed: 0,
            back: None,
        }
    }
}

impl Health {
    /// Its condition, and since when.
    pub fn condition(&self) -> (Condition, Duration) {
        (self.condition, self.since)
    }

    /// Whether it was heard to work at least once.
    pub fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// Whether it is up and nothing that could change it has begun.
    pub fn is_settled(&self) -> bool {
        self.condition == Condition::Up && self.has_worked && self.failures == 0 && self.errors == 0
    }

    /// What it is fit for now.
    pub fn fitness(&self, limits: &HealthLimits, now: Duration) -> Fitness {
        let pauses = self.pauses.is_on(now);
        match self.condition {
            Condition::Up => self.warmth(limits, now),
            Condition::Sleeping => Fitness::Asleep,
            Condition::Starting(_) if limits.is_probed || pauses => Fitness::NotYet,
            Condition::Down(check) if limits.tells(check) => Fitness::Out,
            Condition::Down(_) | Condition::Ejected(_) if pauses => Fitness::Out,
            Condition::Starting(_) | Condition::Down(_) | Condition::Ejected(_) => Fitness::Trial,
            Condition::Erring if pauses => Fitness::Last,
            Condition::Erring => Fitness::Fit,
        }
    }

    /// When it may be tried, where only a pause stands in the way of that.
    pub fn next_trial(&self, limits: &HealthLimits) -> Option<Duration> {
        let by_time = match self.condition {
            Condition::Ejected(_) => true,
            // Where there are probes, these tell.
            Condition::Starting(_) => !limits.is_probed,
            Condition::Down(check) => !limits.tells(check),
            _ => false,
        };
        by_time.then(|| self.pauses.until())
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
        self.pauses.try_out(limits, now);
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
        let is_absent = failure.is_connect() && !self.has_worked;
        if limits.failures == 0 || (self.failures < limits.failures && !is_absent) {
            return false;
        }
        let was_sent_before = match self.condition {
            Condition::Ejected(_) => !self.pauses.is_on_trial(),
            Condition::Starting(_) => is_absent && !self.pauses.is_on_trial(),
            Condition::Sleeping => true,
            // Its probes say when it is back.
            Condition::Down(check) => limits.tells(check),
            Condition::Up | Condition::Erring => false,
        };
        if was_sent_before {
            // It was sent before the engine was out, or asleep, and says nothing new.
            return false;
        }
        self.pause_begins(limits, now, draw);
        self.turn(
            if is_absent {
                Condition::Starting(Unready::Unreachable(failure))
            } else {
                Condition::Ejected(failure)
            },
            now,
        )
    }

    /// It answered with this status, whatever that is. Whether its condition changed.
    pub fn answered(
        &mut self,
        limits: &HealthLimits,
        status: u16,
        now: Duration,
        draw: f64,
    ) -> bool {
        self.has_worked = true;
        self.failures = 0;
        let is_success = (200..300).contains(&status);
        if is_success {
            self.inferences_failed = 0;
        }
        match self.condition {
            // Falling asleep ends what runs with an answer.
            Condition::Sleeping => return false,
            // A frozen engine can refuse.
            Condition::Down(Check::Inference) if !is_success => return false,
            _ => {}
        }
        if status == 500 {
            self.errors = self.errors.saturating_add(1);
            if self.errors < ERRORS_IN_A_ROW {
                return self.recover(now);
            }
            if self.condition == Condition::Erring && self.pauses.is_on(now) {
                return false;
            }
            self.pause_begins(limits, now, draw);
            return self.turn(Condition::Erring, now);
        }
        self.errors = 0;
        self.recover(now)
    }

    /// It was probed. `busy` says that it has answered real requests since the probe before: then
    /// a probe that fails says no more than that it is slow. Whether its condition changed.
    pub fn probed(
        &mut self,
        limits: &HealthLimits,
        found: Finding,
        busy: bool,
        now: Duration,
    ) -> bool {
        if let Finding::Well { asleep } = found {
            return self.probe_passed(limits, asleep, now);
        }
        self.probes_passed = 0;
        if busy {
            self.probes_failed = 0;
            return false;
        }
        if let Finding::Unreachable(failure) = found
            && self.may_be_starting()
        {
            return self.unreachable(failure, now);
        }
        self.probes_failed = self.probes_failed.saturating_add(1);
        self.probes_failed >= limits.fall && self.turn(Condition::Down(Check::Health), now)
    }

    fn probe_passed(&mut self, limits: &HealthLimits, asleep: Option<bool>, now: Duration) -> bool {
        self.probes_failed = 0;
        self.probes_passed = self.probes_passed.saturating_add(1);
        if let Some(asleep) = asleep
            && (asleep || self.condition == Condition::Sleeping)
        {
            return self.sleeps(asleep, now);
        }
        let is_back = match self.condition {
            // It listens again. A frozen engine's probes pass all the time: of that, only a
            // request can tell.
            Condition::Down(Check::Health) | Condition::Starting(Unready::Unreachable(_)) => true,
            Condition::Ejected(failure) => failure.is_connect(),
            Condition::Starting(Unready::NoModels)
            | Condition::Sleeping
            | Condition::Down(Check::Inference)
            | Condition::Erring
            | Condition::Up => false,
        };
        is_back && self.probes_passed >= limits.rise && self.recover(now)
    }

    /// It was made to work: whether it did. `busy` says that a part of a good answer to a real
    /// request has come since that began: then a probe that fails says no more than that it is
    /// slow. Whether its condition changed.
    pub fn inferred(
        &mut self,
        limits: &HealthLimits,
        works: bool,
        busy: bool,
        now: Duration,
    ) -> bool {
        if works || busy {
            self.inferences_failed = 0;
        }
        if works {
            self.has_worked = true;
            let is_back = matches!(
                self.condition,
                Condition::Down(Check::Inference) | Condition::Ejected(_) | Condition::Starting(_)
            );
            return is_back && self.recover(now);
        }
        if busy {
            return false;
        }
        self.inferences_failed = self.inferences_failed.saturating_add(1);
        let is_enough = |fall| self.inferences_failed >= fall;
        let is_known = matches!(
            self.condition,
            Condition::Down(_) | Condition::Sleeping | Condition::Starting(_)
        );
        !is_known
            && limits.inference_fall.is_some_and(is_enough)
            && self.turn(Condition::Down(Check::Inference), now)
    }

    /// It fell asleep, or woke up. Whether its condition changed.
    pub fn sleeps(&mut self, asleep: bool, now: Duration) -> bool {
        match (asleep, self.condition) {
            (true, _) => self.turn(Condition::Sleeping, now),
            (false, Condition::Sleeping) => self.recover(now),
            (false, _) => false,
        }
    }

    /// Whoever asked it found that it takes no connection. Whether its condition changed.
    pub fn unreachable(&mut self, failure: Failure, now: Duration) -> bool {
        let starting = Condition::Starting(Unready::Unreachable(failure));
        self.may_be_starting() && self.turn(starting, now)
    }

    /// It said which models it serves: whether there are any. Whether its condition changed.
    pub fn listed(&mut self, has_models: bool, now: Duration) -> bool {
        if has_models {
            self.has_worked = true;
        }
        match self.condition {
            Condition::Starting(_) if has_models => self.recover(now),
            _ if has_models || !self.may_be_starting() => false,
            _ => self.turn(Condition::Starting(Unready::NoModels), now),
        }
    }

    fn may_be_starting(&self) -> bool {
        !self.has_worked && matches!(self.condition, Condition::Up | Condition::Starting(_))
    }

    /// It was heard to work, though not by a request.
    pub fn worked(&mut self) {
        self.has_worked = true;
    }

    /// It is in this condition now, for another reason perhaps than before. Whether that is
    /// another one.
    fn turn(&mut self, condition: Condition, now: Duration) -> bool {
        let is_another = self.condition.label() != condition.label();
        if is_another {
            self.since = now;
        }
        self.condition = condition;
        is_another
    }

    fn recover(&mut self, now: Duration) -> bool {
        if self.condition == Condition::Up {
            return false;
        }
        // An engine that only erred has been warm all the time.
        if self.condition != Condition::Erring {
            self.back = Some(now);
        }
        self.failures = 0;
        self.pauses.end();
        self.probes_failed = 0;
        self.inferences_failed = 0;
        self.turn(Condition::Up, now)
    }

    fn pause_begins(&mut self, limits: &HealthLimits, now: Duration, draw: f64) {
        self.pauses.begin(limits, now, draw);
        // What passed before says nothing of how it is now.
        self.probes_passed = 0;
    }
}

#[cfg(test)]
mod tests;
