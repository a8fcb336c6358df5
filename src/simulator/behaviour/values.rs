//! The values a behaviour is written with: what is in range and well-formed, or nothing.

use serde_json::Value;

use crate::simulator::fault::{self, Fault};

pub(super) fn number(value: &Value, least: f64, most: f64) -> Option<f64> {
    value
        .as_f64()
        .filter(|number| (least..=most).contains(number))
}

pub(super) fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| usize::try_from(count).ok())
}

/// A word, or a number taken as one.
pub(super) fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn is_header_text(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// A script as one text with commas or as an array; an empty one or `null` means none.
pub(super) fn script(value: &Value) -> Option<Vec<Option<Fault>>> {
    let words: Vec<String> = match value {
        Value::Null => return Some(Vec::new()),
        Value::String(text) if text.trim().is_empty() => return Some(Vec::new()),
        Value::String(text) => text.split(',').map(str::to_owned).collect(),
        Value::Number(_) => vec![word(value)?],
        Value::Array(items) => items.iter().map(word).collect::<Option<_>>()?,
        _ => return None,
    };
    words.iter().map(|word| fault::step(word).ok()).collect()
}

/// A length: one number, or `least-most`.
pub(super) fn length(value: &Value) -> Option<(u32, u32)> {
    let text = word(value)?;
    let (least, most) = text.split_once('-').unwrap_or((&text, &text));
    let (least, most) = (least.trim().parse().ok()?, most.trim().parse().ok()?);
    (1 <= least && least <= most && most <= 1_000_000).then_some((least, most))
}
