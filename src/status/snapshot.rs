//! What is known at one moment, as `/status` tells it, and what has changed since another one.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::recent::Remembered;
use super::work::Work;
use super::{Change, Histogram, History, SPAN, SPAN_OF_AN_ENGINE, Totals, WINDOW, WINDOWS, millis};

/// What is known at one moment.
#[derive(Debug, serde::Serialize)]
pub struct Snapshot {
    /// The moment, and what else changes all the time.
    #[serde(flatten)]
    pub now: Now,
    /// What came of the requests of the last minute, and of longer times.
    pub windows: Vec<Window>,
    /// The length of a cell, in seconds.
    pub cell_seconds: u64,
    /// The cells in which a request ended, the oldest first.
    pub cells: Vec<CellOfAll>,
    /// The length of an engine's cell, in seconds.
    pub engine_cell_seconds: u64,
    /// The engines, in the order of the fleet, then those that have left it.
    pub engines: Vec<EngineRow>,
    /// The last requests that failed, were retried, refused or held, the last first.
    pub requests: Vec<Arc<Remembered>>,
    /// The last changes of engines' conditions, the last first.
    pub changes: Vec<Change>,
}

/// The moment, and what else changes all the time.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Now {
    /// The version of the router.
    pub version: &'static str,
    /// The time of day, in milliseconds of Unix time.
    pub unix_ms: u64,
    /// The time since the process started, which all other moments are told in.
    #[serde(rename = "uptime_ms", serialize_with = "millis")]
    pub uptime: Duration,
    /// Whether the router has stopped to accept requests.
    pub draining: bool,
    /// Whether requests are retried at all.
    pub retries_enabled: bool,
    /// Requests whose answer is not complete.
    pub requests_in_flight: usize,
}

/// What came of the requests of some time up to now.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Window {
    /// The length of that time.
    pub seconds: u64,
    requests: u64,
    outcomes: BTreeMap<&'static str, u64>,
    faults: Faults,
    /// The most frequent first.
    errors: Vec<ErrorCount>,
    attempts: u64,
    retries: RetryCounts,
    ttft_ms: Percentiles,
    total_ms: Percentiles,
}

/// What came of the requests of a cell.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct CellOfAll {
    /// Its number: it begins at this many times its length.
    pub cell: u64,
    requests: u64,
    outcomes: BTreeMap<&'static str, u64>,
    faults: Faults,
    extra_attempts: u64,
    saved: u64,
    lost: u64,
    ttft_ms: Percentiles,
    total_ms: Percentiles,
}

/// Failures by whose fault they were.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Faults {
    fleet: u64,
    router: u64,
    client: u64,
}

/// How often something went wrong.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct ErrorCount {
    fault: Fault,
    error: Box<str>,
    count: u64,
}

/// What retrying cost and saved.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct RetryCounts {
    extra_attempts: u64,
    reasons: BTreeMap<&'static str, u64>,
    saved: u64,
    lost: u64,
    #[serde(rename = "backoff_ms", serialize_with = "millis")]
    backoff: Duration,
    #[serde(rename = "discarded_ms", serialize_with = "millis")]
    discarded: Duration,
}

/// Percentiles of a duration, in milliseconds; `null` where there was none.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct Percentiles {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

/// One engine.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct EngineRow {
    /// Its URL, as logs and metrics call it.
    pub engine: Arc<str>,
    /// What the fleet knows of it; `null` of one that has left.
    #[serde(flatten)]
    pub standing: Standing,
    /// What it did in the last minute, and in longer times.
    windows: Vec<WorkWindow>,
    /// What it did in each cell in which it did anything: its number, the attempts that ended and
    /// those of them that failed.
    cells: Vec<(u64, u64, u64)>,
}

/// What the fleet knows of an engine.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Standing {
    /// Its name.
    pub id: Option<Box<str>>,
    /// Its place in the fleet, from 0.
    pub place: Option<usize>,
    /// The models it serves.
    pub models: Vec<String>,
    /// Its share of the requests, relative to the others.
    pub weight: Option<u32>,
    /// Its condition; `leaving` where it has left the fleet and still runs requests, `gone` where
    /// it runs none any more.
    pub condition: &'static str,
    /// Why.
    pub reason: &'static str,
    /// Since when, since the process started.
    #[serde(rename = "since_ms", serialize_with = "super::millis_if_any")]
    pub since: Option<Duration>,
    /// Attempts that run on it.
    pub in_flight: usize,
    /// How busy it is, per unit of its weight.
    pub load: f64,
}

impl Standing {
    /// That of an engine that has left the fleet.
    pub const GONE: Self = Self {
        id: None,
        place: None,
        models: Vec::new(),
        weight: None,
        condition: "gone",
        reason: "left_the_fleet",
        since: None,
        in_flight: 0,
        load: 0.0,
    };
}

/// What an engine did in some time up to now.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
struct WorkWindow {
    seconds: u64,
    attempts: u64,
    errors: u64,
    retried: u64,
    ttft_ms: Percentiles,
}

/// What has changed from one snapshot to another.
#[derive(Debug, serde::Serialize)]
pub struct Update<'a> {
    #[serde(flatten)]
    now: &'a Now,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    windows: &'a [Window],
    /// Cells that are new or have changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cells: Vec<&'a CellOfAll>,
    /// Engines that are new or have changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    engines: Vec<&'a EngineRow>,
    /// Engines of which nothing is told any more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forgotten: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requests: Vec<&'a Remembered>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<&'a Change>,
}

impl Snapshot {
    /// What `history` knows at the moment `now`, of an engine in the fleet for each of `fleet`.
    pub fn new(history: &History, fleet: Vec<(Arc<str>, Standing)>, now: Now) -> Self {
        let at = now.uptime;
        let cells = history.totals.last(WINDOW, at);
        let mut cells: Vec<_> = cells
            .filter(|(_, totals)| totals.requests > 0)
            .map(|(cell, totals)| CellOfAll::new(cell, totals))
            .collect();
        cells.reverse();
        let there: HashSet<&str> = fleet.iter().map(|(label, _)| &**label).collect();
        let mut gone: Vec<_> = history
            .engines
            .labels()
            .filter(|label| !there.contains(&***label))
            .map(|label| (Arc::clone(label), Standing::GONE))
            .collect();
        gone.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let engines = fleet.into_iter().chain(gone);
        Self {
            windows: WINDOWS
                .map(|seconds| Window::new(seconds, history, at))
                .into(),
            cell_seconds: SPAN,
            cells,
            engine_cell_seconds: SPAN_OF_AN_ENGINE,
            engines: engines
                .map(|(label, standing)| EngineRow::new(label, standing, history, at))
                .collect(),
            requests: history.recent.all(),
            changes: history.changes.iter().cloned().collect(),
            now,
        }
    }

    /// What has changed since `before`.
    pub fn since<'a>(&'a self, before: &'a Self) -> Update<'a> {
        let known: BTreeMap<&str, &EngineRow> = before.rows().collect();
        let rows: BTreeMap<&str, &EngineRow> = self.rows().collect();
        let last_cell = before.cells.last();
        let from = last_cell.map_or(0, |cell| cell.cell);
        let next = |number: Option<u64>| number.map_or(0, |number| number + 1);
        let next_request = next(before.requests.first().map(|request| request.number));
        let next_change = next(before.changes.first().map(|change| change.number));
        Update {
            now: &self.now,
            windows: if self.windows == before.windows {
                &[]
            } else {
                &self.windows
            },
            cells: self
                .cells
                .iter()
                .filter(|cell| cell.cell >= from && Some(*cell) != last_cell)
                .collect(),
            engines: self
                .engines
                .iter()
                .filter(|row| known.get(&*row.engine) != Some(row))
                .collect(),
            forgotten: known
                .keys()
                .filter(|label| !rows.contains_key(*label))
                .copied()
                .collect(),
            requests: self
                .requests
                .iter()
                .take_while(|request| request.number >= next_request)
                .map(|request| &**request)
                .collect(),
            changes: self
                .changes
                .iter()
                .take_while(|change| change.number >= next_change)
                .collect(),
        }
    }

    fn rows(&self) -> impl Iterator<Item = (&str, &EngineRow)> {
        self.engines.iter().map(|row| (&*row.engine, row))
    }
}

impl Window {
    fn new(seconds: u64, history: &History, now: Duration) -> Self {
        let mut totals = Totals::default();
        for (_, cell) in history.totals.last(seconds, now) {
            totals.add(cell);
        }
        let mut errors: Vec<_> = totals
            .errors
            .iter()
            .map(|((fault, error), count)| ErrorCount {
                fault: *fault,
                error: error.clone(),
                count: *count,
            })
            .collect();
        errors.sort_by_key(|error| std::cmp::Reverse(error.count));
        Self {
            seconds,
            requests: totals.requests,
            faults: Faults::new(&totals),
            errors,
            attempts: totals.attempts,
            ttft_ms: Percentiles::new(&totals.first_byte),
            total_ms: Percentiles::new(&totals.total),
            outcomes: totals.outcomes,
            retries: RetryCounts {
                extra_attempts: totals.retries.extra_attempts,
                reasons: totals.retries.reasons,
                saved: totals.retries.saved,
                lost: totals.retries.lost,
                backoff: totals.retries.backoff,
                discarded: totals.retries.discarded,
            },
        }
    }
}

impl CellOfAll {
    fn new(cell: u64, totals: &Totals) -> Self {
        Self {
            cell,
            requests: totals.requests,
            outcomes: totals.outcomes.clone(),
            faults: Faults::new(totals),
            extra_attempts: totals.retries.extra_attempts,
            saved: totals.retries.saved,
            lost: totals.retries.lost,
            ttft_ms: Percentiles::new(&totals.first_byte),
            total_ms: Percentiles::new(&totals.total),
        }
    }
}

impl Faults {
    fn new(totals: &Totals) -> Self {
        Self {
            fleet: totals.faults(Fault::Fleet),
            router: totals.faults(Fault::Router),
            client: totals.faults(Fault::Client),
        }
    }
}

impl Percentiles {
    fn new(histogram: &Histogram) -> Self {
        let rounded = |q| Some((histogram.quantile(q)? * 10.0).round() / 10.0);
        Self {
            p50: rounded(0.5),
            p95: rounded(0.95),
            p99: rounded(0.99),
        }
    }
}

impl EngineRow {
    fn new(label: Arc<str>, standing: Standing, history: &History, now: Duration) -> Self {
        let ring = history.engines.get(&label);
        let windows = WINDOWS.map(|seconds| {
            let mut sum = Work::default();
            for (_, work) in ring.into_iter().flat_map(|ring| ring.last(seconds, now)) {
                sum.add(work);
            }
            WorkWindow {
                seconds,
                attempts: sum.attempts,
                errors: sum.errors,
                retried: sum.retried,
                ttft_ms: Percentiles::new(&sum.first_byte),
            }
        });
        let cells = ring.into_iter().flat_map(|ring| ring.last(WINDOW, now));
        let mut cells: Vec<_> = cells
            .filter(|(_, work)| work.attempts > 0)
            .map(|(cell, work)| (cell, work.attempts, work.errors))
            .collect();
        cells.reverse();
        Self {
            engine: label,
            standing,
            windows: windows.into(),
            cells,
        }
    }
}

#[cfg(test)]
mod tests;
