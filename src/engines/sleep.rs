//! What an engine says of whether it sleeps.
//!
//! A vLLM server answers this only in its development mode (`VLLM_SERVER_DEV_MODE=1`). One that
//! sleeps answers its health probes as ever and takes requests in, which then wait.

use bytes::Bytes;

use super::AskError;

/// Where an engine is asked.
pub const IS_SLEEPING: &str = "/is_sleeping";

/// What an engine says of its sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// It sleeps.
    Asleep,
    /// It is awake.
    Awake,
    /// It knows of no sleep, and so is awake.
    NotOffered,
    /// It did not say.
    Unsaid,
}

#[derive(serde::Deserialize)]
struct Body {
    is_sleeping: bool,
}

impl Sleep {
    /// Reads an engine's answer.
    pub fn read(answer: &Result<(u16, Bytes), AskError>) -> Self {
        match answer {
            Ok((200, body)) => match serde_json::from_slice(body) {
                Ok(Body { is_sleeping: true }) => Self::Asleep,
                Ok(Body { is_sleeping: false }) => Self::Awake,
                Err(_) => Self::NotOffered,
            },
            Ok((..500, _)) => Self::NotOffered,
            Ok(_) | Err(_) => Self::Unsaid,
        }
    }

    /// Whether it sleeps; `None` where that is not known.
    pub fn is_asleep(self) -> Option<bool> {
        match self {
            Self::Asleep => Some(true),
            Self::Awake | Self::NotOffered => Some(false),
            Self::Unsaid => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_yes_is_sleep_and_only_an_answer_is_an_answer() {
        for (status, body, sleep) in [
            (200, r#"{"is_sleeping":true}"#, Sleep::Asleep),
            (200, r#"{"is_sleeping": false, "level": 0}"#, Sleep::Awake),
            (200, r#"{"is_sleeping":"true"}"#, Sleep::NotOffered),
            (200, "<html>", Sleep::NotOffered),
            (404, r#"{"detail":"Not Finding"}"#, Sleep::NotOffered),
            (401, r#"{"is_sleeping":true}"#, Sleep::NotOffered),
            (503, r#"{"is_sleeping":true}"#, Sleep::Unsaid),
        ] {
            let answer = Ok((status, Bytes::from_static(body.as_bytes())));
            assert_eq!(Sleep::read(&answer), sleep, "{status} {body}");
        }
        assert_eq!(Sleep::read(&Err(AskError::NoAddress)), Sleep::Unsaid);
        assert_eq!(
            [
                Sleep::Asleep,
                Sleep::Awake,
                Sleep::NotOffered,
                Sleep::Unsaid
            ]
            .map(Sleep::is_asleep),
            [Some(true), Some(false), Some(false), None]
        );
    }
}
