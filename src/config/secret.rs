//! Text that is used but never shown.

use std::fmt;

use serde::{Serialize, Serializer};

/// What is shown instead of a secret.
pub const HIDDEN: &str = "***";

/// An API key. Printing, debugging or serialising it gives `***`.
///
/// It cannot be compared with `==`, which would tell by its duration how much of a guess is right.
#[derive(Clone)]
pub struct Secret(String);

impl Secret {
    /// Takes a key that can be sent in a header.
    ///
    /// # Errors
    /// Text that is empty, is the mark of a hidden key, or holds anything but visible ASCII.
    pub fn try_new(text: impl Into<String>) -> Result<Self, SecretError> {
        let text = text.into();
        if text.is_empty() {
            Err(SecretError::Empty)
        } else if text == HIDDEN {
            Err(SecretError::Hidden)
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Err(SecretError::Unsendable)
        } else {
            Ok(Self(text))
        }
    }

    /// The key itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// Why a text cannot be a key. The text itself is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing at all, as from a secret that was never filled in.
    #[error("empty text is not accepted as a key")]
    Empty,
    /// The mark that stands for a key in printed configuration.
    #[error(
        "*** stands for a key that was hidden when the configuration was printed; give the key itself"
    )]
    Hidden,
    /// A blank, a control character, or anything beyond ASCII.
    #[error("a key may hold visible ASCII characters only, and no blanks")]
    Unsendable,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_shows_itself_only_when_asked() {
        let secret = Secret::try_new("sk-abc").unwrap();
        assert_eq!(secret.expose(), "sk-abc");
        assert_eq!(
            format!("{secret} {secret:?} {:?}", Some(&secret)),
            "*** *** Some(***)"
        );
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
    }

    #[test]
    fn text_that_cannot_be_a_key_is_refused() {
        for (text, why) in [
            ("", SecretError::Empty),
            ("***", SecretError::Hidden),
            ("a b", SecretError::Unsendable),
            ("a\n", SecretError::Unsendable),
            ("ä", SecretError::Unsendable),
        ] {
            assert_eq!(Secret::try_new(text).unwrap_err(), why, "{text:?}");
        }
    }
}
