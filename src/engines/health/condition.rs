//! The words for how an engine is, and for what it is fit for.

use crate::retry::Failure;

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
    /// Nothing, unless so many are out that this is hard to believe.
    Out,
    /// Nothing yet, however many others are out.
    NotYet,
    /// Nothing at all: a request would wait until the engine is woken up.
    Asleep,
}

/// The condition of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing speaks against it.
    Up,
    /// It was never heard to work, and does not yet: a vLLM server loads for minutes.
    Starting(Unready),
    /// It was told to sleep.
    Sleeping,
    /// Real requests failed on it.
    Ejected(Failure),
    /// These probes of it fail.
    Down(Check),
    /// It says nothing but 500.
    Erring,
}

/// What engines are probed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Whether they say that they are well.
    Health,
    /// Whether they work.
    Inference,
}

impl Check {
    /// The word for logs and `/engines`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Health => "probe",
            Self::Inference => "inference",
        }
    }
}

/// What an engine lacks that is starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unready {
    /// It takes no connection.
    Unreachable(Failure),
    /// It lists no model.
    NoModels,
}

impl Condition {
    /// The word for logs, metrics and `/engines`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Starting(_) => "starting",
            Self::Sleeping => "sleeping",
            Self::Ejected(_) => "ejected",
            Self::Down(_) => "down",
            Self::Erring => "erring",
        }
    }

    /// Why, in a word.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Up => "answers",
            Self::Starting(Unready::Unreachable(failure)) | Self::Ejected(failure) => {
                failure.label()
            }
            Self::Starting(Unready::NoModels) => "no_models",
            Self::Sleeping => "asleep",
            Self::Down(check) => check.label(),
            Self::Erring => "status_500",
        }
    }

    /// Whether something is wrong; else it is as its operator means it to be.
    pub fn is_trouble(self) -> bool {
        match self {
            Self::Up | Self::Starting(_) | Self::Sleeping => false,
            Self::Ejected(_) | Self::Down(_) | Self::Erring => true,
        }
    }
}
