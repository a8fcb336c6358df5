//! Other names for models, from `aliases` of the file or from `--static-aliases`.
//!
//! On the command line an alias ends at the first colon: `gpt-4o:llama3:8b` makes `gpt-4o` stand
//! for `llama3:8b`. Names of models do hold colons; an alias that must hold one goes in the file.

use std::collections::BTreeMap;

use super::keys::{ALIASES, STATIC_ALIASES};
use super::names;
use super::reader::{Given, Raw, Reader};
use super::report::{Place, shown};
use super::settings::EngineSpec;
use super::suggest;
use super::yaml::Node;

struct Alias {
    place: Place,
    name: String,
    model: String,
}

/// Reads the aliases and compares them with the engines, where these are known to be right.
pub(super) fn read(
    reader: &mut Reader<'_>,
    engines: Option<&[EngineSpec]>,
) -> BTreeMap<String, String> {
    let short = reader.given(&STATIC_ALIASES);
    let aliases = if short.place.is_given() {
        typed(reader, &short)
    } else {
        from_file(reader)
    };
    let mut map = BTreeMap::new();
    for alias in &aliases {
        if map
            .insert(alias.name.clone(), alias.model.clone())
            .is_some()
        {
            reader.mistake(
                &alias.place,
                format!("the alias {} is given twice", shown(&alias.name)),
            );
        }
    }
    for alias in &aliases {
        if let Some(what) = mistake(alias, &map, engines.unwrap_or_default()) {
            reader.mistake(&alias.place, what);
        }
    }
    map
}

fn typed(reader: &mut Reader<'_>, given: &Given) -> Vec<Alias> {
    let mut aliases = Vec::new();
    for part in names::comma_list(reader, given)
        .iter()
        .filter(|part| !part.is_empty())
    {
        match part
            .split_once(':')
            .map(|(name, model)| (name.trim(), model.trim()))
        {
            Some((name, model)) if !name.is_empty() && !model.is_empty() => aliases.push(Alias {
                place: given.place.clone(),
                name: name.to_owned(),
                model: model.to_owned(),
            }),
            _ => reader.mistake(&given.place, format!("{} is not ALIAS:MODEL", shown(part))),
        }
    }
    aliases
}

fn from_file(reader: &mut Reader<'_>) -> Vec<Alias> {
    let given = reader.given(&ALIASES);
    let entries = match &given.raw {
        Raw::Node(Node::Map(entries)) => entries.as_slice(),
        Raw::Node(Node::Null) => &[],
        other => {
            let kind = if let Raw::Node(node) = other {
                node.kind()
            } else {
                "text"
            };
            reader.mistake(
                &given.place,
                format!("{kind} is not a mapping of aliases to models"),
            );
            &[]
        }
    };
    let mut aliases = Vec::new();
    for (index, (key, model)) in entries.iter().enumerate() {
        let place = given.place.entry(index, &key.shown());
        let name = names::model(reader, &place, key);
        let model = names::model(reader, &place, model);
        if let (Some(name), Some(model)) = (name, model) {
            aliases.push(Alias { place, name, model });
        }
    }
    aliases
}

/// What is wrong with one alias, given all of them.
fn mistake(
    alias: &Alias,
    all: &BTreeMap<String, String>,
    engines: &[EngineSpec],
) -> Option<String> {
    let (name, model) = (shown(&alias.name), shown(&alias.model));
    let mut declared = engines.iter().flat_map(|engine| &engine.models);
    if alias.name == alias.model {
        return Some(format!("{name} is an alias of itself"));
    }
    if declared.clone().any(|model| *model == alias.name) {
        return Some(format!(
            "the alias {name} is also the name of a model; requests for that model would never arrive"
        ));
    }
    if all.contains_key(&alias.model) {
        return Some(format!(
            "{name} stands for {model}, which is an alias, too; give the model itself"
        ));
    }
    let all_declare = !engines.is_empty() && engines.iter().all(|engine| !engine.models.is_empty());
    if all_declare && !declared.any(|model| *model == alias.model) {
        let known = engines
            .iter()
            .flat_map(|engine| &engine.models)
            .map(String::as_str);
        let hint = suggest::hint(&alias.model, known);
        return Some(format!(
            "{name} stands for {model}, which no engine serves{hint}"
        ));
    }
    None
}
