//! The loads.

use std::time::Duration;

use crate::load::closed::Question;
use crate::load::script::Script;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// Answers that are no streams.
    Chat,
    /// Streams of tokens.
    Stream,
    /// Long prompts.
    Long,
    /// One in five attempts is refused.
    Refusals,
    /// Streams on which nothing happens.
    Idle,
    /// A fixed rate, whoever is slow.
    Paced,
}

/// Bytes of a short prompt, and of a long one.
const SHORT: usize = 1 << 10;
const LONG: usize = 128 << 10;
/// Events of a stream, and the time from one to the next.
const EVENTS: u64 = 200;
const EVERY: Duration = Duration::from_millis(5);
/// Streams do not begin together, lest their events come together; this is no multiple of the time
/// between two of them, and all have begun within the warm-up.
const STAGGER: Duration = Duration::from_micros(7300);
/// Requests per second of the load with a fixed rate.
pub const RATE: u32 = 1000;

impl Load {
    /// All, in the order of every table.
    pub const ALL: [Self; 6] = [
        Self::Chat,
        Self::Stream,
        Self::Long,
        Self::Refusals,
        Self::Idle,
        Self::Paced,
    ];

    /// The letter for it.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Chat => "a",
            Self::Stream => "b",
            Self::Long => "c",
            Self::Refusals => "d",
            Self::Idle => "e",
            Self::Paced => "f",
        }
    }

    /// What clients do.
    pub fn told(self) -> &'static str {
        match self {
            Self::Chat => "64 clients, prompts of 1 KiB, answers of 416 bytes",
            Self::Stream => "50 streams of 200 events at a time, an event every 5 ms on each",
            Self::Long => "16 clients, prompts of 128 KiB, answers of 416 bytes",
            Self::Refusals => {
                "as (a), but one in five attempts is answered 503; asked again after 1 ms"
            }
            Self::Idle => "streams that are open, with an event now and then",
            Self::Paced => "as (a), but 1,000 requests per second, whoever is slow",
        }
    }

    /// What engines do.
    pub fn script(self) -> Script {
        match self {
            Self::Chat | Self::Long | Self::Paced => Script::Answer,
            Self::Stream => Script::Stream {
                events: EVENTS,
                every: EVERY,
            },
            Self::Refusals => Script::OneInFive,
            Self::Idle => Script::Hold,
        }
    }

    /// What clients ask.
    pub fn question(self) -> Question {
        let (clients, prompt) = match self {
            Self::Chat | Self::Refusals | Self::Paced => (64, SHORT),
            Self::Stream => (50, SHORT),
            Self::Long => (16, LONG),
            Self::Idle => (200, SHORT),
        };
        Question {
            clients,
            prompt,
            events: (self == Self::Stream).then_some(EVENTS),
            stagger: if self == Self::Stream {
                STAGGER
            } else {
                Duration::ZERO
            },
        }
    }
}
