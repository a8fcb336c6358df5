//! The file as a tree, before anyone asks what it means.
//!
//! A tree of our own instead of `serde_yaml::Value`, because that one stops at the first key given
//! twice, and an operator wants to hear of all of them.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, EnumAccess, MapAccess, SeqAccess, Visitor};

/// A value of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Whole(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Node>),
    /// Entries in the order of the file, keys given twice included.
    Map(Vec<(Node, Node)>),
}

/// Why the text is not a YAML document.
#[derive(Debug)]
pub(super) struct NotYaml {
    pub(super) line: Option<usize>,
    pub(super) why: String,
}

/// Reads one document. An empty one is [`Node::Null`].
pub(super) fn parse(text: &str) -> Result<Node, NotYaml> {
    let says_something = |line: &str| !matches!(line.trim_start().chars().next(), None | Some('#'));
    if !text.lines().any(says_something) {
        return Ok(Node::Null);
    }
    serde_yaml::from_str(text).map_err(|error| NotYaml {
        line: error.location().map(|place| place.line()),
        // Fixed sentences of the parser and of the visitor below, with positions and keys at most:
        // no value, which could be a secret, is ever part of them.
        why: error.to_string(),
    })
}

impl Node {
    /// The kind of value, for messages that must not show the value itself.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Whole(_) | Self::Fraction(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }

    /// The value as a message shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Whole(value) => value.to_string(),
            Self::Fraction(value) => format!("{value:?}"),
            Self::Text(value) => super::report::shown(value),
            Self::Null | Self::List(_) | Self::Map(_) => self.kind().to_owned(),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNode)
    }
}

struct AnyNode;

impl<'de> Visitor<'de> for AnyNode {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Whole(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Whole(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        // Far out of every range; only the text of the refusal depends on it.
        Ok(Node::Whole(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            map.push(entry);
        }
        Ok(Node::Map(map))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<Node, A::Error> {
        Err(de::Error::custom("tags such as !name are not accepted"))
    }
}
