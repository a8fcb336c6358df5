//! What can go wrong with one answer, and the words an operator writes for it.
//!
//! Each fault is something a real engine does to its clients when it is full, dying, frozen or
//! killed. Which request meets which fault is decided in `plan`; carrying it out is left to
//! `generate`.

use std::fmt;

/// The statuses and words a script accepts, for error texts and `--help`.
pub(super) const WORDS: &str = "200, a status from 400 to 599, `hang`, `first-event-error`, \
    `reset-`, `close-` or `stall-` followed by `before-head`, `after-head` or `after-N` \
    (N tokens), or `error-after-N`";

/// One fault of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An error answer with this status, in the engine's own error form.
    Status(u16),
    /// A frozen engine: a stream gets its head and then silence, anything else gets no byte.
    Hang,
    /// The answer goes wrong in this way at this point.
    Break(Break, Point),
}

/// How an answer breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    /// The connection is reset (RST).
    Reset,
    /// The connection is closed (FIN), as when the server process is killed.
    Close,
    /// Nothing more is sent, and the connection stays open.
    Stall,
    /// A stream gets an error event and `[DONE]`, anything else status 500: the engine core died.
    Error,
}

/// Where in an answer a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    /// Before any byte of the answer.
    BeforeHead,
    /// After the head, before the first token.
    AfterHead,
    /// After this many tokens. An answer that is not a stream has then sent its head and half of
    /// its body.
    AfterTokens(u32),
}

/// Reads one step of a script: `None` is a good answer.
///
/// # Errors
/// Anything but the words listed in [`WORDS`].
pub(super) fn step(word: &str) -> Result<Option<Fault>, ()> {
    let word = word.trim();
    if let Ok(status) = word.parse::<u16>() {
        return match status {
            200 => Ok(None),
            400..=599 => Ok(Some(Fault::Status(status))),
            _ => Err(()),
        };
    }
    match word {
        "hang" => return Ok(Some(Fault::Hang)),
        "first-event-error" => return Ok(Some(Fault::Break(Break::Error, Point::AfterHead))),
        _ => {}
    }
    let (kind, place) = word.split_once('-').ok_or(())?;
    let kind = match kind {
        "reset" => Break::Reset,
        "close" => Break::Close,
        "stall" => Break::Stall,
        "error" => Break::Error,
        _ => return Err(()),
    };
    let place = point(place)?;
    if kind == Break::Error && place == Point::BeforeHead {
        return Err(());
    }
    Ok(Some(Fault::Break(kind, place)))
}

/// Reads a point: `before-head`, `after-head`, `after-N` or `N`.
///
/// # Errors
/// Any other word. `0` tokens is the point after the head.
pub(super) fn point(word: &str) -> Result<Point, ()> {
    match word.trim() {
        "before-head" => Ok(Point::BeforeHead),
        "after-head" => Ok(Point::AfterHead),
        other => match other.strip_prefix("after-").unwrap_or(other).parse() {
            Ok(0) => Ok(Point::AfterHead),
            Ok(tokens) => Ok(Point::AfterTokens(tokens)),
            Err(_) => Err(()),
        },
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Hang => f.write_str("hang"),
            Self::Break(Break::Error, Point::AfterHead) => f.write_str("first-event-error"),
            Self::Break(kind, place) => {
                let kind = match kind {
                    Break::Reset => "reset",
                    Break::Close => "close",
                    Break::Stall => "stall",
                    Break::Error => "error",
                };
                write!(f, "{kind}-{place}")
            }
        }
    }
}

// === impl Point ===

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeforeHead => f.write_str("before-head"),
            Self::AfterHead => f.write_str("after-head"),
            Self::AfterTokens(tokens) => write!(f, "after-{tokens}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_as_it_is_shown() {
        for word in [
            "503",
            "429",
            "hang",
            "first-event-error",
            "reset-before-head",
            "reset-after-head",
            "reset-after-3",
            "close-before-head",
            "stall-after-12",
            "error-after-2",
        ] {
            assert_eq!(step(word).unwrap().unwrap().to_string(), word);
        }
        assert_eq!(step(" 200 "), Ok(None));
    }

    #[test]
    fn other_words_are_refused() {
        for word in [
            "",
            "99",
            "201",
            "302",
            "600",
            "-1",
            "reset",
            "reset-",
            "reset-after-",
            "reset-after-x",
            "error-before-head",
            "melt-after-3",
            "hang-after-3",
        ] {
            assert_eq!(step(word), Err(()), "{word}");
        }
    }
}
