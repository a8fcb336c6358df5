//! What becomes known of one engine's health, and what that means for requests.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::Engine;
use crate::engines::health::{Condition, Finding, Fitness, Health, HealthLimits};
use crate::engines::state::Signs;
use crate::retry::Failure;

impl Engine {
    /// What it is fit for at `now`, the time since the process started.
    pub fn fitness(&self, now: Duration) -> Fitness {
        if self.state.is_plain.load(Ordering::Relaxed) {
            return Fitness::Fit;
        }
        let health = self.lock_health();
        let fitness = health.fitness(&self.limits, now);
        if fitness == Fitness::Fit && health.is_settled() {
            self.state.is_plain.store(true, Ordering::Relaxed);
        }
        fitness
    }

    /// Its condition, and since when in the time of the process.
    pub fn condition(&self) -> (Condition, Duration) {
        self.lock_health().condition()
    }

    /// Whether it was heard to work at least once.
    pub fn has_worked(&self) -> bool {
        self.lock_health().has_worked()
    }

    /// When it may be tried, in the time of the process, where it is out until then.
    pub(in crate::engines) fn next_trial(&self) -> Option<Duration> {
        self.lock_health().next_trial(&self.limits)
    }

    /// A request is sent to it to see whether it is back.
    pub(in crate::engines) fn trial_begins(&self, now: Duration) {
        self.lock_health().trial_begins(&self.limits, now);
    }

    /// A request failed on it. Its new condition, if that changed.
    pub(in crate::engines) fn failed(
        &self,
        failure: Failure,
        now: Duration,
        draw: f64,
    ) -> Option<Condition> {
        self.change(|health, limits| health.failed(limits, failure, now, draw))
    }

    /// It answered a request with this status. Its new condition, if that changed.
    pub(in crate::engines) fn answered(
        &self,
        status: u16,
        now: Duration,
        draw: f64,
    ) -> Option<Condition> {
        if (200..300).contains(&status) {
            self.works();
        } else {
            self.state.signs.show(Signs::ANSWERS);
        }
        if status != 500 && self.state.is_plain.load(Ordering::Relaxed) {
            return None;
        }
        self.change(|health, limits| health.answered(limits, status, now, draw))
    }

    /// A part of a good answer has come.
    pub fn works(&self) {
        self.state.signs.show(Signs::ANSWERS | Signs::WORKS);
    }

    /// It is about to be made to work.
    pub(in crate::engines) fn inference_begins(&self) {
        self.state.signs.take(Signs::WORKS);
    }

    /// It was made to work: whether it did. Its new condition, if that changed.
    pub(in crate::engines) fn inferred(&self, works: bool, now: Duration) -> Option<Condition> {
        let busy = self.state.signs.take(Signs::WORKS);
        self.change(|health, limits| health.inferred(limits, works, busy, now))
    }

    /// It was probed. Its new condition, if that changed.
    pub(in crate::engines) fn probed(&self, found: Finding, now: Duration) -> Option<Condition> {
        let busy = self.state.signs.take(Signs::ANSWERS);
        // One that is yet to say what it serves works once it has.
        let works = matches!(found, Finding::Well { .. }) && self.declares_models;
        self.change(|health, limits| {
            if works {
                health.worked();
            }
            health.probed(limits, found, busy, now)
        })
    }

    /// It fell asleep, or woke up. Its new condition, if that changed.
    pub(in crate::engines) fn sleeps(&self, asleep: bool, now: Duration) -> Option<Condition> {
        self.change(|health, _| health.sleeps(asleep, now))
    }

    /// Whether it may know of sleep: it has not said otherwise since it was last gone.
    pub(in crate::engines) fn may_sleep(&self) -> bool {
        self.state.may_sleep.load(Ordering::Relaxed) || self.condition().0 == Condition::Sleeping
    }

    /// Takes note of whether it may know of sleep.
    pub(in crate::engines) fn set_may_sleep(&self, may_sleep: bool) {
        self.state.may_sleep.store(may_sleep, Ordering::Relaxed);
    }

    /// It takes no connection. Its new condition, if that changed.
    pub(in crate::engines) fn unreachable(
        &self,
        failure: Failure,
        now: Duration,
    ) -> Option<Condition> {
        self.change(|health, _| health.unreachable(failure, now))
    }

    /// It said which models it serves: whether there are any. Its new condition, if that changed.
    pub(in crate::engines) fn listed(&self, has_models: bool, now: Duration) -> Option<Condition> {
        self.change(|health, _| health.listed(has_models, now))
    }

    fn change(&self, event: impl FnOnce(&mut Health, &HealthLimits) -> bool) -> Option<Condition> {
        let mut health = self.lock_health();
        self.state.is_plain.store(false, Ordering::Relaxed);
        event(&mut health, &self.limits).then(|| health.condition().0)
    }

    fn lock_health(&self) -> MutexGuard<'_, Health> {
        self.state
            .health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
