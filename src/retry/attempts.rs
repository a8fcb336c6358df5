//! Decides what follows a finished attempt: another one, now or after a backoff, or the end.
//!
//! Given: how the attempt ended, the engines that serve the request's model, one random draw, and
//! what the request has spent so far. Left to others: sending bytes (`proxy`) and choosing among
//! the engines in good standing (`routing`).

use std::time::Duration;

use super::{Backoff, Failure, Outcome, RetryConfig, RetryReason, is_retryable_status};
use crate::engines::EngineId;

/// Whether a delivered request may be delivered again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resend {
    /// Inference and reads: asking twice does no harm.
    #[default]
    Always,
    /// State-changing calls: only when the connect failed, so that nothing can have been done.
    ConnectOnly,
}

/// What a request may do with an engine now.
///
/// The best comes first: routing picks among those of the best standing there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It may be picked.
    Eligible,
    /// It answered a retryable status just now: picked only where no other engine is eligible.
    Last,
    /// Its health speaks against it: picked only where all others are excluded.
    Doubtful,
    /// A transport failure has excluded it.
    Excluded,
}

/// What to do after an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Next {
    /// Try again, after this wait; zero means at once.
    Retry {
        /// How long to wait first.
        backoff: Duration,
        /// What made it necessary.
        reason: RetryReason,
    },
    /// The request is over.
    Stop(StopReason),
}

/// Why a request makes no further attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StopReason {
    /// The engine answered, and the answer is not one to ask again for.
    Answered,
    /// The status is retryable, but retries are off.
    RetriesOff,
    /// All attempts of the budget have been made.
    BudgetSpent,
    /// The request changes state and may have been delivered.
    NotRepeatable,
    /// The answer broke off after its first body byte had gone to the client.
    Committed,
    /// The client left.
    ClientGone,
}

impl StopReason {
    /// The word for logs and metric labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::RetriesOff => "retries_off",
            Self::BudgetSpent => "budget_spent",
            Self::NotRepeatable => "not_repeatable",
            Self::Committed => "committed",
            Self::ClientGone => "client_gone",
        }
    }
}

/// The attempts of one request: what has been spent, who is excluded, what comes next.
#[derive(Clone, Debug)]
pub struct Attempts {
    policy: Option<Policy>,
    resend: Resend,
    spent: u32,
    backoffs: u32,
    current: Option<EngineId>,
    excluded: Vec<EngineId>,
    last: Option<EngineId>,
}

#[derive(Clone, Copy, Debug)]
struct Policy {
    max_retries: u32,
    backoff: Backoff,
}

impl Attempts {
    /// A request that has made no attempt yet; `None` turns retries off: one attempt.
    pub fn new(config: Option<&RetryConfig>, resend: Resend) -> Self {
        Self {
            policy: config.map(|config| Policy {
                max_retries: config.max_retries(),
                backoff: Backoff::new(config),
            }),
            resend,
            spent: 0,
            backoffs: 0,
            current: None,
            excluded: Vec::new(),
            last: None,
        }
    }

    /// Counts an attempt on `engine`. To be called before anything is sent or connected.
    pub fn begin(&mut self, engine: EngineId) {
        self.spent += 1;
        self.current = Some(engine);
    }

    /// Whether the request may be sent again after it may have been delivered.
    pub fn is_repeatable(&self) -> bool {
        self.resend == Resend::Always
    }

    /// The attempts made so far.
    pub fn spent(&self) -> u32 {
        self.spent
    }

    /// The backoffs decided so far.
    pub fn backoffs(&self) -> u32 {
        self.backoffs
    }

    /// The engine of the attempt that was begun last.
    pub fn current(&self) -> Option<EngineId> {
        self.current
    }

    /// What the request may do with `engine` now.
    pub fn standing(&self, engine: EngineId) -> Standing {
        if self.excluded.contains(&engine) {
            Standing::Excluded
        } else if self.last == Some(engine) {
            Standing::Last
        } else {
            Standing::Eligible
        }
    }

    /// Decides what follows the attempt that was begun last.
    ///
    /// `pool` holds every engine that may serve the request; it is looked at only where `outcome`
    /// [excludes](Outcome::excludes) the engine. `draw` is uniform in `[0, 1)`
    /// and spreads the backoff, if one follows.
    pub fn after(&mut self, outcome: Outcome, pool: &[EngineId], draw: f64) -> Next {
        match outcome {
            Outcome::ClientGone => Next::Stop(StopReason::ClientGone),
            Outcome::Cut => Next::Stop(StopReason::Committed),
            Outcome::Status(status) if !is_retryable_status(status) => {
                Next::Stop(StopReason::Answered)
            }
            Outcome::Status(status) => self.after_status(status, draw),
            Outcome::Failed(failure) => self.after_failure(failure, pool, draw),
            Outcome::NotServed => self.after_denial(pool),
        }
    }

    /// The engine stays eligible and is asked, or another one is, after a backoff.
    fn after_status(&mut self, status: u16, draw: f64) -> Next {
        let policy = match self.allowance(true) {
            Ok(policy) => policy,
            Err(stop) => return Next::Stop(stop),
        };
        self.last = self.current;
        Next::Retry {
            backoff: self.take_backoff(policy, draw),
            reason: RetryReason::Status(status),
        }
    }

    /// The engine is excluded and another one is tried at once; with none left, one backoff gives
    /// the whole pool another chance.
    fn after_failure(&mut self, failure: Failure, pool: &[EngineId], draw: f64) -> Next {
        let policy = match self.allowance(failure.may_have_been_delivered()) {
            Ok(policy) => policy,
            Err(stop) => return Next::Stop(stop),
        };
        self.excluded.extend(self.current);
        let exhausted = pool.iter().all(|engine| self.excluded.contains(engine));
        let backoff = if exhausted {
            self.excluded.clear();
            self.take_backoff(policy, draw)
        } else {
            Duration::ZERO
        };
        Next::Retry {
            backoff,
            reason: RetryReason::Failed(failure),
        }
    }

    /// The engine is excluded and another one is asked at once. Only those that are thought to
    /// serve the model can do better, so with none of them left the answer is final.
    fn after_denial(&mut self, pool: &[EngineId]) -> Next {
        let is_other = |engine: &EngineId| Some(*engine) != self.current;
        let mut others = pool.iter().filter(|engine| is_other(engine));
        if others.all(|engine| self.excluded.contains(engine)) {
            return Next::Stop(StopReason::Answered);
        }
        match self.allowance(true) {
            Ok(_) => {
                self.excluded.extend(self.current);
                Next::Retry {
                    backoff: Duration::ZERO,
                    reason: RetryReason::NotServed,
                }
            }
            Err(StopReason::BudgetSpent) => Next::Stop(StopReason::BudgetSpent),
            Err(_) => Next::Stop(StopReason::Answered),
        }
    }

    /// Whether another attempt may be made at all.
    fn allowance(&self, may_have_been_delivered: bool) -> Result<Policy, StopReason> {
        let policy = self.policy.ok_or(StopReason::RetriesOff)?;
        if self.resend == Resend::ConnectOnly && may_have_been_delivered {
            return Err(StopReason::NotRepeatable);
        }
        if self.spent >= policy.max_retries {
            return Err(StopReason::BudgetSpent);
        }
        Ok(policy)
    }

    fn take_backoff(&mut self, policy: Policy, draw: f64) -> Duration {
        let delay = policy.backoff.delay(self.backoffs, draw);
        self.backoffs = self.backoffs.saturating_add(1);
        delay
    }
}

#[cfg(test)]
mod tests;
