//! The figures of a run: what they must be, and how they are told.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::clients::World;
use super::metrics::Metrics;
use super::options::Options;
use super::process::Look;
use super::tally::Tally;
use super::watch::{self, Sample};

/// Attempts of these outcomes never reached an engine.
const NOT_SENT: [&str; 2] = ["connect", "connect_timeout"];
/// Attempts of these outcomes have a response head, so an engine received them.
const ANSWERED: [&str; 4] = ["answered", "retryable_status", "cut", "closed_after_head"];

/// The figures of a run.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What was asked for.
    pub options: Options,
    /// How long clients went on to new requests.
    pub loaded: Duration,
    /// How long there was traffic, the last answers included.
    pub traffic: Duration,
    /// Requests the router counted in that time.
    pub requests: f64,
    /// Processor time of the router in that time.
    pub cpu_seconds: f64,
    /// The router before the traffic.
    pub idle: Look,
    /// The router after it.
    pub end: Look,
    /// Requests the engines received in all.
    pub received: u64,
    /// What was seen each second.
    pub samples: Vec<Sample>,
    /// The router's figures at the end.
    pub metrics: Metrics,
}

impl Figures {
    /// Until when memory may grow freely.
    fn warm(&self) -> Duration {
        (self.loaded / 10).min(Duration::from_secs(120))
    }

    /// Memory after the warm-up, and at the end of the traffic.
    fn memory(&self) -> (f64, f64) {
        let warm = self.warm();
        let first = watch::median_rss(&self.samples, warm, 2 * warm);
        let last = watch::median_rss(&self.samples, self.loaded.saturating_sub(warm), self.loaded);
        (first, last)
    }

    /// At least and at most how many requests the engines can have received.
    fn sent(&self) -> (f64, f64) {
        let outcomes = self.metrics.by("attempts_total", "outcome");
        let sum = |of: &[&str]| -> f64 { of.iter().filter_map(|it| outcomes.get(*it)).sum() };
        let stale = self.metrics.sum("stale_connections_total");
        let all = self.metrics.sum("attempts_total");
        (sum(&ANSWERED), all - sum(&NOT_SENT) + stale)
    }

    /// Takes note of every figure that must not be.
    pub fn check(&self, tally: &Tally) {
        let (warm, late) = self.memory();
        if late > warm * 1.2 + 16.0 {
            tally.wrong(format!("memory grew from {warm:.0} to {late:.0} MiB"));
        }
        let (least, most) = self.sent();
        let received = self.received as f64;
        if !(least..=most).contains(&received) {
            tally.wrong(format!(
                "engines received {received} requests; from {least} to {most} were sent"
            ));
        }
        let answered = self.metrics.sum("requests_total");
        if answered < 1.0 {
            tally.wrong("the router counted no request".to_owned());
        }
    }
}

/// Prints the report.
pub fn print(figures: &Figures, world: &World) {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, figures, world);
    println!("{text}");
}

fn write(out: &mut String, figures: &Figures, world: &World) -> std::fmt::Result {
    let (faults, told) = world.tally.faults();
    let options = &figures.options;
    writeln!(
        out,
        "## Soak: {:.0} s, {} clients, seed {}\n\n| figure | value |\n|---|---|",
        figures.loaded.as_secs_f64(),
        options.concurrency,
        options.seed
    )?;
    let verdict = match faults {
        0 => "good".to_owned(),
        count => format!("**{count} faults**"),
    };
    writeln!(out, "| verdict | {verdict} |")?;
    let rows = traffic(figures, world).into_iter().chain(process(figures));
    for (name, value) in rows {
        writeln!(out, "| {name} | {value} |")?;
    }
    writeln!(out, "\n| requests | results |\n|---|---|")?;
    for (kind, results) in world.tally.results() {
        let results = results
            .iter()
            .map(|(result, count)| (result.clone(), *count as f64));
        writeln!(out, "| {kind} | {} |", list(&results.collect()))?;
    }
    let (errors, samples) = world.log.errors();
    if errors > 0 {
        writeln!(
            out,
            "\n{errors} error lines in the router's log, such as:\n"
        )?;
        for line in samples {
            writeln!(out, "- `{line}`")?;
        }
    }
    if faults > 0 {
        writeln!(out, "\n{faults} faults with seed {}:\n", options.seed)?;
        for fault in told {
            writeln!(out, "- {fault}")?;
        }
    }
    Ok(())
}

type Row = (&'static str, String);

/// What was asked and what came of it.
fn traffic(figures: &Figures, world: &World) -> Vec<Row> {
    let metrics = &figures.metrics;
    let (kept, new) = world.tally.connections();
    let (least, most) = figures.sent();
    let seconds = figures.traffic.as_secs_f64();
    let requests = figures.requests;
    vec![
        ("sent by clients", world.tally.requests().to_string()),
        (
            "counted by the router",
            format!("{requests:.0}, {:.0} per second", requests / seconds),
        ),
        ("by outcome", list(&metrics.by("requests_total", "outcome"))),
        ("attempts", list(&metrics.by("attempts_total", "outcome"))),
        ("retries", list(&metrics.by("retries_total", "reason"))),
        (
            "received by engines",
            format!(
                "{}; from {least:.0} to {most:.0} were sent",
                figures.received
            ),
        ),
        (
            "stale engine connections",
            format!("{:.0}", metrics.sum("stale_connections_total")),
        ),
        (
            "client connections",
            format!("{kept} ordinary requests on kept ones, {new} on new ones"),
        ),
    ]
}

/// What the process took.
fn process(figures: &Figures) -> Vec<Row> {
    let Figures {
        samples, idle, end, ..
    } = figures;
    let peak = |of: fn(&Sample) -> f64| samples.iter().map(of).fold(0.0, f64::max);
    let (first, last) = figures.memory();
    let cpu = figures.cpu_seconds;
    vec![
        (
            "processor time",
            format!(
                "{:.0} µs per request, {:.0} % of one core",
                1e6 * cpu / figures.requests.max(1.0),
                100.0 * cpu / figures.traffic.as_secs_f64()
            ),
        ),
        (
            "memory in MiB",
            format!(
                "idle {:.0}, warm {first:.0}, at the end {last:.0}, peak {:.0}, cooled {:.0}; \
                 {:+.1} per minute",
                idle.rss_mib,
                peak(|it| it.process.rss_mib),
                end.rss_mib,
                watch::slope(samples, figures.warm())
            ),
        ),
        (
            "memory by tenth of the time",
            watch::tenths(samples, figures.loaded),
        ),
        (
            "descriptors",
            format!(
                "idle {}, peak {:.0}, cooled {}",
                idle.descriptors,
                peak(|it| it.process.descriptors as f64),
                end.descriptors
            ),
        ),
        (
            "threads",
            format!(
                "idle {}, peak {:.0}, cooled {}",
                idle.threads,
                peak(|it| it.process.threads as f64),
                end.threads
            ),
        ),
        (
            "requests in flight",
            format!(
                "peak {:.0}, cooled {:.0}",
                peak(|it| it.in_flight),
                figures.metrics.in_flight().0
            ),
        ),
    ]
}

fn list(counts: &BTreeMap<String, f64>) -> String {
    let parts = counts
        .iter()
        .map(|(name, count)| format!("{name} {count:.0}"));
    parts.collect::<Vec<_>>().join(", ")
}
