//! `extra_routes`: what is forwarded beyond vLLM's inference and read routes.

use super::keys::EXTRA_ROUTES;
use super::names;
use super::reader::{Field, Reader, fields, unknown_field};
use super::report::{Place, shown};
use super::settings::ExtraRoute;
use super::yaml::Node;
use crate::request::route::ModelSource;
use crate::retry::Resend;

const FIELDS: &[&str] = &["method", "path", "model", "resend"];
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Reads the routes.
pub(super) fn read(reader: &mut Reader<'_>) -> Vec<ExtraRoute> {
    let given = reader.given(&EXTRA_ROUTES);
    let mut routes: Vec<ExtraRoute> = Vec::new();
    for (place, item) in names::list(reader, &given, "routes") {
        let Some(route) = entry(reader, &place, &item) else {
            continue;
        };
        if routes
            .iter()
            .any(|other| other.method == route.method && other.path == route.path)
        {
            let what = format!("{} {} is listed twice", route.method, route.path);
            reader.mistake(&place, what);
        }
        routes.push(route);
    }
    routes
}

fn entry(reader: &mut Reader<'_>, place: &Place, item: &Node) -> Option<ExtraRoute> {
    let Node::Map(entries) = item else {
        let what = format!(
            "{} is not a route; give method, path, model and resend",
            item.kind()
        );
        reader.mistake(place, what);
        return None;
    };
    let fields = fields(&mut reader.report, place, entries, FIELDS, unknown_field);
    let method = word(reader, fields.get("method"), METHODS, "POST");
    let sources = ModelSource::WORDS.map(|(word, _)| word);
    let model = word(
        reader,
        fields.get("model"),
        &sources,
        ModelSource::Any.word(),
    );
    let resend = word(
        reader,
        fields.get("resend"),
        &["connect_only", "always"],
        "connect_only",
    );
    let Some((place, path)) = fields.get("path") else {
        reader.mistake(place, "has no path; give one such as /v1/load_lora_adapter");
        return None;
    };
    let model = model?;
    let (_, model) = ModelSource::WORDS
        .into_iter()
        .find(|(word, _)| *word == model)?;
    Some(ExtraRoute {
        method: method?.parse().ok()?,
        path: checked_path(reader, place, path)?,
        model,
        resend: if resend? == "always" {
            Resend::Always
        } else {
            Resend::ConnectOnly
        },
    })
}

/// One of a few words, compared exactly.
fn word(
    reader: &mut Reader<'_>,
    field: Option<&Field>,
    words: &[&'static str],
    default: &'static str,
) -> Option<&'static str> {
    let Some((place, node)) = field else {
        return Some(default);
    };
    let word = words
        .iter()
        .find(|word| matches!(node, Node::Text(text) if text == *word));
    if word.is_none() {
        reader.mistake(
            place,
            format!(
                "{} is not accepted; accepted: {}",
                node.shown(),
                words.join(", ")
            ),
        );
    }
    word.copied()
}

fn checked_path(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Option<String> {
    let what = match node {
        Node::Text(path) => match path_mistake(path) {
            None => return Some(path.clone()),
            Some(why) => format!("{} is not accepted; {why}", shown(path)),
        },
        other => format!("{} is not a path", other.kind()),
    };
    reader.mistake(place, what);
    None
}

/// A path is compared byte by byte, so it may have one spelling only.
fn path_mistake(path: &str) -> Option<&'static str> {
    if !path.starts_with('/') {
        Some("it must start with /")
    } else if path.ends_with('/') {
        Some("it may not end with /")
    } else if path.contains("//")
        || path.contains("..")
        || path.contains("/./")
        || path.ends_with("/.")
    {
        Some("it may not hold //, . or ..")
    } else if path.contains(['%', '?', '#', '\\']) {
        Some("it may not hold %, ?, # or \\")
    } else if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        Some("it may hold visible ASCII characters only")
    } else {
        None
    }
}
