//! Finds the value of a setting: the flag, else the environment, else the file, else the default.
//!
//! Only the value that counts is checked. What it beats may be anything; a key that does not exist
//! is a mistake wherever it stands.

use std::collections::BTreeMap;

use super::Inputs;
use super::keys::{self, KEYS, Key, Source};
use super::report::{Place, Report, shown};
use super::suggest;
use super::yaml::{self, Node};

/// A value and where it was given.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) raw: Raw,
}

/// A value before it is read as what it should be.
#[derive(Clone, Debug)]
pub(super) enum Raw {
    /// Text of a flag or of the environment.
    Typed(String),
    /// A value of the file, or a default.
    Node(Node),
}

/// A number that was read, whatever range it should be in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(i128),
    Fraction(f64),
}

impl Raw {
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Typed(text) => shown(text),
            Self::Node(node) => node.shown(),
        }
    }

    /// The number, if it is one. Text of the file is none, but for `NaN`, `inf` and their kin,
    /// which YAML spells in a way of its own.
    pub(super) fn number(&self) -> Option<Number> {
        match self {
            Self::Typed(text) => text
                .parse()
                .map(Number::Whole)
                .or_else(|_| text.parse().map(Number::Fraction))
                .ok(),
            Self::Node(Node::Whole(number)) => Some(Number::Whole(*number)),
            Self::Node(Node::Fraction(number)) => Some(Number::Fraction(*number)),
            Self::Node(Node::Text(text)) => text
                .parse()
                .ok()
                .filter(|n: &f64| !n.is_finite())
                .map(Number::Fraction),
            Self::Node(_) => None,
        }
    }

    /// The text, if it is one.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Typed(text) | Self::Node(Node::Text(text)) => Some(text),
            Self::Node(_) => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Node(Node::Null))
    }
}

/// A field of a mapping of the file.
pub(super) type Field = (Place, Node);

/// The layers of settings, and the report on them.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    flags: &'a BTreeMap<String, String>,
    env: &'a BTreeMap<String, String>,
    file: BTreeMap<&'static str, Field>,
    /// Whether a file was given that could not be read: what is missing may stand there.
    pub(super) file_is_lost: bool,
    pub(super) report: Report<'a>,
}

impl<'a> Reader<'a> {
    /// A reader that has not looked into the file.
    pub(super) fn of(inputs: Inputs<'a>) -> Self {
        Self {
            flags: inputs.flags,
            env: inputs.env,
            file: BTreeMap::new(),
            file_is_lost: false,
            report: Report::new(inputs.file),
        }
    }

    pub(super) fn open(inputs: Inputs<'a>) -> Self {
        let mut reader = Self::of(inputs);
        if let Some((_, text)) = inputs.file {
            reader.open_file(text);
        }
        reader
    }

    fn open_file(&mut self, text: &str) {
        match yaml::parse(text) {
            Ok(Node::Null) => {}
            Ok(Node::Map(entries)) => {
                let known = KEYS
                    .iter()
                    .filter(|key| key.is_in_file())
                    .map(|key| key.name);
                let known: Vec<_> = known.chain([keys::GONE]).collect();
                self.file = fields(
                    &mut self.report,
                    &Place::top(),
                    &entries,
                    &known,
                    unknown_key,
                );
            }
            Ok(other) => {
                let what = format!(
                    "the file is {}, not a mapping of keys to values",
                    other.kind()
                );
                self.report.mistake(&Place::top(), what);
                self.file_is_lost = true;
            }
            Err(error) => {
                self.report.not_yaml(error.line, &error.why);
                self.file_is_lost = true;
            }
        }
    }

    /// The value that counts.
    pub(super) fn given(&self, key: &Key) -> Given {
        if key.is_typed() {
            if let Some(text) = self.flags.get(key.name) {
                return typed(Place::flag(key), text);
            }
            if let Some(text) = self
                .env
                .get(&key.env())
                .filter(|text| !is_service_link(key, text))
            {
                return typed(Place::env(key), text);
            }
        }
        if let Some((place, node)) = self.file.get(key.name) {
            return Given {
                place: place.clone(),
                raw: Raw::Node(node.clone()),
            };
        }
        let default = yaml::parse(key.default).unwrap_or(Node::Null);
        Given {
            place: Place::Nowhere(key.name),
            raw: Raw::Node(default),
        }
    }

    /// Whether somebody gave the setting another value than its default.
    pub(super) fn is_set(&self, key: &Key) -> bool {
        let given = self.given(key);
        let default = yaml::parse(key.default).unwrap_or(Node::Null);
        given.place.is_given() && !matches!(&given.raw, Raw::Node(node) if *node == default)
    }

    /// The value of the setting that exists no more, if someone still gives it.
    pub(super) fn gone(&self) -> Option<Given> {
        let flag = keys::GONE.replace('_', "-");
        let env = format!("{}{}", keys::ENV_PREFIX, keys::GONE.to_ascii_uppercase());
        if let Some(text) = self.flags.get(keys::GONE) {
            return Some(typed(Place::Flag(format!("--{flag}")), text));
        }
        if let Some(text) = self.env.get(&env) {
            return Some(typed(Place::Env(env), text));
        }
        let (place, node) = self.file.get(keys::GONE)?;
        Some(Given {
            place: place.clone(),
            raw: Raw::Node(node.clone()),
        })
    }

    /// A variable of the environment that is not one of ours.
    pub(super) fn foreign_env(&self, name: &str) -> Option<&'a str> {
        self.env.get(name).map(String::as_str)
    }

    /// The variables that are there.
    pub(super) fn env_names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.env.keys().map(String::as_str)
    }

    /// Whether the variable was set by Kubernetes, not by an operator.
    pub(super) fn is_service_link(&self, key: &Key) -> bool {
        self.env
            .get(&key.env())
            .is_some_and(|text| is_service_link(key, text))
    }

    pub(super) fn mistake(&mut self, place: &Place, what: impl std::fmt::Display) {
        self.report.mistake(place, what);
    }
}

fn typed(place: Place, text: &str) -> Given {
    Given {
        place,
        raw: Raw::Typed(text.trim().to_owned()),
    }
}

/// Kubernetes gives every pod `VLLM_PINGORA_PORT=tcp://10.0.0.7:8001` where a Service is called
/// `vllm-pingora`. Nobody typed that.
fn is_service_link(key: &Key, text: &str) -> bool {
    key.name == keys::PORT.name && text.contains("://")
}

/// What to say of a key at the top of the file that is none.
fn unknown_key(given: &str, known: &[&'static str]) -> String {
    let name = given.replace('-', "_");
    for key in KEYS {
        if let Source::Typed(long) = key.from
            && key.name == name
        {
            return format!(
                "not a key of the file; it is the flag --{}, and {long} here",
                key.flag()
            );
        }
    }
    let hint = suggest::hint(given, known.iter().copied());
    if hint.is_empty() {
        "unknown key; --help lists the settings".into()
    } else {
        format!("unknown key{hint}")
    }
}

/// What to say of an unknown key where only a few are known.
pub(super) fn unknown_field(given: &str, known: &[&'static str]) -> String {
    let hint = suggest::hint(given, known.iter().copied());
    format!("unknown key{hint}; accepted: {}", known.join(", "))
}

/// The entries of a mapping by their names, with every unknown or repeated one reported.
pub(super) fn fields(
    report: &mut Report<'_>,
    place: &Place,
    entries: &[(Node, Node)],
    known: &[&'static str],
    unknown: fn(&str, &[&'static str]) -> String,
) -> BTreeMap<&'static str, Field> {
    let mut found = BTreeMap::new();
    for (index, (key, value)) in entries.iter().enumerate() {
        let name = key.shown();
        let place = place.entry(index, &name);
        let Some(known_name) = known.iter().find(|known| **known == name) else {
            report.mistake(&place, unknown(&name, known));
            continue;
        };
        if found.contains_key(known_name) {
            report.mistake(&place, "given twice");
        } else {
            found.insert(*known_name, (place, value.clone()));
        }
    }
    found
}
