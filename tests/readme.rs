//! The tables of the README say what the code says: a row too few, too many or out of date fails.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should say so"
)]

use std::collections::BTreeSet;
use std::path::Path;

use vllm_pingora::access_log::Format;
use vllm_pingora::admin::{CALLS, LIMIT, MAX_BODY};
use vllm_pingora::api_error::ApiError;
use vllm_pingora::config::Settings;
use vllm_pingora::config::keys::{KEYS, Source};
use vllm_pingora::metrics::{names, production_stack};
use vllm_pingora::record::Record;
use vllm_pingora::request::route::{Action, Route, Routes};
use vllm_pingora::retry::{Resend, StopReason};
use vllm_pingora::simulator;

const README: &str = include_str!("../README.md");
/// Stands where a row has nothing to say.
const NOTHING: &str = "–";

/// The cells of the rows below a heading, down to the next one of the same or a higher level.
fn rows(heading: &str) -> BTreeSet<Vec<&'static str>> {
    let level = heading.split(' ').next().unwrap().len();
    let begin = README
        .find(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let section = README.get(begin + heading.len() + 2..).unwrap();
    let ends = |line: &&str| {
        let hashes = line.len() - line.trim_start_matches('#').len();
        (1..=level).contains(&hashes)
    };
    section
        .lines()
        .take_while(|line| !ends(line))
        .filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"))
        .map(|row| row.split(" | ").collect::<Vec<_>>())
        // Rows begin with a name in code, or with nothing; the names of columns do not.
        .filter(|cells| cells.iter().any(|cell| cell.starts_with('`')))
        .collect()
}

fn code(text: impl std::fmt::Display) -> String {
    format!("`{text}`")
}

/// Compares the first cells of the rows below `heading` with what they have to be.
fn assert_rows(heading: &str, expected: impl IntoIterator<Item = Vec<String>>) {
    let expected: BTreeSet<Vec<String>> = expected.into_iter().collect();
    let width = expected.iter().next().unwrap().len();
    let found = rows(heading);
    let cells = |row: &Vec<&str>| {
        row.iter()
            .take(width)
            .map(|&cell| cell.to_owned())
            .collect()
    };
    assert_same(heading, &expected, &found.iter().map(cells).collect());
}

fn assert_same(heading: &str, expected: &BTreeSet<Vec<String>>, found: &BTreeSet<Vec<String>>) {
    let missing: Vec<_> = expected.difference(found).collect();
    let surplus: Vec<_> = found.difference(expected).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "README.md, {heading}: missing {missing:#?}, not so {surplus:#?}"
    );
}

#[test]
fn the_line_of_the_access_log_has_its_fields_in_order() {
    let record = Record {
        stop: Some(StopReason::Answered),
        ..Record::default()
    };
    let keys = |line: &str| -> Vec<String> {
        let words = line.split(' ').filter_map(|word| word.split_once('='));
        words.map(|(key, _)| key.to_owned()).collect()
    };
    let (_, section) = README.split_once("\n## Access log\n").unwrap();
    let (_, example) = section.split_once(" access ").unwrap();
    let expected = keys(&Format::Text.line(&record).to_string());
    assert_eq!(keys(example.lines().next().unwrap()), expected);
    let line = Format::Json.line(&record).to_string();
    let object: serde_json::Map<_, _> = serde_json::from_str(&line).unwrap();
    let fields: BTreeSet<_> = object.keys().cloned().collect();
    assert_eq!(fields, expected.into_iter().collect());
}

#[test]
fn every_setting_is_listed_with_its_flag_variable_and_default() {
    let expected = KEYS.iter().map(|key| {
        let or_nothing = |there: bool, text| {
            if there {
                code(text)
            } else {
                NOTHING.to_owned()
            }
        };
        vec![
            or_nothing(key.is_in_file(), key.name.to_owned()),
            or_nothing(key.is_typed(), format!("--{}", key.flag())),
            or_nothing(key.is_typed(), key.env()),
            code(key.default),
        ]
    });
    assert_rows("## Settings", expected);
}

#[test]
fn a_short_form_stands_below_its_key() {
    let places: Vec<_> = KEYS
        .iter()
        .map(|key| match key.from {
            Source::Typed(long) => (long, format!("| `--{}` |", key.flag())),
            Source::Anywhere | Source::File => (key.name, format!("| `{}` |", key.name)),
        })
        .collect();
    let mut above = "";
    let mut from = README.find("\n## Settings\n").unwrap();
    for (key, text) in &places {
        let at = README.get(from..).unwrap().find(text.as_str());
        from += at.unwrap_or_else(|| panic!("{text} is not in the order of the code"));
        let is_short = text.contains("--");
        // `static_models` is a short form of `engines`, below another one.
        assert!(!is_short || *key == above, "{text} is not below {key}");
        above = key;
    }
}

fn rows_of(series: &[names::Name]) -> impl Iterator<Item = Vec<String>> {
    series.iter().map(|series| {
        let labels: Vec<_> = series.labels.iter().map(code).collect();
        let labels = match labels.as_slice() {
            [] => NOTHING.to_owned(),
            labels => labels.join(", "),
        };
        let help = series.help.to_owned();
        vec![code(series.name), series.kind.to_owned(), labels, help]
    })
}

#[test]
fn every_series_is_listed_with_its_type_labels_and_meaning() {
    let others = production_stack::NAMES;
    let all = [names::ALL, others].concat();
    for (heading, series) in [
        ("## Metrics", all.as_slice()),
        ("### Names of the production-stack router", others),
    ] {
        let found = rows(heading);
        let found = found.iter().map(|row| match row.as_slice() {
            // Values are set in code here only.
            [facts @ .., meaning] => {
                let facts = facts.iter().map(|&cell| cell.to_owned());
                facts.chain([meaning.replace('`', "")]).collect()
            }
            [] => Vec::new(),
        });
        assert_same(heading, &rows_of(series).collect(), &found.collect());
    }
}

#[test]
fn every_built_in_route_is_listed_with_all_there_is_to_know_of_it() {
    let facts = |route: &Route| {
        let (model, resend) = match route.action {
            Action::Forward { model, resend } => (
                model.word(),
                match resend {
                    Resend::Always => "always",
                    Resend::ConnectOnly => "connect_only",
                },
            ),
            _ => (NOTHING, NOTHING),
        };
        let body = route.body.word();
        let name = [code(&route.method), code(&route.path)];
        let rest = [body, model, resend].map(str::to_owned);
        name.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let expected: BTreeSet<_> = Routes::new([]).iter().map(facts).collect();
    let mut found = BTreeSet::new();
    for row in rows("### Routes") {
        let [method, paths, facts @ .., _] = row.as_slice() else {
            panic!("{row:?} is too short");
        };
        found.extend(paths.split(", ").map(|path| {
            let cells = [*method, path].into_iter().chain(facts.iter().copied());
            cells.map(str::to_owned).collect::<Vec<_>>()
        }));
    }
    let missing: Vec<_> = expected.difference(&found).collect();
    let surplus: Vec<_> = found.difference(&expected).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "README.md, Routes: missing {missing:#?}, not so {surplus:#?}"
    );
}

#[test]
fn every_control_call_is_listed() {
    let expected: BTreeSet<_> = CALLS
        .iter()
        .map(|call| (code(&call.method), code(call.path)))
        .collect();
    let mut found = BTreeSet::new();
    for row in rows("### Control calls") {
        let [method, paths] = row.as_slice() else {
            panic!("{row:?} is no method and paths");
        };
        let paths = paths.split(", ");
        found.extend(paths.map(|path| ((*method).to_owned(), path.to_owned())));
    }
    assert_eq!(found, expected);
    let limit = format!("within {} s", LIMIT.as_secs());
    assert!(README.contains(&limit), "{limit}");
    let largest = format!("up to {} MiB", MAX_BODY / 1024 / 1024);
    assert!(README.contains(&largest), "{largest}");
}

#[test]
fn every_error_is_listed_with_its_status_and_code() {
    let errors = [
        ApiError::invalid_request(""),
        ApiError::invalid_api_key(),
        ApiError::not_found(""),
        ApiError::model_not_found(""),
        ApiError::response_not_found(""),
        ApiError::unknown_engine(""),
        ApiError::engine_not_found("", ""),
        ApiError::pin_not_allowed(),
        ApiError::foreign_origin(),
        ApiError::method_not_allowed("", ""),
        ApiError::request_timeout(""),
        ApiError::request_too_large(0),
        ApiError::uri_too_long(0),
        ApiError::unsupported_media_type(""),
        ApiError::too_many_connections(0),
        ApiError::headers_too_large(""),
        ApiError::internal(),
        ApiError::engine_unreachable(1),
        ApiError::no_engines_available(),
        ApiError::engine_timeout(1),
        ApiError::too_many_streams(0),
        ApiError::overloaded(),
    ];
    let expected = errors.map(|error| vec![error.status().to_string(), code(error.code())]);
    assert_rows("### Errors of the router's own", expected);
}

#[test]
fn every_flag_of_the_simulated_engine_is_listed_with_its_default() {
    let command = simulator::command();
    let expected = command.get_arguments().map(|arg| {
        let flag = code(format!("--{}", arg.get_long().unwrap()));
        let default = arg.get_default_values().first();
        let default = default
            .and_then(|text| text.to_str())
            .filter(|text| *text != "false");
        vec![flag, default.map_or_else(String::new, code)]
    });
    let expected: BTreeSet<_> = expected.collect();
    let found = rows("## The simulated engine");
    let found = found.iter().map(|row| match row.as_slice() {
        // The others have no default of their own; the README says in words what holds.
        [flag, default, ..] if default.starts_with('`') => {
            vec![(*flag).to_owned(), (*default).to_owned()]
        }
        [flag, ..] => vec![(*flag).to_owned(), String::new()],
        [] => Vec::new(),
    });
    assert_eq!(found.collect::<BTreeSet<_>>(), expected);
}

/// The functions of a source file.
fn functions(source: &str) -> BTreeSet<&str> {
    let names = source.split("fn ").skip(1);
    names
        .filter_map(|rest| {
            rest.split(|c: char| c != '_' && !c.is_alphanumeric())
                .next()
        })
        .collect()
}

/// A test that stands for a case is called after it, such as `c04_…` for C04.
fn case_of(test: &str) -> Option<String> {
    let digits = test.strip_prefix('c')?.split_once('_')?.0;
    let is_case = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_case.then(|| format!("C{digits}"))
}

#[test]
fn every_case_is_listed_with_its_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let scenarios = root.join("tests/scenarios");
    let mut expected = BTreeSet::new();
    for entry in std::fs::read_dir(&scenarios).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let file = path.file_name().unwrap().to_str().unwrap();
        let source = std::fs::read_to_string(&path).unwrap();
        for test in functions(&source) {
            if let Some(case) = case_of(test) {
                expected.insert((case, file.to_owned(), test.to_owned()));
            }
        }
    }
    let mut listed = BTreeSet::new();
    let table = std::fs::read_to_string(scenarios.join("README.md")).unwrap();
    for line in table
        .lines()
        .filter(|line| line.starts_with("| C") && !line.starts_with("| Case"))
    {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, case, file, tests, ..] = cells.as_slice() else {
            panic!("{line} is too short");
        };
        let file = file.trim_matches('`');
        let folder = if file.contains('/') { root } else { &scenarios };
        let source = std::fs::read_to_string(folder.join(file))
            .unwrap_or_else(|e| panic!("{case}: {file}: {e}"));
        let there = functions(&source);
        for test in tests.split(", ").map(|name| name.trim_matches('`')) {
            assert!(there.contains(test), "{case}: {file} has no test {test}");
            listed.insert(((*case).to_owned(), file.to_owned(), test.to_owned()));
        }
    }
    let missing: Vec<_> = expected.difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "tests/scenarios/README.md lacks {missing:#?}"
    );
}

#[test]
fn the_shortest_file_is_accepted_and_turns_retries_on() {
    let demo = include_str!("../conf/demo.yaml");
    let settings = Settings::from_yaml(demo).unwrap();
    assert!(settings.retry.is_some());
    assert_eq!(settings.engines.len(), 2);
}
