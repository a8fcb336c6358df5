//! Looks into JSON that is known to be well-formed, one level at a time.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::request::json::Text;

/// The most fields of an object that are looked at.
const MOST_FIELDS: usize = 64;

/// A field of an object.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) raw: &'a RawValue,
}

/// The text of a string; `None` where it is none, or names characters that there are not.
pub(super) fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    if !text.starts_with('"') {
        return None;
    }
    serde_json::from_str::<Text<'_>>(text)
        .ok()
        .map(|text| text.0)
}

/// The fields of an object in the order of their keys; of a key that is given twice the last one
/// counts. `None` where it is no object.
pub(super) fn fields(raw: &RawValue) -> Option<Vec<Field<'_>>> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<Field<'de>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some((Text(key), raw)) = map.next_entry()? {
                if fields.len() < MOST_FIELDS {
                    fields.push(Field { key, raw });
                }
            }
            Ok(fields)
        }
    }
    if !raw.get().starts_with('{') {
        return None;
    }
    let mut parser = serde_json::Deserializer::from_str(raw.get());
    let mut fields = parser.deserialize_map(Fields).ok()?;
    fields.reverse();
    fields.sort_by(|one, other| one.key.cmp(&other.key));
    fields.dedup_by(|one, other| one.key == other.key);
    Some(fields)
}

/// Shows the items of a list until `see` has seen enough; `false` where it is no list.
pub(super) fn items<'a>(raw: &'a RawValue, see: impl FnMut(&'a RawValue) -> bool) -> bool {
    struct Items<F>(F);
    impl<'de, F: FnMut(&'de RawValue) -> bool> Visitor<'de> for Items<F> {
        type Value = ();

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<(), A::Error> {
            while let Some(item) = items.next_element()? {
                if !(self.0)(item) {
                    return Err(A::Error::custom("enough"));
                }
            }
            Ok(())
        }
    }
    if !raw.get().starts_with('[') {
        return false;
    }
    // An error is no more than the end: what was seen is well-formed.
    let _ = serde_json::Deserializer::from_str(raw.get()).deserialize_seq(Items(see));
    true
}
