//! What is traced: our own settings, else the variables every OpenTelemetry program reads.
//!
//! Of those, the ones that are read here have a setting of ours, or concern one; headers,
//! compression and attributes are read by the library.

use std::time::Duration;

use super::collector_url::{CollectorUrl, TRACES_PATH};
use super::keys::{OTEL_ENDPOINT, OTEL_PROTOCOL, OTEL_SAMPLING_RATIO, OTEL_SERVICE_NAME};
use super::reader::Reader;
use super::report::Place;
use crate::traces::{Options, Protocol, Ratio};

/// Longest time for a batch of spans, as everywhere, in milliseconds.
const TIMEOUT_MS: u64 = 10_000;
/// Address of the collector of traces.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// Address of the collector of everything, below which each kind has a path of its own.
const BASE_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// An address that someone gave.
struct Found {
    place: Place,
    text: String,
    /// It is that of traces, metrics and logs together.
    is_base: bool,
}

/// Reads what is traced. Without an endpoint nothing is, and then no variable of the environment is
/// looked at any further.
pub(super) fn read(reader: &mut Reader<'_>) -> Options {
    let found = found(reader);
    let is_traced = found.is_some();
    let protocol = protocol(reader, is_traced);
    Options {
        endpoint: found.and_then(|found| endpoint(reader, found, protocol)),
        protocol,
        service_name: service_name(reader),
        ratio: Ratio::new(reader.share(&OTEL_SAMPLING_RATIO)).unwrap_or(Ratio::ALL),
        timeout: timeout(reader, is_traced),
    }
}

fn found(reader: &mut Reader<'_>) -> Option<Found> {
    if let Some((place, text)) = reader.text(&OTEL_ENDPOINT) {
        return Some(Found {
            place,
            text,
            is_base: false,
        });
    }
    let says = |name: &str, word: &str| {
        standard(reader, &[name]).is_some_and(|(_, text)| text.eq_ignore_ascii_case(word))
    };
    if says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    let (name, text) = standard(reader, &[TRACES_ENDPOINT, BASE_ENDPOINT])?;
    Some(Found {
        place: Place::Env(name.to_owned()),
        text: text.to_owned(),
        is_base: name == BASE_ENDPOINT,
    })
}

fn endpoint(reader: &mut Reader<'_>, found: Found, protocol: Protocol) -> Option<CollectorUrl> {
    let text = if found.is_base && protocol == Protocol::Http {
        format!("{}{TRACES_PATH}", found.text.trim_end_matches('/'))
    } else {
        found.text
    };
    match CollectorUrl::parse(&text, protocol) {
        Ok(url) => Some(url),
        Err(why) => {
            reader.mistake(&found.place, why);
            None
        }
    }
}

fn protocol(reader: &mut Reader<'_>, is_traced: bool) -> Protocol {
    let is_given = reader.given(&OTEL_PROTOCOL).place.is_given();
    let word = reader.choice(&OTEL_PROTOCOL);
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
        "OTEL_EXPORTER_OTLP_PROTOCOL",
    ];
    let standard = standard(reader, &names).filter(|_| is_traced && !is_given);
    match standard {
        None if word == Protocol::Http.word() => Protocol::Http,
        None | Some((_, "grpc")) => Protocol::Grpc,
        Some((_, "http/protobuf")) => Protocol::Http,
        Some((name, other)) => {
            let what = format!("{other} is not accepted; accepted: grpc, http/protobuf");
            reader.mistake(&Place::Env(name.to_owned()), what);
            Protocol::Grpc
        }
    }
}

fn service_name(reader: &mut Reader<'_>) -> String {
    let given = reader.text(&OTEL_SERVICE_NAME);
    let standard = standard(reader, &["OTEL_SERVICE_NAME"]);
    match (given, standard) {
        (Some((place, name)), _) if place.is_given() => name,
        (_, Some((_, name))) => name.to_owned(),
        (given, None) => given.map_or_else(String::new, |(_, name)| name),
    }
}

fn timeout(reader: &mut Reader<'_>, is_traced: bool) -> Duration {
    let names = [
        "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
        "OTEL_EXPORTER_OTLP_TIMEOUT",
    ];
    let millis = match standard(reader, &names).filter(|_| is_traced) {
        None => TIMEOUT_MS,
        Some((name, text)) => text.parse().unwrap_or_else(|_| {
            let what = format!("{text} is not a whole number");
            reader.mistake(&Place::Env(name.to_owned()), what);
            TIMEOUT_MS
        }),
    };
    Duration::from_millis(millis)
}

/// The first of these variables that is set, and to what. An empty one is not.
fn standard<'a, 'n>(reader: &Reader<'a>, names: &[&'n str]) -> Option<(&'n str, &'a str)> {
    names.iter().find_map(|name| {
        let text = reader.foreign_env(name)?.trim();
        (!text.is_empty()).then_some((*name, text))
    })
}
