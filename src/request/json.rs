//! Reads the few fields of a JSON body that routing needs, and changes at most one of them.
//!
//! The body is never written again from a parsed form: numbers, key order, escapes and blanks
//! reach the engine as the client sent them. An alias replaces the bytes of one string.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

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

/// The fields of a body that routing looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    model: Option<(String, Range<usize>)>,
    stream: bool,
    previous_response_id: Option<String>,
}

impl Fields {
    /// Reads a body. Of a key that is given twice the last one counts, as engines read it.
    ///
    /// # Errors
    /// The body is not a JSON object, or its `model` is not a string.
    pub fn read(body: &[u8]) -> Result<Self, BodyError> {
        let text = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let not_an_object = |error: serde_json::Error| BodyError::NotAnObject(error.to_string());
        let mut parser = serde_json::Deserializer::from_slice(text);
        let raw = parser.deserialize_map(TopLevel).map_err(not_an_object)?;
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
        Ok(Self {
            model,
            stream: raw.stream.is_some_and(|raw| raw.get() == "true"),
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

    /// The response this one goes on from, where it is a string: only the engine that made that
    /// one has it.
    pub fn previous_response_id(&self) -> Option<&str> {
        self.previous_response_id.as_deref()
    }

    /// The body with `name` in the place of its model, every other byte as it was.
    pub fn with_model(&self, body: &Bytes, name: &str) -> Bytes {
        let Some((_, place)) = &self.model else {
            return body.clone();
        };
        let quoted = serde_json::Value::from(name).to_string();
        let mut changed = BytesMut::with_capacity(body.len() + quoted.len());
        changed.extend_from_slice(body.get(..place.start).unwrap_or_default());
        changed.extend_from_slice(quoted.as_bytes());
        changed.extend_from_slice(body.get(place.end..).unwrap_or_default());
        changed.freeze()
    }
}

#[derive(Default)]
struct Raw<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    previous_response_id: Option<&'a RawValue>,
}

struct TopLevel;

impl<'de> Visitor<'de> for TopLevel {
    type Value = Raw<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw<'de>, A::Error> {
        let mut raw = Raw::default();
        while let Some(key) = map.next_key::<Key<'de>>()? {
            match &*key.0 {
                "model" => raw.model = Some(map.next_value()?),
                "stream" => raw.stream = Some(map.next_value()?),
                "previous_response_id" => raw.previous_response_id = Some(map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(raw)
    }
}

/// A key, borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }

            fn visit_bytes<E: serde::de::Error>(self, _: &[u8]) -> Result<Key<'de>, E> {
                Err(E::custom("a key is not valid UTF-8"))
            }
        }
        deserializer
            .deserialize_str(KeyVisitor)
            .map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
