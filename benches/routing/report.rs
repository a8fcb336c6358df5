//! The tables.

use std::fmt::Write as _;

use super::figures::Summary;
use super::simulate::{Findings, LOGICS, Runs};

/// A column: what it is called, where it comes from, and how it is written.
type Column = (&'static str, fn(&Summary) -> f64, fn(f64) -> String);

/// All tables, in Markdown.
pub fn tables(findings: &Findings) -> String {
    let mut out = String::new();
    let options = &findings.options;
    let minutes = options.measured.as_secs() / 60;
    for (engines, logics) in &findings.steady {
        let all = || logics.iter().flatten();
        let requests = all().map(|it| it.requests).sum::<f64>();
        let _ = writeln!(
            out,
            "## {engines} engines\n\n{} seeds, {minutes} virtual minutes each, {requests:.0} \
             requests in all; prompts of {} tokens in the mean, of which {} had been sent before.\n",
            options.seeds,
            whole(mean(all().map(|it| it.prompt))),
            percent(mean(all().map(|it| it.reachable))),
        );
        out += &table(logics, &steady());
    }
    out += &loads(findings);
    let _ = writeln!(
        out,
        "## One engine of {} lost, and back after two minutes with an empty cache\n",
        options.engines[0]
    );
    out += &lost(findings);
    out
}

fn steady() -> [Column; 9] {
    [
        ("cache hits", |it| it.all.hit_rate, percent),
        ("TTFT p50", |it| it.all.first_token[0], time),
        ("TTFT p99", |it| it.all.first_token[1], time),
        ("whole answer p50", |it| it.last_token[0], time),
        ("spread p50", |it| it.spread[0], factor),
        ("spread p99", |it| it.spread[1], factor),
        ("in flight", |it| it.in_flight, whole),
        ("answers/s", |it| it.rate, tenths),
        ("moved", |it| it.all.moved, percent),
    ]
}

fn loads(findings: &Findings) -> String {
    let mut out = format!(
        "## {} engines under other loads\n\nTTFT p99, and answers per second, in the mean of two seeds.\n\n| load |",
        findings.options.engines[0]
    );
    for kind in LOGICS {
        let _ = write!(out, " {} |", kind.word());
    }
    out += "\n|---|---|---|---|---|\n";
    for (load, logics) in &findings.loads {
        let _ = write!(out, "| {load} |");
        for runs in logics {
            let first = mean(runs.iter().map(|it| it.all.first_token[1]));
            let rate = mean(runs.iter().map(|it| it.rate));
            let _ = write!(out, " {}, {}/s |", time(first), tenths(rate));
        }
        out += "\n";
    }
    out + "\n"
}

fn lost(findings: &Findings) -> String {
    let columns: [Column; 10] = [
        ("hits before", |it| it.parts[0].hit_rate, percent),
        ("hits without it", |it| it.parts[1].hit_rate, percent),
        ("hits after", |it| it.parts[2].hit_rate, percent),
        ("moved before", |it| it.parts[0].moved, percent),
        ("moved without it", |it| it.parts[1].moved, percent),
        ("moved after", |it| it.parts[2].moved, percent),
        ("TTFT p99 before", |it| it.parts[0].first_token[1], time),
        ("TTFT p99 without it", |it| it.parts[1].first_token[1], time),
        ("TTFT p99 after", |it| it.parts[2].first_token[1], time),
        ("failed attempts", |it| it.failed, whole),
    ];
    table(&findings.lost, &columns)
}

/// A row for each logic: the mean over the seeds, and the range.
fn table(logics: &[Runs; 4], columns: &[Column]) -> String {
    let mut out = "| logic |".to_owned();
    for (title, ..) in columns {
        let _ = write!(out, " {title} |");
    }
    out += "\n|---|";
    out += &"---|".repeat(columns.len());
    out += "\n";
    for (kind, runs) in LOGICS.iter().zip(logics) {
        let _ = write!(out, "| {} |", kind.word());
        for (_, of, written) in columns {
            let (least, most) = range(runs.iter().map(*of));
            let (least, most) = (written(least), written(most));
            let _ = write!(out, " {}", written(mean(runs.iter().map(*of))));
            if least != most {
                let _ = write!(out, " ({least}–{most})");
            }
            out += " |";
        }
        out += "\n";
    }
    out + "\n"
}

/// The mean; 0 of nothing.
pub fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    sum / f64::max(count, 1.0)
}

/// The least and the greatest.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(least, most), value| {
        (f64::min(least, value), f64::max(most, value))
    })
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn time(seconds: f64) -> String {
    match seconds {
        0.0..0.9995 => format!("{:.0} ms", 1000.0 * seconds),
        0.9995..99.95 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

fn factor(value: f64) -> String {
    format!("{value:.2}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}
