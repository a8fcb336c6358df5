//! The dashboard and the alerts ask for series there are, by labels these have, and get an answer.
//!
//! What can be known without Prometheus is checked in any case; what its `promtool` knows better is
//! left to that, where it is installed or was fetched by `make promtool`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use vllm_pingora::metrics::names;

use crate::support::promql::{Query, SCRAPED, Sample, parse, samples};
use crate::support::*;

const DASHBOARD: &str = include_str!("../../conf/grafana-dashboard.json");
const ALERTS: &str = include_str!("../../conf/prometheus-alerts.yaml");
const ALERT_TESTS: &str = include_str!("../alerts.yaml");

/// An expression, and where it stands.
struct Expression {
    place: String,
    text: String,
}

/// An expression as Prometheus gets it, once the dashboard's variables have values.
fn filled_in(text: &str) -> String {
    let text = text.replace("$__rate_interval", "5m");
    let text = text.replace("$job", ".*").replace("$instance", ".*");
    let text = text.replace("$model", ".*");
    assert!(!text.contains('$'), "{text} has a variable that is unknown");
    text
}

fn of_dashboard() -> Vec<Expression> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        if panel["type"] == "row" {
            continue;
        }
        let title = panel["title"].as_str().unwrap();
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title} shows nothing");
        all.extend(targets.iter().map(|target| Expression {
            place: format!("panel {title}"),
            text: filled_in(target["expr"].as_str().unwrap()),
        }));
    }
    assert!(all.len() > 30);
    all
}

fn of_alerts() -> Vec<Expression> {
    let alerts: serde_yaml::Value = serde_yaml::from_str(ALERTS).unwrap();
    let groups = alerts["groups"].as_sequence().unwrap();
    let rules = groups
        .iter()
        .flat_map(|group| group["rules"].as_sequence().unwrap());
    let all: Vec<_> = rules
        .map(|rule| Expression {
            place: rule["alert"].as_str().unwrap().to_owned(),
            text: rule["expr"].as_str().unwrap().to_owned(),
        })
        .collect();
    assert!(all.len() > 10);
    all
}

/// What the dashboard's choices are made from: `label_values(series, label)`.
fn of_variables() -> Vec<Expression> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let queries = variables
        .iter()
        .filter(|variable| variable["type"] == "query");
    let all: Vec<_> = queries
        .map(|variable| {
            let query = variable["query"].as_str().unwrap();
            let inner = query.strip_prefix("label_values(").unwrap();
            let (series, label) = inner.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
            Expression {
                place: format!("variable {}", variable["name"]),
                text: filled_in(&format!("sum by ({label}) ({series})")),
            }
        })
        .collect();
    assert_eq!(all.len(), 3);
    all
}

/// The labels of a series of ours, by the name of one of its samples.
fn labels_of(sample: &str) -> Option<Vec<&'static str>> {
    names::ALL.iter().find_map(|name| {
        let part = sample.strip_prefix(name.name)?;
        let mut labels = name.labels.to_vec();
        match (name.kind, part) {
            ("histogram", "_bucket") => labels.push("le"),
            ("histogram", "_sum" | "_count") => {}
            ("histogram", _) | (_, "_bucket" | "_sum" | "_count") => return None,
            (_, "") => {}
            _ => return None,
        }
        Some(labels)
    })
}

/// Panics unless the list of series has all an expression asks for.
fn assert_listed(expression: &Expression, query: &Query) {
    let Expression { place, text } = expression;
    assert!(
        !query.selectors.is_empty(),
        "{place} asks for nothing: {text}"
    );
    let mut known: BTreeSet<&str> = SCRAPED.into();
    for selector in &query.selectors {
        // Prometheus makes this one itself.
        let labels = if selector.name == "up" {
            Vec::new()
        } else {
            labels_of(&selector.name)
                .unwrap_or_else(|| panic!("{place} asks for {}: {text}", selector.name))
        };
        for (label, ..) in &selector.matchers {
            let is_known = labels.contains(&label.as_str()) || SCRAPED.contains(&label.as_str());
            assert!(
                is_known,
                "{place}: {} has no {label}: {text}",
                selector.name
            );
        }
        known.extend(labels);
    }
    for label in &query.grouped {
        assert!(
            known.contains(label.as_str()),
            "{place}: no series has {label}: {text}"
        );
    }
}

/// An exposition in which every series has a value: requests that end in every way.
async fn exposition() -> String {
    let usage = r#"{"usage":{"prompt_tokens":5,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":2}}}"#;
    let (a, b) = (
        ScriptedEngine::start(ok(usage)).await,
        ScriptedEngine::start(ok(usage)).await,
    );
    let bound = "max_buffered_body_bytes: 1000000000\n";
    let edge = edge(&format!("{}{bound}", retries(3)));
    let edge = edge.engines([&a, &b]).start().await;
    let ask_all = async |expected: u16| {
        for _ in 0..4 {
            assert_eq!(edge.ask(&req_n()).await.status, expected);
        }
    };
    ask_all(200).await;
    for engine in [&a, &b] {
        engine.play(sse(5, ms(20)));
    }
    assert_eq!(edge.ask(&req_s()).await.status, 200);
    // Saved, exhausted, cut, left.
    a.play([status(503), ok("ok")]);
    b.play([status(503), ok("ok")]);
    ask_all(200).await;
    a.play(status(503));
    b.play(status(503));
    ask_all(503).await;
    for engine in [&a, &b] {
        engine.play(sse(5, ms(20)).rst_at(Point::Pieces(2)));
    }
    let mut client = Client::connect(edge.addr()).await;
    client.send_request(&req_s()).await;
    edge.wait_for_requests("cut", 1).await;
    a.play(hang());
    b.play(hang());
    let mut client = Client::connect(edge.addr()).await;
    let deliveries = a.seen() + b.seen();
    client.send_request(&req_n()).await;
    while a.seen() + b.seen() == deliveries {
        tokio::time::sleep(ms(1)).await;
    }
    client.close();
    edge.wait_for_requests("client_gone", 1).await;
    // Stale: closed after the answer, and used again.
    for engine in [&a, &b] {
        engine.play(ok(usage).then_rst_on_next_byte());
    }
    ask_all(200).await;
    // Out, and back.
    a.stop().await;
    b.play(ok(usage));
    ask_all(200).await;
    ask_all(200).await;
    assert_eq!(
        edge.metric("vllm_pingora_engine_up", &[("engine", &a.url())]),
        0.0
    );
    a.restart(script(ok(usage)).on("/health", ok(""))).await;
    tokio::time::sleep(secs(5)).await;
    edge.probe().await;
    assert_eq!(
        edge.metric("vllm_pingora_engine_up", &[("engine", &a.url())]),
        1.0
    );
    // A request no route serves, and one that no engine is left for.
    assert_eq!(edge.ask(&Request::new("GET", "/nothing")).await.status, 404);
    a.stop().await;
    b.stop().await;
    assert_eq!(edge.ask(&req_n()).await.status, 502);
    edge.wait_until_idle().await;
    edge.exposition()
}

#[tokio::test(start_paused = true)]
async fn every_expression_selects_series_there_are_by_labels_they_have() {
    let exposition = exposition().await;
    let samples = samples(&exposition);
    for name in names::ALL {
        let has = |sample: &Sample<'_>| sample.name.starts_with(name.name);
        assert!(samples.iter().any(has), "{} has no value", name.name);
    }
    let expressions = [of_dashboard(), of_alerts(), of_variables()];
    for expression in expressions.iter().flatten() {
        let query = parse(&expression.text);
        assert_listed(expression, &query);
        for selector in query
            .selectors
            .iter()
            .filter(|selector| selector.name != "up")
        {
            let selects = |sample: &Sample<'_>| selector.selects(sample);
            assert!(
                samples.iter().any(selects),
                "{}: {selector:?} selects nothing",
                expression.place
            );
        }
    }
}

#[test]
fn every_alert_has_a_test_and_every_test_an_alert() {
    let tests: serde_yaml::Value = serde_yaml::from_str(ALERT_TESTS).unwrap();
    let groups = tests["tests"].as_sequence().unwrap();
    let (mut fires, mut rests) = (BTreeSet::new(), BTreeSet::new());
    for group in groups {
        for test in group["alert_rule_test"].as_sequence().unwrap() {
            let name = test["alertname"].as_str().unwrap().to_owned();
            if test["exp_alerts"].as_sequence().unwrap().is_empty() {
                rests.insert(name);
            } else {
                fires.insert(name);
            }
        }
    }
    let alerts: BTreeSet<_> = of_alerts().into_iter().map(|alert| alert.place).collect();
    assert_eq!(fires, alerts);
    assert_eq!(rests, alerts);
    // Its series are ours as well.
    for group in groups {
        for input in group["input_series"].as_sequence().unwrap() {
            let text = input["series"].as_str().unwrap().to_owned();
            let place = format!("tests/alerts.yaml, {}", group["name"].as_str().unwrap());
            let expression = Expression { place, text };
            assert_listed(&expression, &parse(&expression.text));
        }
    }
}

/// Where Prometheus' tool is, if anywhere.
fn promtool() -> Option<PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/usr/bin/promtool");
    let candidates = [PathBuf::from("promtool"), fetched];
    let works = |path: &PathBuf| {
        let mut command = Command::new(path);
        let run = command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        run.status().is_ok_and(|status| status.success())
    };
    let found = candidates.into_iter().find(works);
    if found.is_none() {
        // Not by a macro, whose words are kept back when a test passes.
        let word = "skipped: what promtool would check; `make promtool` fetches it\n";
        std::io::stderr().write_all(word.as_bytes()).unwrap();
    }
    found
}

/// Runs it, and panics with what it says unless it is content.
fn run(promtool: &Path, args: &[&str], input: &str) {
    let mut child = Command::new(promtool)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
}

#[tokio::test(start_paused = true)]
async fn promtool_accepts_the_exposition_and_fires_each_alert_when_it_should() {
    let Some(promtool) = promtool() else { return };
    run(&promtool, &["check", "metrics"], &exposition().await);
    run(
        &promtool,
        &["check", "rules", "conf/prometheus-alerts.yaml"],
        "",
    );
    run(&promtool, &["test", "rules", "tests/alerts.yaml"], "");
}

#[tokio::test(start_paused = true)]
async fn promtool_finds_data_for_every_panel() {
    let Some(promtool) = promtool() else { return };
    let exposition = exposition().await;
    let mut test = "evaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n".to_owned();
    for sample in samples(&exposition) {
        let mut labels = "job=\"vllm-pingora\",instance=\"a\"".to_owned();
        for (label, value) in &sample.labels {
            write!(labels, ",{label}=\"{value}\"").unwrap();
        }
        // Counters go on as they began; gauges stay.
        let is_gauge = names::ALL
            .iter()
            .any(|name| name.name == sample.name && name.kind == "gauge");
        let (name, value) = (sample.name, sample.value);
        let step = if is_gauge { 0.0 } else { value };
        writeln!(
            test,
            "  - series: '{name}{{{labels}}}'\n    values: '{value}+{step}x30'"
        )
        .unwrap();
    }
    test.push_str("  promql_expr_test:\n");
    for expression in of_dashboard() {
        let query = serde_json::to_string(&format!("count({}) > bool 0", expression.text)).unwrap();
        let expected = "exp_samples: [{labels: '{}', value: 1}]";
        writeln!(
            test,
            "  - expr: {query}\n    eval_time: 20m\n    {expected}"
        )
        .unwrap();
    }
    let file =
        std::env::temp_dir().join(format!("vllm-pingora-panels-{}.yaml", std::process::id()));
    fs::write(&file, test).unwrap();
    run(&promtool, &["test", "rules", file.to_str().unwrap()], "");
    fs::remove_file(&file).unwrap();
}
