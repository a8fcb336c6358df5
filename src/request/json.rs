//! Reads the few fields of a JSON body that routing needs, and changes at most one of them.
//!
//! The body is never written again from a parsed form: numbers, key order, escapes and blanks
//! reach the engine as the client sent them. An alias replaces the bytes of one string.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::prompt::Sources;
use crate::body_buffer::BodyBuffer;

/// Engines skip a byte order mark before the body, so it is no reason to refuse one.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why a body cannot be routed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Not JSON, or not an object.
    #[error("the request body is not a JSON object: {0}")]
    NotAnObject(String),
    /// There is no `model`.
    #[error("the request body has no `model`")]
    MissingModel,
    /// `model` is not a string.
    #[error("`model` must be a string")]
    ModelNotAString,
}

/// What routing wants to know of a body beyond its model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The session.
    pub session: bool,
    /// The top-level field that names it, before those of the `OpenAI` API.
    pub session_key: Option<String>,
    /// The prompt.
    pub prompt: bool,
}

/// Fields of the `OpenAI` API that tell one user or conversation from another, best first.
const SESSION_FIELDS: [&str; 3] = ["user", "prompt_cache_key", "safety_identifier"];

/// The fields of a body that routing looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    model: Option<(String, Range<usize>)>,
    /// Behind the brace that opens the object.
    inside: usize,
    empty: bool,
    stream: bool,
    session: Option<String>,
    prompt: Option<Vec<u8>>,
    previous_response_id: Option<String>,
}

impl Fields {
    /// Reads a body. Of a key that is given twice the last one counts, as engines read it.
    ///
    /// # Errors
    /// The body is not a JSON object, or its `model` is not a string.
    pub fn read(body: &[u8], wanted: &Wanted) -> Result<Self, BodyError> {
        let text = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let not_an_object = |error: serde_json::Error| BodyError::NotAnObject(error.to_string());
        let mut parser = serde_json::Deserializer::from_slice(text);
        let raw = parser
            .deserialize_map(TopLevel {
                wanted,
                // Engines refuse anything else, and say so better than we could.
                prompt: wanted.prompt && std::str::from_utf8(text).is_ok(),
            })
            .map_err(not_an_object)?;
        parser.end().map_err(not_an_object)?;
        let model = match raw.model {
            None => None,
            Some(raw) => {
                let name: String =
                    serde_json::from_str(raw.get()).map_err(|_| BodyError::ModelNotAString)?;
                let start = raw.get().as_ptr().addr() - body.as_ptr().addr();
                Some((name, start..start + raw.get().len()))
            }
        };
        let inside = body.iter().position(|byte| *byte == b'{').unwrap_or(0) + 1;
        Ok(Self {
            model,
            inside,
            empty: !raw.filled,
            session: raw.sessions.iter().flatten().find_map(|raw| session(raw)),
            stream: raw.stream.is_some_and(|raw| raw.get() == "true"),
            prompt: raw.prompt.text(),
            previous_response_id: raw
                .previous_response_id
                .and_then(|raw| serde_json::from_str(raw.get()).ok()),
        })
    }

    /// The model the request names.
    ///
    /// # Errors
    /// There is none.
    pub fn model(&self) -> Result<&str, BodyError> {
        match &self.model {
            Some((name, _)) => Ok(name),
            None => Err(BodyError::MissingModel),
        }
    }

    /// Whether the answer is asked for as a stream.
    pub fn stream(&self) -> bool {
        self.stream
    }

    /// The session the request belongs to, if that was wanted and it says so.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The prompt as routing compares it, if that was wanted and there is one.
    pub fn prompt(&self) -> Option<&[u8]> {
        self.prompt.as_deref()
    }

    /// The response this one goes on from, where it is a string: only the engine that made that
    /// one has it.
    pub fn previous_response_id(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// The body with `name` in the place of its model, or as its first field where it has none;
    /// every other byte as it was.
    pub fn with_model(&self, body: &Bytes, name: &str) -> Bytes {
        let mut quoted = serde_json::Value::from(name).to_string();
        let place = if let Some((_, place)) = &self.model {
            place.clone()
        } else {
            let comma = if self.empty { "" } else { "," };
            quoted = format!("\"model\":{quoted}{comma}");
            self.inside..self.inside
        };
        let mut changed = BodyBuffer::with_capacity(body.len() + quoted.len());
        changed.extend_from_slice(body.get(..place.start).unwrap_or_default());
        changed.extend_from_slice(quoted.as_bytes());
        changed.extend_from_slice(body.get(place.end..).unwrap_or_default());
        changed.freeze()
    }
}

/// The session a value names: text or a number, and not nothing.
fn session(raw: &RawValue) -> Option<String> {
    let text = match serde_json::from_str(raw.get()).ok()? {
        serde_json::Value::String(text) => text,
        serde_json::Value::Number(number) => number.to_string(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

#[derive(Default)]
struct Raw<'a> {
    /// Whether there is any field.
    filled: bool,
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    previous_response_id: Option<&'a RawValue>,
    /// The field of the configuration, and those of the API.
    sessions: [Option<&'a RawValue>; 1 + SESSION_FIELDS.len()],
    prompt: Sources<'a>,
}

struct TopLevel<'w> {
    wanted: &'w Wanted,
    prompt: bool,
}

impl TopLevel<'_> {
    /// Where a field stands among those that name a session.
    fn session_rank(&self, key: &str) -> Option<usize> {
        if !self.wanted.session {
            return None;
        }
        if self.wanted.session_key.as_deref() == Some(key) {
            return Some(0);
        }
        let rank = SESSION_FIELDS.iter().position(|field| *field == key)?;
        Some(rank + 1)
    }
}

impl<'de> Visitor<'de> for TopLevel<'_> {
    type Value = Raw<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw<'de>, A::Error> {
        let mut raw = Raw::default();
        while let Some(Text(key)) = map.next_key()? {
            raw.filled = true;
            let field = match &*key {
                "model" => Some(&mut raw.model),
                "stream" => Some(&mut raw.stream),
                "previous_response_id" => Some(&mut raw.previous_response_id),
                _ => None,
            };
            let rank = self.session_rank(&key);
            let session = rank.and_then(|rank| raw.sessions.get_mut(rank));
            let prompt = self.prompt.then(|| raw.prompt.slot(&key)).flatten();
            let slots = [field, session, prompt];
            if slots.iter().all(Option::is_none) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value()?;
            for slot in slots.into_iter().flatten() {
                *slot = Some(value);
            }
        }
        Ok(raw)
    }
}

/// A string, borrowed where it has no escapes.
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: serde::de::Error>(
                self,
                text: &'de str,
            ) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Text<'de>, E> {
                Err(E::custom("a string is not valid UTF-8"))
            }
        }
        deserializer
            .deserialize_str(TextVisitor)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
