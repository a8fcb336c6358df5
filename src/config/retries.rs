//! The settings of the retry policy, and the setting it replaced.

use super::keys::{
    BACKOFF_MULTIPLIER, ENABLE_RETRIES, INITIAL_BACKOFF_MS, JITTER_FACTOR, Key, MAX_BACKOFF_MS,
    MAX_RETRIES,
};
use super::reader::{Given, Number, Raw, Reader};
use super::report::Place;
use crate::retry::{RetryConfig, RetryConfigError, RetryValues};

const POLICY: [&Key; 5] = [
    &MAX_RETRIES,
    &INITIAL_BACKOFF_MS,
    &MAX_BACKOFF_MS,
    &BACKOFF_MULTIPLIER,
    &JITTER_FACTOR,
];

/// Reads the policy; `None` is off.
///
/// While retries are off, a number may be any number: a template shared by many deployments must
/// neither change behaviour nor block start-up. What is no number at all is a mistake either way.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<RetryConfig> {
    let enabled = reader.switch(&ENABLE_RETRIES);
    let mistakes = reader.report.count();
    let max_retries = number(reader, &MAX_RETRIES, is_finite);
    let initial = number(reader, &INITIAL_BACKOFF_MS, is_finite);
    let longest = number(reader, &MAX_BACKOFF_MS, is_finite);
    let multiplier = number(reader, &BACKOFF_MULTIPLIER, |_| true);
    let jitter = number(reader, &JITTER_FACTOR, |_| true);
    if !enabled {
        warn_of_unused(reader);
        return None;
    }
    // After a mistake, a stand-in that brings about no other one.
    let values = RetryValues {
        max_retries: whole(
            reader,
            &MAX_RETRIES,
            max_retries,
            "between 2 and 4294967295",
        )
        .unwrap_or(2),
        initial_backoff_ms: whole(reader, &INITIAL_BACKOFF_MS, initial, "at least 1").unwrap_or(1),
        max_backoff_ms: whole(
            reader,
            &MAX_BACKOFF_MS,
            longest,
            "at least initial_backoff_ms",
        )
        .unwrap_or(u64::MAX),
        backoff_multiplier: multiplier.map_or(1.0, as_f64),
        jitter_factor: jitter.map_or(0.0, as_f64),
    };
    match RetryConfig::try_new(values) {
        Ok(config) => (reader.report.count() == mistakes).then_some(config),
        Err(errors) => {
            for error in errors {
                report(reader, &error);
            }
            None
        }
    }
}

/// Refuses the setting of the production-stack router that counts reroutes.
pub(super) fn refuse_reroute_attempts(reader: &mut Reader<'_>) {
    let Some(Given { place, raw }) = reader.gone() else {
        return;
    };
    let reroutes = match raw.number() {
        Some(Number::Whole(count)) => {
            u32::try_from(count).unwrap_or(if count < 0 { 0 } else { u32::MAX })
        }
        _ => 0,
    };
    let attempts = reroutes.saturating_add(1).max(2);
    let what = format!(
        "{} was given, but this setting is gone; give --enable-retries --max-retries {attempts}, which counts the first attempt, too",
        raw.shown(),
    );
    reader.mistake(&place, what);
}

fn number(reader: &mut Reader<'_>, key: &Key, accepts: fn(Number) -> bool) -> Option<Number> {
    let given = reader.given(key);
    let number = given.raw.number().filter(|number| accepts(*number));
    if number.is_none() {
        let is_real = matches!(key.kind, super::keys::Kind::Number);
        reader.not_a(
            &given,
            if is_real {
                "a number"
            } else {
                "a whole number"
            },
        );
    }
    number
}

fn is_finite(number: Number) -> bool {
    !matches!(number, Number::Fraction(fraction) if !fraction.is_finite())
}

fn whole(reader: &mut Reader<'_>, key: &Key, number: Option<Number>, range: &str) -> Option<u64> {
    let given = reader.given(key);
    match number? {
        Number::Whole(number) => {
            if let Ok(number) = u64::try_from(number) {
                return Some(number);
            }
            let what = format!("{number} is not accepted; it must be a whole number, {range}");
            reader.mistake(&given.place, what);
        }
        Number::Fraction(_) => reader.not_a(&given, "a whole number"),
    }
    None
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a multiplier beyond 2^53 is none the worse for it"
)]
fn as_f64(number: Number) -> f64 {
    match number {
        Number::Whole(number) => number as f64,
        Number::Fraction(number) => number,
    }
}

/// Puts an error of the policy where the value was given.
fn report(reader: &mut Reader<'_>, error: &RetryConfigError) {
    let Some(key) = POLICY.into_iter().find(|key| key.name == error.key()) else {
        return;
    };
    let given = reader.given(key);
    if let (RetryConfigError::Reversed { first, longest }, false) = (error, given.place.is_given())
    {
        // The default cannot be at fault; what was given against it is.
        let place = reader.given(&INITIAL_BACKOFF_MS).place;
        let what = format!(
            "{first} is longer than max_backoff_ms ({longest}, the default); raise that, too"
        );
        return reader.mistake(&place, what);
    }
    let text = error.to_string();
    let what = text
        .strip_prefix(key.name)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(&text);
    reader.mistake(&given.place, what);
}

/// Warns of settings that were meant to do something. A file that spells out a default was not.
fn warn_of_unused(reader: &mut Reader<'_>) {
    let is_meant = |given: &Given, key: &Key| match (&given.place, &given.raw) {
        (Place::Nowhere(_), _) => false,
        (Place::File { .. }, Raw::Node(_)) => {
            let default = Raw::Typed(key.default.into()).number().map(as_f64);
            given.raw.number().map(as_f64) != default
        }
        _ => true,
    };
    let unused: Vec<_> = POLICY
        .into_iter()
        .filter(|key| is_meant(&reader.given(key), key))
        .map(|key| key.name)
        .collect();
    if !unused.is_empty() {
        let what = format!(
            "retries are off, so {} will be ignored; --enable-retries turns them on",
            unused.join(", ")
        );
        reader.report.warnings.push(what);
    }
}
