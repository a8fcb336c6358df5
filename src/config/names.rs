//! Reading lists of names, from the command line and from the file.

use super::reader::{Given, Raw, Reader};
use super::report::Place;
use super::yaml::Node;

/// The parts of a list separated by commas, blanks around them dropped. An empty part is a mistake.
pub(super) fn comma_list(reader: &mut Reader<'_>, given: &Given) -> Vec<String> {
    let text = given.raw.text().unwrap_or_default();
    let parts: Vec<String> = text.split(',').map(|part| part.trim().to_owned()).collect();
    if text.is_empty() {
        reader.mistake(&given.place, "empty text is not accepted");
    } else {
        for (index, _) in parts.iter().enumerate().filter(|(_, part)| part.is_empty()) {
            let what = format!("part {} of {} is empty", index + 1, parts.len());
            reader.mistake(&given.place, what);
        }
    }
    parts
}

/// The items of a list of the file, each with its place. `null` is an empty list.
pub(super) fn list(reader: &mut Reader<'_>, given: &Given, of: &str) -> Vec<(Place, Node)> {
    match &given.raw {
        Raw::Node(Node::List(items)) => {
            let items = items.iter().enumerate();
            items
                .map(|(index, item)| (given.place.item(index), item.clone()))
                .collect()
        }
        Raw::Node(Node::Null) | Raw::Typed(_) => Vec::new(),
        Raw::Node(other) => {
            reader.mistake(
                &given.place,
                format!("{} is not a list of {of}", other.kind()),
            );
            Vec::new()
        }
    }
}

/// The texts of a list, given on the command line or in the file, each with its place.
pub(super) fn texts(reader: &mut Reader<'_>, given: &Given, of: &str) -> Vec<(Place, String)> {
    if let Raw::Typed(_) = given.raw {
        let parts = comma_list(reader, given).into_iter();
        return parts
            .filter(|part| !part.is_empty())
            .map(|part| (given.place.clone(), part))
            .collect();
    }
    let mut texts = Vec::new();
    for (place, item) in list(reader, given, of) {
        match item {
            Node::Text(text) => texts.push((place, text)),
            other => reader.mistake(&place, format!("{} is not text", other.shown())),
        }
    }
    texts
}

/// The name of a model, checked. Blanks within are left alone: they are the engine's business.
pub(super) fn model(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Option<String> {
    let Node::Text(name) = node else {
        let hint = if matches!(node, Node::Null) {
            ""
        } else {
            "; put it in quotes"
        };
        reader.mistake(
            place,
            format!("{} is not the name of a model{hint}", node.shown()),
        );
        return None;
    };
    model_text(reader, place, name)
}

/// The same for text that is known to be text.
pub(super) fn model_text(reader: &mut Reader<'_>, place: &Place, name: &str) -> Option<String> {
    if name.is_empty() || name.trim() != name || name.contains(char::is_control) {
        let shown = super::report::shown(name);
        reader.mistake(place, format!("{shown} is not the name of a model"));
        return None;
    }
    Some(name.to_owned())
}
