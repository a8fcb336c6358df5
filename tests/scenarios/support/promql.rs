//! As much of Prometheus' query language as it takes to know which series an expression asks for.

use std::collections::BTreeSet;

/// What an expression says of series and labels.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub selectors: Vec<Selector>,
    /// Labels of `by`, `on` and the like.
    pub grouped: BTreeSet<String>,
}

/// `name{label="value"}`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    /// Label, operator and value.
    pub matchers: Vec<(String, String, String)>,
}

/// One sample of an exposition.
#[derive(Debug, PartialEq)]
pub struct Sample<'a> {
    pub name: &'a str,
    pub labels: Vec<(&'a str, &'a str)>,
    pub value: f64,
}

const GROUPING: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];
const FUNCTIONS: [&str; 10] = [
    "sum",
    "avg",
    "min",
    "max",
    "count",
    "rate",
    "increase",
    "histogram_quantile",
    "time",
    "clamp_min",
];

/// The words and signs of an expression.
fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '.');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => rest[1..].find('"').expect("a quote that ends") + 2,
            c if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if ["=~", "!~", "!=", "==", ">=", "<="]
                .iter()
                .any(|sign| rest.starts_with(sign)) =>
            {
                2
            }
            c => c.len_utf8(),
        };
        tokens.push(rest[..length].to_owned());
        rest = rest[length..].trim_start();
    }
    tokens
}

/// Reads an expression; panics where it is beyond this reader.
pub fn parse(expression: &str) -> Query {
    let tokens = tokens(expression);
    let mut query = Query::default();
    let mut at = 0;
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let starts_word = |text: &str| text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    while at < tokens.len() {
        let word = token(at);
        at += 1;
        if word == "[" {
            while token(at) != "]" {
                at += 1;
            }
        } else if !starts_word(word) || WORDS.contains(&word) || FUNCTIONS.contains(&word) {
            // Signs, numbers and what stands between selectors.
        } else if GROUPING.contains(&word) {
            assert_eq!(token(at), "(", "{expression}");
            at += 1;
            while token(at) != ")" {
                assert!(at < tokens.len(), "{expression}");
                if token(at) != "," {
                    query.grouped.insert(token(at).to_owned());
                }
                at += 1;
            }
        } else {
            assert_ne!(
                token(at),
                "(",
                "{word} is no function known here: {expression}"
            );
            let mut selector = Selector {
                name: word.to_owned(),
                matchers: Vec::new(),
            };
            if token(at) == "{" {
                at += 1;
                while token(at) != "}" {
                    let value = token(at + 2);
                    let value = value
                        .strip_prefix('"')
                        .and_then(|value| value.strip_suffix('"'));
                    let value = value.unwrap_or_else(|| panic!("no value: {expression}"));
                    let (label, operator) = (token(at).to_owned(), token(at + 1).to_owned());
                    selector.matchers.push((label, operator, value.to_owned()));
                    at += 3;
                    if token(at) == "," {
                        at += 1;
                    }
                }
            }
            query.selectors.push(selector);
        }
    }
    query
}

impl Selector {
    /// Whether it selects this sample. Matchers of labels that the scrape adds select any.
    pub fn selects(&self, sample: &Sample<'_>) -> bool {
        let matches = |(label, operator, wanted): &(String, String, String)| {
            if SCRAPED.contains(&label.as_str()) {
                return true;
            }
            let found = sample.labels.iter().find(|(name, _)| name == label);
            let found = found.map_or("", |(_, value)| value);
            match operator.as_str() {
                "=" => found == wanted,
                "!=" => found != wanted,
                "=~" => wanted
                    .split('|')
                    .any(|pattern| fits(pattern.as_bytes(), found.as_bytes())),
                "!~" => !wanted
                    .split('|')
                    .any(|pattern| fits(pattern.as_bytes(), found.as_bytes())),
                other => panic!("{other} is no operator"),
            }
        };
        self.name == sample.name && self.matchers.iter().all(matches)
    }
}

/// Labels that a scrape adds to every series.
pub const SCRAPED: [&str; 2] = ["job", "instance"];

/// Whether `text` is what a regular expression of dots, `.*` and plain characters describes.
fn fits(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([b'.', b'*', rest @ ..], _) => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        ([], []) => true,
        ([p, pattern @ ..], [t, text @ ..]) => (*p == b'.' || p == t) && fits(pattern, text),
        _ => false,
    }
}

/// The samples of an exposition.
pub fn samples(exposition: &str) -> Vec<Sample<'_>> {
    let lines = exposition.lines().filter(|line| !line.starts_with('#'));
    lines.map(sample).collect()
}

fn sample(line: &str) -> Sample<'_> {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("a brace that ends")),
        None => (series, ""),
    };
    // None of ours has a comma or an escape in a value.
    let labels = labels
        .split(',')
        .filter(|label| !label.is_empty())
        .map(|label| {
            let (name, value) = label.split_once('=').unwrap_or_else(|| panic!("{line}"));
            (name, value.trim_matches('"'))
        });
    Sample {
        name,
        labels: labels.collect(),
        value: value.parse().unwrap_or_else(|_| panic!("{line}")),
    }
}

#[test]
fn an_expression_tells_what_it_asks_for() {
    let query = parse(
        "sum by (le, a) (rate(x_total{b=\"1\", c!~\"2|3..\"}[5m])) / on (d) group_left (e) y > 0.5 or z",
    );
    let names: Vec<_> = query
        .selectors
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["x_total", "y", "z"]);
    let matcher = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    let expected = [matcher("b", "=", "1"), matcher("c", "!~", "2|3..")];
    assert_eq!(query.selectors[0].matchers, expected);
    assert_eq!(
        query.grouped,
        ["a", "d", "e", "le"].map(str::to_owned).into()
    );
    let selects = |line: &str| query.selectors[0].selects(&sample(line));
    assert!(selects("x_total{b=\"1\",c=\"4\"} 5"));
    assert!(!selects("x_total{b=\"1\",c=\"399\"} 5"));
    assert!(!selects("x_total{b=\"2\"} 5"));
    assert!(!selects("y{b=\"1\"} 5"));
}
