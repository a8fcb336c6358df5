//! The engines, from `engines` of the file or from `--static-backends` and `--static-models`.
//!
//! The flags win as a whole: engines are never made up of both.

use std::collections::BTreeSet;

use super::engine_url::EngineUrl;
use super::keys::{ENGINES, STATIC_BACKENDS, STATIC_MODELS};
use super::names;
use super::reader::{Given, Reader, fields, unknown_field};
use super::report::Place;
use super::settings::EngineSpec;
use super::yaml::Node;

/// Reads the engines. `None` if something is wrong with them.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Vec<EngineSpec>> {
    let mistakes = reader.report.count();
    let backends = reader.given(&STATIC_BACKENDS);
    let models = reader.given(&STATIC_MODELS);
    let engines = if backends.place.is_given() {
        typed(reader, &backends, &models)
    } else {
        if models.place.is_given() {
            reader.mistake(
                &models.place,
                "given without --static-backends, whose models it names",
            );
        }
        from_file(reader)
    };
    refuse_twins(reader, &engines);
    let engines = engines.into_iter().map(|(_, engine)| engine).collect();
    (reader.report.count() == mistakes).then_some(engines)
}

fn typed(reader: &mut Reader<'_>, backends: &Given, models: &Given) -> Vec<(Place, EngineSpec)> {
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
    let mut models_of = models_of.into_iter();
    let mut engines = Vec::new();
    for url in urls.iter().filter(|url| !url.is_empty()) {
        let models = models_of.next().unwrap_or_default();
        match url.parse() {
            Ok(url) => engines.push((backends.place.clone(), EngineSpec { url, models })),
            Err(error) => reader.mistake(&backends.place, error),
        }
    }
    engines
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
    let items = names::list(reader, &given, "engines");
    if items.is_empty() && reader.report.count() == mistakes && !reader.file_is_lost {
        let what =
            "none given; list them under engines in the file, or give --static-backends URL,URL";
        reader.mistake(&given.place, what);
    }
    items
        .iter()
        .filter_map(|(place, item)| entry(reader, place, item))
        .collect()
}

fn entry(reader: &mut Reader<'_>, place: &Place, item: &Node) -> Option<(Place, EngineSpec)> {
    let Node::Map(entries) = item else {
        reader.mistake(
            place,
            format!("{} is not an engine; give url and models", item.kind()),
        );
        return None;
    };
    let fields = fields(
        &mut reader.report,
        place,
        entries,
        &["url", "models"],
        unknown_field,
    );
    let models = fields
        .get("models")
        .map(|(place, node)| models_in_file(reader, place, node));
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
                url,
                models: models.unwrap_or_default(),
            },
        )),
        Err(error) => {
            reader.mistake(place, error);
            None
        }
    }
}

fn models_in_file(reader: &mut Reader<'_>, place: &Place, node: &Node) -> Vec<String> {
    let given = Given {
        place: place.clone(),
        raw: super::reader::Raw::Node(node.clone()),
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
    let mut seen = BTreeSet::new();
    for (place, engine) in engines {
        if !seen.insert(&engine.url) {
            reader.mistake(place, format!("the engine {} is listed twice", engine.url));
        }
    }
}
