//! The tables.

use std::fmt::Write as _;

use super::figures::Summary;
use super::policy::policies;
use super::scenario::{LARGE, SMALL, SPREAD, Scenario};
use super::simulate::Runs;

/// A column: what it is called, where it comes from, and how it is written.
type Column = (&'static str, fn(&Summary) -> f64, fn(f64) -> String);

/// The large fleet.
pub fn large(runs: &[Runs]) -> String {
    let mut out = scenario(&LARGE);
    let seeds = runs.first().map_or(0, |runs| runs.summaries.len());
    let _ = writeln!(out, "Means over {seeds} seeds, ranges in brackets.\n");
    let columns: [Column; 8] = [
        ("lost", |it| it.lost, whole),
        ("lost of others", |it| it.others_lost, percent),
        ("refused attempts", |it| it.refused, whole),
        ("refused after", |it| it.refused_after, whole),
        ("peak", |it| it.peak, whole),
        ("last refusal", |it| it.recovered, seconds),
        ("let in, p50", |it| it.let_in[0], seconds),
        ("let in, p99", |it| it.let_in[1], seconds),
    ];
    out += &head(&columns.map(|column| column.0));
    for runs in runs {
        let _ = write!(out, "| {} |", runs.policy.word);
        for (_, of, written) in &columns {
            let _ = write!(out, " {} |", cell(&runs.summaries, *of, *written));
        }
        out += "\n";
    }
    out + "\n" + &settings()
}

/// The small one: each figure as simulated and as measured.
pub fn small(simulated: &[Runs], measured: &[Vec<Summary>]) -> String {
    let mut out = scenario(&SMALL);
    let counts = (simulated[0].summaries.len(), measured[0].len());
    let _ = writeln!(
        out,
        "In each cell what was simulated, mean of {} seeds, / what was measured, mean of {} runs; ranges in brackets.\n",
        counts.0, counts.1
    );
    let columns: [Column; 5] = [
        ("lost", |it| it.lost, whole),
        ("refused attempts", |it| it.refused, whole),
        ("refused after", |it| it.refused_after, whole),
        ("peak", |it| it.peak, whole),
        ("last refusal", |it| it.recovered, seconds),
    ];
    out += &head(&columns.map(|column| column.0));
    for (runs, measured) in simulated.iter().zip(measured) {
        let _ = write!(out, "| {} |", runs.policy.word);
        for (_, of, written) in &columns {
            let simulated = cell(&runs.summaries, *of, *written);
            let _ = write!(out, " {simulated} / {} |", cell(measured, *of, *written));
        }
        out += "\n";
    }
    out + "\n"
}

fn scenario(it: &Scenario) -> String {
    let mut out = format!(
        "## {} requests fail together\n\n{} engines, {} requests at a time and {} waiting on each; ",
        it.herd, it.engines, it.slots, it.queue
    );
    if !it.prefill.is_zero() {
        let _ = write!(out, "one taken in every {} ms; ", it.prefill.as_millis());
    }
    let _ = write!(
        out,
        "{} s per request (±{:.0} %). The fleet refuses everything for {} s",
        it.service.as_secs(),
        100.0 * SPREAD,
        it.refuses.as_secs()
    );
    if it.others > 0.0 {
        let _ = write!(
            out,
            "; others ask {} times per second all the while",
            it.others
        );
    }
    let _ = write!(
        out,
        ". *Refused after*, *peak* and all times count from the end of the incident; *peak* is the most attempts within {} ms",
        it.counted_in.as_millis()
    );
    out + ". "
}

fn settings() -> String {
    let mut out = "| policy | settings |\n|---|---|\n".to_owned();
    for policy in policies() {
        let _ = writeln!(out, "| {} | {} |", policy.word, policy.told());
    }
    out + "\n"
}

fn head(titles: &[&str]) -> String {
    let mut out = "| policy |".to_owned();
    for title in titles {
        let _ = write!(out, " {title} |");
    }
    out + "\n|---|" + &"---|".repeat(titles.len()) + "\n"
}

/// The mean, and the range where there is one.
fn cell(all: &[Summary], of: fn(&Summary) -> f64, written: fn(f64) -> String) -> String {
    let values: Vec<_> = all.iter().map(of).collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let least = written(values.iter().copied().fold(f64::INFINITY, f64::min));
    let most = written(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    if least == most || mean.is_nan() {
        written(mean)
    } else {
        format!("{} ({least}–{most})", written(mean))
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn percent(part: f64) -> String {
    format!("{:.1} %", 100.0 * part)
}

fn seconds(value: f64) -> String {
    if value.is_nan() {
        "–".to_owned()
    } else {
        format!("{value:.1} s")
    }
}
