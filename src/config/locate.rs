//! Finds the line of a value in the file, once something is wrong with it.
//!
//! The parser tells positions in errors only. So the text is read once more, down to the value in
//! question, where an error is raised on purpose: the parser adds the position to it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The line, from 1, of the value at `path`: on each level the index of an item of a list or of an
/// entry of a mapping. An entry is found by its key.
pub(super) fn line(text: &str, path: &[usize]) -> Option<usize> {
    let raised = Descend(path)
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .err()?;
    raised.location().map(|place| place.line())
}

/// What is left of the way down; nothing left means to raise the error here.
struct Descend<'p>(&'p [usize]);

impl<'de> DeserializeSeed<'de> for Descend<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Descend<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("to stop here")
    }

    // A scalar is refused by the visits that are left out, which raises the error as well.

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((&index, rest)) = self.0.split_first() else {
            return Err(A::Error::custom("here"));
        };
        for _ in 0..index {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Descend(rest))?;
        Err(A::Error::custom("no such item"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((&index, rest)) = self.0.split_first() else {
            return Err(A::Error::custom("here"));
        };
        for _ in 0..index {
            entries.next_entry::<IgnoredAny, IgnoredAny>()?;
        }
        if rest.is_empty() {
            entries.next_key_seed(Descend(rest))?;
        } else {
            entries.next_key::<IgnoredAny>()?;
            entries.next_value_seed(Descend(rest))?;
        }
        Err(A::Error::custom("no such entry"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# a comment
port: 8001

engines:
  - url: http://a
    models: [one, two]
  - url: http://b
    models:
      - three
api_keys: {x: 1,
  y: 2}
";

    #[test]
    fn values_are_found_by_their_way_down() {
        let cases: &[(&[usize], usize)] = &[
            (&[0], 2),
            (&[1], 4),
            (&[1, 0], 5),
            (&[1, 0, 1], 6),
            (&[1, 0, 1, 1], 6),
            (&[1, 1, 0], 7),
            (&[1, 1, 1, 0], 9),
            (&[2], 10),
            (&[2, 1], 11),
        ];
        for (path, expected) in cases {
            assert_eq!(line(TEXT, path), Some(*expected), "{path:?}");
        }
    }
}
