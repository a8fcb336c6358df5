//! Reads from a query which engines a control call is for.
//!
//! `id=NAME` names engines, several of them by commas or by giving it again; `model=NAME` means
//! all that serve a model; `all=true` means all. Nothing is guessed: a call for nobody, for
//! somebody unknown, or for engines named in two ways goes to no one.

use std::collections::HashSet;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use crate::api_error::ApiError;
use crate::engines::{Engine, EngineId, Fleet, Lookup};

/// What is said to those who name no engine.
const ACCEPTED: &str = "name the engines of this call in its query: `id=ENGINE` (as /engines lists it; several \
     separated by commas, or given again), `model=NAME` (all that serve it) or `all=true`";

/// The engines of a call, and what is left of its query.
#[derive(Debug)]
pub(super) struct Addressees {
    /// In the order of the configuration.
    pub(super) engines: Vec<Arc<Engine>>,
    /// The query without what named them, every other byte as it was.
    pub(super) query: String,
}

impl Addressees {
    /// Reads them from a query.
    ///
    /// # Errors
    /// No engine is named, one is unknown, or they are named in more than one way.
    pub(super) fn read(fleet: &Fleet, query: &str) -> Result<Self, ApiError> {
        let mut chosen: HashSet<EngineId> = HashSet::new();
        let mut ways: Vec<&str> = Vec::new();
        let mut rest: Vec<&str> = Vec::new();
        for pair in query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !matches!(key, "id" | "model" | "all") {
                rest.push(pair);
                continue;
            }
            if !ways.contains(&key) {
                ways.push(key);
            }
            match key {
                "id" => chosen.extend(by_name(fleet, value)?),
                "model" => chosen.extend(by_model(fleet, value)?),
                _ => chosen.extend(everybody(fleet, value)?),
            }
        }
        match ways.as_slice() {
            [] => Err(ApiError::invalid_request(ACCEPTED)),
            [_] => Ok(Self {
                engines: fleet
                    .engines()
                    .iter()
                    .filter(|engine| chosen.contains(&engine.id()))
                    .cloned()
                    .collect(),
                query: rest.join("&"),
            }),
            ways => Err(ApiError::invalid_request(format!(
                "the engines are named by `{}` at the same time; {ACCEPTED}",
                ways.join("` and `")
            ))),
        }
    }
}

fn by_name(fleet: &Fleet, value: &str) -> Result<Vec<EngineId>, ApiError> {
    let names = value.split(',').map(|name| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        // A comma may be part of what was encoded.
        let engines: Result<Vec<_>, _> = match fleet.named(&name) {
            Some(engine) => Ok(vec![engine.id()]),
            None => name.split(',').map(|name| one(fleet, name)).collect(),
        };
        engines
    });
    let found: Result<Vec<Vec<_>>, _> = names.collect();
    Ok(found?.concat())
}

fn one(fleet: &Fleet, name: &str) -> Result<EngineId, ApiError> {
    if name.is_empty() {
        return Err(ApiError::invalid_request(format!(
            "`id` has an empty name; {ACCEPTED}"
        )));
    }
    match fleet.named(name) {
        Some(engine) => Ok(engine.id()),
        None => Err(ApiError::unknown_engine(name)),
    }
}

fn by_model(fleet: &Fleet, value: &str) -> Result<Vec<EngineId>, ApiError> {
    let name = percent_decode_str(value).decode_utf8_lossy();
    match fleet.find(&name) {
        Lookup::Pool(pool, _) => Ok(pool.engines().map(|engine| engine.id()).collect()),
        Lookup::NoEngine(..) => Err(ApiError::no_engine_available(&name)),
        Lookup::Unknown => Err(ApiError::model_not_found(&name)),
    }
}

fn everybody(fleet: &Fleet, value: &str) -> Result<Vec<EngineId>, ApiError> {
    if value != "true" {
        return Err(ApiError::invalid_request(format!(
            "`all={value}` is not accepted; {ACCEPTED}"
        )));
    }
    Ok(fleet.engines().iter().map(|engine| engine.id()).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::EngineSpec;
    use crate::engines::Policy;

    fn fleet() -> Fleet {
        let spec = |port: u16, models: &[&str]| {
            let url = format!("http://127.0.0.1:{port}").parse().unwrap();
            let models = models.iter().map(|model| (*model).to_owned()).collect();
            EngineSpec {
                id: Some((port - 1).to_string()),
                ..EngineSpec::new(url, models)
            }
        };
        let aliases = BTreeMap::from([("gpt".to_owned(), "org/m".to_owned())]);
        let specs = [spec(1, &["org/m"]), spec(2, &["x"]), spec(3, &["org/m"])];
        Fleet::new(&specs, &aliases, Policy::default())
    }

    fn read(query: &str) -> Result<(Vec<u16>, String), (u16, &'static str)> {
        match Addressees::read(&fleet(), query) {
            Ok(read) => {
                let ports = read.engines.iter().map(|engine| engine.url().port());
                Ok((ports.collect(), read.query))
            }
            Err(refusal) => Err((refusal.status(), refusal.code())),
        }
    }

    #[test]
    fn engines_are_named_in_one_of_three_ways() {
        for (query, ports, rest) in [
            ("id=0", vec![1], ""),
            ("id=2,0,2&level=1", vec![1, 3], "level=1"),
            ("id=2%2C0", vec![1, 3], ""),
            ("tags=a&id=1&tags=b&id=2", vec![2, 3], "tags=a&tags=b"),
            ("id=http://127.0.0.1:2", vec![2], ""),
            ("id=http%3A%2F%2F127.0.0.1%3A2", vec![2], ""),
            ("model=org/m", vec![1, 3], ""),
            ("model=org%2Fm&a=%2F&&b=+", vec![1, 3], "a=%2F&&b=+"),
            ("model=gpt", vec![1, 3], ""),
            ("model=gpt&model=x", vec![1, 2, 3], ""),
            ("level=2&all=true", vec![1, 2, 3], "level=2"),
        ] {
            assert_eq!(read(query), Ok((ports, rest.to_owned())), "{query}");
        }
    }

    #[test]
    fn a_call_for_nobody_or_for_somebody_else_is_refused() {
        let invalid = Err((400, "invalid_request"));
        for query in [
            "",
            "level=1",
            "ID=0",
            "id=",
            "id",
            "id=0,",
            "id=,0",
            "all",
            "all=",
            "all=false",
            "all=1",
            "all=true&id=0",
            "id=0&model=x",
            "id=0&all=false",
        ] {
            assert_eq!(read(query), invalid, "{query}");
        }
        for query in [
            "id=3",
            "id=0,9",
            "id=http://127.0.0.1",
            "id=%ff",
            "id=0&id=x",
        ] {
            assert_eq!(read(query), Err((404, "engine_not_found")), "{query}");
        }
        assert_eq!(read("model=nope"), Err((404, "model_not_found")));
        assert_eq!(read("model="), Err((404, "model_not_found")));
    }

    #[test]
    fn a_refusal_says_what_was_wrong() {
        let message = |query| Addressees::read(&fleet(), query).unwrap_err().to_string();
        assert!(message("id=0,engine-9").contains("`engine-9`"));
        assert!(message("model=nope").contains("`nope`"));
        assert!(message("all=yes").contains("`all=yes`"));
        assert!(message("id=0&model=x").contains("`id` and `model`"));
        for query in ["", "all=yes", "id=", "id=0&model=x"] {
            assert!(message(query).contains("`all=true`"), "{query}");
        }
    }
}
