//! The engines, from `engines` of the file or from `--static-backends` and `--static-models`.
//!
//! The flags win as a whole: engines are never made up of both.

use std::collections::{BTreeMap, BTreeSet};

use std::path::Path;

use super::Inputs;
use super::engine_url::EngineUrl;
use super::keys::{ENGINES, STATIC_BACKENDS, STATIC_MODEL_TYPES, STATIC_MODELS, STATIC_WEIGHTS};
use super::names;
use super::reader::{Given, Number, Raw, Reader, fields, unknown_field};
use super::report::{ConfigErrors, Place};
use super::settings::EngineSpec;
use super::yaml::{self, Node};
use crate::engines::ModelType;

const FIELDS: &[&str] = &["url", "models", "weight", "id", "type"];
/// The largest weight.
const MAX_WEIGHT: u32 = 1_000_000;
/// The longest id.
const MAX_ID: usize = 64;

/// Reads the engines. `None` if something is wrong with them.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Vec<EngineSpec>> {
    let mistakes = reader.report.count();
    let backends = reader.given(&STATIC_BACKENDS);
    let (models, weights) = (reader.given(&STATIC_MODELS), reader.given(&STATIC_WEIGHTS));
    let types = reader.given(&STATIC_MODEL_TYPES);
    let engines = if backends.place.is_given() {
        typed(reader, &backends, [&models, &weights, &types])
    } else {
        for (given, what) in [
            (&models, "whose models it names"),
            (&weights, "whose engines it weighs"),
            (&types, "of whose models it tells the types"),
        ] {
            if given.place.is_given() {
                let what = format!("given without --static-backends, {what}");
                reader.mistake(&given.place, what);
            }
        }
        from_file(reader)
    };
    refuse_twins(reader, &engines);
    let engines = engines.into_iter().map(|(_, engine)| engine).collect();
    (reader.report.count() == mistakes).then_some(engines)
}

fn typed(
    reader: &mut Reader<'_>,
    backends: &Given,
    [models, weights, types]: [&Given; 3],
) -> Vec<(Place, EngineSpec)> {
    let urls = names::comma_list(reader, backends);
    let models_of = if models.place.is_given() {
        let lists = names::comma_list(reader, models);
        if lists.len() != urls.len() {
            let what = format!(
                "{} for {}; give one per engine, in the same order, several for one engine separated by |",
                counted(lists.len(), "model"),
                counted(urls.len(), "engine"),
            );
            reader.mistake(&models.place, what);
        }
        lists
            .iter()
            .map(|list| models_of_one(reader, &models.place, list))
            .collect()
    } else {
        Vec::new()
    };
    let weights = typed_weights(reader, weights, urls.len());
    let types = typed_types(reader, types, urls.len());
    let mut models_of = models_of.into_iter();
    let (mut weights, mut types) = (weights.into_iter(), types.into_iter());
    let mut engines = Vec::new();
    for url in urls.iter().filter(|url| !url.is_empty()) {
        let models = models_of.next().unwrap_or_default();
        let weight = weights.next().unwrap_or(1);
        let model_type = types.next().flatten();
        match url.parse() {
            Ok(url) => {
                let engine = EngineSpec::new(url, models);
                let engine = EngineSpec {
                    weight,
                    model_type,
                    ..engine
                };
                engines.push((backends.place.clone(), engine));
            }
            Err(error) => reader.mistake(&backends.place, error),
        }
    }
    engines
}

fn typed_weights(reader: &mut Reader<'_>, given: &Given, engines: usize) -> Vec<u32> {
    let parts = one_per_engine(reader, given, engines, "weight");
    let weight = |part: &String| {
        let number = part.parse::<i128>().ok().map(Number::Whole);
        weight(reader, &given.place, number, part)
    };
    parts.iter().map(weight).collect()
}

fn typed_types(reader: &mut Reader<'_>, given: &Given, engines: usize) -> Vec<Option<ModelType>> {
    let parts = one_per_engine(reader, given, engines, "type");
    let model_type = |part: &String| model_type(reader, &given.place, part, part);
    parts.iter().map(model_type).collect()
}

/// The parts of a list that has one for each engine; none where it is not given.
fn one_per_engine(
    reader: &mut Reader<'_>,
    given: &Given,
    engines: usize,
    noun: &str,
) -> Vec<String> {
    if !given.place.is_given() {
        return Vec::new();
    }
    let parts = names::comma_list(reader, given);
    if parts.len() != engines {
        let what = format!(
            "{} for {}; give one per engine, in the same order",
            counted(parts.len(), noun),
            counted(engines, "engine"),
        );
        reader.mistake(&given.place, what);
    }
    parts
}

/// What models are for; `None` after a mistake.
fn model_type(
    reader: &mut Reader<'_>,
    place: &Place,
    word: &str,
    shown: &str,
) -> Option<ModelType> {
    let known = ModelType::named(word);
    // An empty part of a list is reported as such.
    if known.is_none() && !shown.is_empty() {
        let words = ModelType::WORDS.map(|(word, _)| word).join(", ");
        let what = format!("{shown} is not a type of models; it must be one of {words}");
        reader.mistake(place, what);
    }
    known
}

/// A weight within its bounds; 1 after a mistake.
fn weight(reader: &mut Reader<'_>, place: &Place, number: Option<Number>, shown: &str) -> u32 {
    if let Some(Number::Whole(number)) = number
        && let Ok(weight @ 1..=MAX_WEIGHT) = u32::try_from(number)
    {
        return weight;
    }
    let what =
        format!("{shown} is not a weight; it must be a whole number between 1 and {MAX_WEIGHT}");
    reader.mistake(place, what);
    1
}

fn models_of_one(reader: &mut Reader<'_>, place: &Place, list: &str) -> Vec<String> {
    if list.is_empty() {
        return Vec::new(); // already reported as an empty part
    }
    let mut models = Vec::new();
    for name in list.split('|').map(str::trim) {
        let name = names::model_text(reader, place, name);
        add_model(reader, place, name, &mut models);
    }
    models
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

fn from_file(reader: &mut Reader<'_>) -> Vec<(Place, EngineSpec)> {
    let given = reader.given(&ENGINES);
    let mistakes = reader.report.count();
    let engines = listed(reader, &given);
    if engines.is_empty() && reader.report.count() == mistakes && !reader.file_is_lost {
        let what =
            "none given; list them under engines in the file, or give --static-backends URL,URL";
        reader.mistake(&given.place, what);
    }
    engines
}

fn listed(reader: &mut Reader<'_>, given: &Given) -> Vec<(Place, EngineSpec)> {
    let items = names::list(reader, given, "engines");
    items
        .iter()
        .filter_map(|(place, item)| entry(reader, place, item))
        .collect()
}

/// Reads a list of engines that stands alone in a file: YAML or JSON, of the form that `engines`
/// has in the configuration, or `[]`.
///
/// # Errors
/// Every mistake, one line each.
pub fn engine_list(path: &Path, text: &str) -> Result<Vec<EngineSpec>, ConfigErrors> {
    let nothing = BTreeMap::new();
    let mut reader = Reader::of(Inputs {
        flags: &nothing,
        env: &nothing,
        file: Some((path, text)),
    });
    let engines = match yaml::parse(text) {
        // A file that is being written, or was lost, must not be taken for the end of all engines.
        Ok(Node::Null) => {
            reader.mistake(&Place::top(), "holds nothing; a list without engines is []");
            Vec::new()
        }
        Ok(list) => {
            let given = Given {
                place: Place::top(),
                raw: Raw::Node(list),
            };
            listed(&mut reader, &given)
        }
        Err(error) => {
            reader.report.not_yaml(error.line, &error.why);
            Vec::new()
        }
    };
    refuse_twins(&mut reader, &engines);
    let engines = engines.into_iter().map(|(_, engine)| engine).collect();
    reader.report.finish(engines).map(|(engines, _)| engines)
}

fn entry(reader: &mut Reader<'_>, place: &Place, item: &Node) -> Option<(Place, EngineSpec)> {
    let Node::Map(entries) = item else {
        reader.mistake(
            place,
            format!("{} is not an engine; give url and models", item.kind()),
        );
        return None;
    };
    let fields = fields(&mut reader.report, place, entries, FIELDS, unknown_field);
    let models = fields
        .get("models")
        .map(|(place, node)| models_in_file(reader, place, node));
    let weight = fields.get("weight").map(|(place, node)| {
        let number = Raw::Node(node.clone()).number();
        weight(reader, place, number, &node.shown())
    });
    let id = fields
        .get("id")
        .and_then(|(place, node)| id(reader, place, node));
    let model_type = fields.get("type").and_then(|(place, node)| {
        let word = Raw::Node(node.clone());
        model_type(
            reader,
            place,
            word.text().unwrap_or_default(),
            &node.shown(),
        )
    });
    let Some((place, url)) = fields.get("url") else {
        reader.mistake(place, "has no url; give one such as http://127.0.0.1:9001");
        return None;
    };
    let Node::Text(text) = url else {
        reader.mistake(place, format!("{} is not the url of an engine", url.kind()));
        return None;
    };
    match text.parse::<EngineUrl>() {
        Ok(url) => Some((
            place.clone(),
            EngineSpec {
                weight: weight.unwrap_or(1),
                id,
                model_type,
                ..EngineSpec::new(url, models.unwrap_or_default())
            },
        )),
        Err(error) => {
            reader.mistake(place, error);
            None
        }
    }
}

/// A name that can stand in a query, a header and a log line.
fn id(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Option<String> {
    let fits = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=MAX_ID).contains(&text.len()) && text.bytes().all(plain)
    };
    match node {
        Node::Text(text) if fits(text) => Some(text.clone()),
        node => {
            let what = format!(
                "{} is not the id of an engine; it must be text of 1 to {MAX_ID} letters, digits, dashes, dots and underscores",
                node.shown()
            );
            reader.mistake(place, what);
            None
        }
    }
}

fn models_in_file(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Vec<String> {
    let given = Given {
        place: place.clone(),
        raw: Raw::Node(node.clone()),
    };
    let mut models = Vec::new();
    for (place, item) in names::list(reader, &given, "models") {
        let name = names::model(reader, &place, &item);
        add_model(reader, &place, name, &mut models);
    }
    models
}

fn add_model(
    reader: &mut Reader<'_>,
    place: &Place,
    name: Option<String>,
    models: &mut Vec<String>,
) {
    match name {
        Some(name) if models.contains(&name) => {
            reader.mistake(place, format!("{name} is listed twice for this engine"));
        }
        Some(name) => models.push(name),
        None => {}
    }
}

fn refuse_twins(reader: &mut Reader<'_>, engines: &[(Place, EngineSpec)]) {
    let (mut seen, mut ids) = (BTreeSet::new(), BTreeSet::new());
    for (place, engine) in engines {
        if !seen.insert(&engine.url) {
            reader.mistake(place, format!("the engine {} is listed twice", engine.url));
        }
        if let Some(id) = &engine.id
            && !ids.insert(id)
        {
            reader.mistake(place, format!("the id {id} is given to two engines"));
        }
    }
}
