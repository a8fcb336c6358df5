//! The keys clients present, and the key sent to engines.
//!
//! No message here shows what was given, only where: it is, or was meant to be, a secret.

use std::fs;

use super::keys::{API_KEY, API_KEY_FILE, API_KEYS, ENGINE_API_KEY, Key, PIN_API_KEYS};
use super::names;
use super::reader::{Given, Raw, Reader};
use super::report::Place;
use super::secret::Secret;
use super::yaml::Node;

/// What vLLM itself reads its key from.
const VLLM_API_KEY: &str = "VLLM_API_KEY";

/// The keys of which clients must present one: `--api-key`, or else `api_keys` of the file, and
/// those of `api_key_file`.
pub(super) fn of_clients(reader: &mut Reader<'_>) -> Vec<Secret> {
    let short = reader.given(&API_KEY);
    let mut keys = if let Raw::Typed(text) = &short.raw {
        let parts = text.split(',').map(str::trim);
        parts
            .filter_map(|part| secret(reader, &short.place, part))
            .collect()
    } else {
        listed(reader, &API_KEYS)
    };
    if let Some((place, path)) = reader.text(&API_KEY_FILE) {
        keys.extend(from_file(reader, &place, &path));
    }
    keys
}

/// The keys of clients that may choose the engine.
pub(super) fn of_pinning_clients(reader: &mut Reader<'_>) -> Vec<Secret> {
    listed(reader, &PIN_API_KEYS)
}

fn listed(reader: &mut Reader<'_>, key: &Key) -> Vec<Secret> {
    let given = reader.given(key);
    if given.raw.is_null() {
        // A template that was never filled in must not open the door.
        reader.mistake(
            &given.place,
            "has no value; give a list of keys, or [] to ask for none",
        );
        return Vec::new();
    }
    let items = names::list(reader, &given, "keys");
    items
        .iter()
        .filter_map(|(place, item)| secret_node(reader, place, item))
        .collect()
}

fn from_file(reader: &mut Reader<'_>, place: &Place, path: &str) -> Vec<Secret> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            reader.mistake(place, format!("cannot read {path}: {error}"));
            return Vec::new();
        }
    };
    let mut keys = Vec::new();
    let lines = text.lines().map(str::trim).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        match Secret::try_new(line) {
            Ok(key) => keys.push(key),
            Err(error) => reader.mistake(place, format!("{path}, line {}: {error}", index + 1)),
        }
    }
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
    {
        reader.mistake(place, format!("{path} holds no key"));
    }
    keys
}

/// The key sent to engines.
pub(super) fn of_engines(reader: &mut Reader<'_>) -> Option<Secret> {
    let Given { place, raw } = reader.given(&ENGINE_API_KEY);
    match &raw {
        Raw::Typed(text) => secret(reader, &place, text),
        Raw::Node(Node::Null) => {
            let text = reader
                .foreign_env(VLLM_API_KEY)
                .filter(|text| !text.is_empty())?;
            secret(reader, &Place::Env(VLLM_API_KEY.into()), text)
        }
        Raw::Node(node) => secret_node(reader, &place, node),
    }
}

fn secret_node(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Option<Secret> {
    let Node::Text(text) = node else {
        reader.mistake(
            place,
            format!(
                "{} is not a key; a key is text (put it in quotes)",
                node.kind()
            ),
        );
        return None;
    };
    secret(reader, place, text)
}

fn secret(reader: &mut Reader<'_>, place: &Place, text: &str) -> Option<Secret> {
    Secret::try_new(text)
        .map_err(|error| reader.mistake(place, error))
        .ok()
}
