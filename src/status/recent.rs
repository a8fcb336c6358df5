//! The last requests that somebody may ask about: those that failed, that were retried, that were
//! refused, or that waited for an engine.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::fault::{self, Fault};
use super::millis;
use crate::record::{self, Attempt, Record};

/// How many requests of each kind are remembered.
pub const REMEMBERED: usize = 100;
/// How many attempts, and how many holds, are told of one request: half of them the first, half the
/// last.
const TOLD: usize = 16;
/// The longest text that is kept of what a client or a configuration chose, in bytes.
const LONGEST: usize = 200;

/// Why a request is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It failed, by the fault of engines or of the router.
    Failed,
    /// It took more than one attempt, and nobody's fault is left.
    Retried,
    /// It was refused, by the client's fault.
    Refused,
    /// It waited for an engine to come up, took no further attempt, and is nobody's fault.
    Held,
}

/// A request that is remembered.
#[derive(Debug, serde::Serialize)]
pub struct Remembered {
    /// Its number among all that were remembered.
    pub number: u64,
    /// When it ended, since the process started.
    #[serde(rename = "at_ms", serialize_with = "millis")]
    pub at: Duration,
    /// Why it is remembered.
    pub kind: Kind,
    /// Whose fault it was.
    pub fault: Option<Fault>,
    /// What went wrong.
    pub error: Option<Box<str>>,
    id: Box<str>,
    client: Option<Box<str>>,
    method: Box<str>,
    path: Box<str>,
    model: Box<str>,
    stream: bool,
    status: u16,
    outcome: &'static str,
    reason: Box<str>,
    /// How many attempts there were; not all of many are told.
    attempts_made: usize,
    attempts: Vec<Try>,
    #[serde(rename = "upload_ms", serialize_with = "super::millis_if_any")]
    upload: Option<Duration>,
    #[serde(rename = "backoff_ms", serialize_with = "millis")]
    backoff: Duration,
    #[serde(rename = "hold_ms", serialize_with = "millis")]
    held: Duration,
    holds: Vec<Hold>,
    #[serde(rename = "ttft_ms", serialize_with = "super::millis_if_any")]
    first_byte: Option<Duration>,
    #[serde(rename = "total_ms", serialize_with = "millis")]
    total: Duration,
}

/// One attempt of it.
#[derive(Debug, serde::Serialize)]
struct Try {
    /// Its place among the attempts, from 1.
    number: usize,
    engine: Arc<str>,
    outcome: &'static str,
    status: Option<u16>,
    /// What made it necessary, unless it was the first.
    reason: Option<&'static str>,
    #[serde(rename = "backoff_ms", serialize_with = "millis")]
    backoff: Duration,
    #[serde(rename = "begun_ms", serialize_with = "millis")]
    begun: Duration,
    #[serde(rename = "took_ms", serialize_with = "millis")]
    took: Duration,
}

/// One wait of it for an engine to come up.
#[derive(Debug, serde::Serialize)]
struct Hold {
    #[serde(rename = "begun_ms", serialize_with = "millis")]
    begun: Duration,
    #[serde(rename = "took_ms", serialize_with = "millis")]
    took: Duration,
    /// How it ended.
    result: &'static str,
}

/// The last of each kind, so that a client that sends nothing but nonsense does not push out what
/// matters.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    next: u64,
    failed: VecDeque<Arc<Remembered>>,
    retried: VecDeque<Arc<Remembered>>,
    refused: VecDeque<Arc<Remembered>>,
    held: VecDeque<Arc<Remembered>>,
}

impl Recent {
    /// Remembers a request that has ended, if there is something to tell of it.
    pub fn note(&mut self, record: &Record<'_>, now: Duration) {
        let fault = Fault::of(record);
        let (kind, list) = match fault {
            Some(Fault::Fleet | Fault::Router) => (Kind::Failed, &mut self.failed),
            Some(Fault::Client) => (Kind::Refused, &mut self.refused),
            None if record.attempts.len() > 1 => (Kind::Retried, &mut self.retried),
            None if !record.holds.is_empty() => (Kind::Held, &mut self.held),
            None => return,
        };
        let error = fault.map(|_| fault::error(record).into());
        let remembered = Remembered::new(record, now, self.next, (kind, fault, error));
        self.next += 1;
        list.truncate(REMEMBERED - 1);
        list.push_front(Arc::new(remembered));
    }

    /// All that are remembered, the last first.
    pub fn all(&self) -> Vec<Arc<Remembered>> {
        let lists = [&self.failed, &self.retried, &self.refused, &self.held];
        let mut all: Vec<_> = lists.into_iter().flatten().cloned().collect();
        all.sort_unstable_by_key(|request| std::cmp::Reverse(request.number));
        all
    }
}

impl Remembered {
    fn new(
        record: &Record<'_>,
        now: Duration,
        number: u64,
        (kind, fault, error): (Kind, Option<Fault>, Option<Box<str>>),
    ) -> Self {
        Self {
            number,
            at: now,
            kind,
            fault,
            error,
            id: short(record.request_id),
            client: record.client.map(|client| client.to_string().into()),
            method: short(record.method),
            path: short(record.path),
            model: short(record.model),
            stream: record.stream,
            status: record.status,
            outcome: record.outcome,
            reason: short(record.reason),
            attempts_made: record.attempts.len(),
            attempts: told(record.attempts)
                .map(|(number, attempt)| Try::new(number, attempt))
                .collect(),
            upload: record.upload,
            backoff: record.backoff,
            held: record.held,
            holds: told(record.holds).map(|(_, hold)| hold.into()).collect(),
            first_byte: record.first_byte,
            total: record.total,
        }
    }
}

impl Try {
    fn new(number: usize, attempt: &Attempt) -> Self {
        Self {
            number,
            engine: Arc::clone(&attempt.engine),
            outcome: attempt.outcome,
            status: attempt.status,
            reason: attempt.retry.map(|(reason, _)| reason),
            backoff: attempt.retry.map_or(Duration::ZERO, |(_, backoff)| backoff),
            begun: attempt.begun,
            took: attempt.took,
        }
    }
}

impl From<&record::Hold> for Hold {
    fn from(hold: &record::Hold) -> Self {
        Self {
            begun: hold.begun,
            took: hold.took,
            result: hold.result,
        }
    }
}

/// What is told of a list, each with its place, from 1.
fn told<T>(all: &[T]) -> impl Iterator<Item = (usize, &T)> {
    let last = all.len().saturating_sub(TOLD / 2);
    let numbered = (1..).zip(all);
    numbered.filter(move |(number, _)| *number <= TOLD / 2 || *number > last)
}

/// As much of a text as is kept.
fn short(text: &str) -> Box<str> {
    if text.len() <= LONGEST {
        return text.into();
    }
    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
    let kept = text.get(..end.unwrap_or_default()).unwrap_or_default();
    format!("{kept}…").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::testing::{ms, record, retried};

    fn note(recent: &mut Recent, record: &Record<'_>) {
        recent.note(record, Duration::from_secs(7));
    }

    fn refused<'a>() -> Record<'a> {
        Record {
            outcome: "own_error",
            reason: "invalid_api_key",
            status: 401,
            ..record(&[])
        }
    }

    #[test]
    fn an_ordinary_request_is_not_remembered() {
        let mut recent = Recent::default();
        let attempts = retried(&["answered"], 10);
        note(&mut recent, &record(&attempts));
        note(
            &mut recent,
            &Record {
                outcome: "client_gone",
                status: 0,
                ..record(&attempts)
            },
        );
        assert!(recent.all().is_empty());
    }

    #[test]
    fn a_request_that_only_waited_for_an_engine_is_remembered_as_held() {
        let mut recent = Recent::default();
        let hold = |result| {
            [record::Hold {
                begun: ms(0),
                took: ms(3000),
                result,
            }]
        };
        let (served, gone) = (hold("served"), hold("client_gone"));
        let one = retried(&["answered"], 10);
        let two = retried(&["connect", "answered"], 10);
        let waited = |holds, attempts| Record {
            held: ms(3000),
            holds,
            ..record(attempts)
        };
        note(&mut recent, &waited(&served, &one));
        note(&mut recent, &waited(&served, &two));
        let left = Record {
            outcome: "client_gone",
            status: 0,
            ..waited(&gone, &[])
        };
        note(&mut recent, &left);
        let failed = Record {
            outcome: "exhausted",
            status: 503,
            ..waited(&served, &one)
        };
        note(&mut recent, &failed);
        let all = recent.all();
        let kinds: Vec<_> = all.iter().map(|request| request.kind).collect();
        assert_eq!(kinds, [Kind::Failed, Kind::Held, Kind::Retried, Kind::Held]);
        // However many wait while an engine starts, those that were retried stay.
        for _ in 0..2 * REMEMBERED {
            note(&mut recent, &waited(&served, &one));
        }
        let all = recent.all();
        assert_eq!(all.len(), REMEMBERED + 2);
        assert_eq!(
            all.iter().filter(|it| it.kind == Kind::Held).count(),
            REMEMBERED
        );
    }

    #[test]
    fn a_retried_request_is_told_with_all_its_attempts_and_waits() {
        let mut recent = Recent::default();
        let attempts = retried(&["retryable_status", "answered"], 10);
        note(
            &mut recent,
            &Record {
                upload: Some(ms(2)),
                backoff: ms(50),
                held: ms(3),
                holds: &[record::Hold {
                    begun: ms(57),
                    took: ms(3),
                    result: "served",
                }],
                first_byte: Some(Duration::from_micros(61_250)),
                total: ms(70),
                ..record(&attempts)
            },
        );
        let told = serde_json::to_value(&*recent.all()[0]).unwrap();
        let expected = serde_json::json!({
            "number": 0, "at_ms": 7000.0, "kind": "retried", "fault": null, "error": null,
            "id": "r-1", "client": "127.0.0.1:5000", "method": "POST", "path": "/v1/completions",
            "model": "m", "stream": true, "status": 200, "outcome": "answered",
            "reason": "answered", "attempts_made": 2,
            "attempts": [
                {"number": 1, "engine": "http://a", "outcome": "retryable_status", "status": 503,
                 "reason": null, "backoff_ms": 0.0, "begun_ms": 0.0, "took_ms": 10.0},
                {"number": 2, "engine": "http://b", "outcome": "answered", "status": 200,
                 "reason": "503", "backoff_ms": 50.0, "begun_ms": 60.0, "took_ms": 10.0},
            ],
            "upload_ms": 2.0, "backoff_ms": 50.0, "hold_ms": 3.0,
            "holds": [{"begun_ms": 57.0, "took_ms": 3.0, "result": "served"}],
            "ttft_ms": 61.3, "total_ms": 70.0,
        });
        assert_eq!(told, expected);
    }

    #[test]
    fn nonsense_does_not_push_out_what_matters() {
        let mut recent = Recent::default();
        let attempts = retried(&["connect", "connect"], 10);
        let failed = Record {
            outcome: "own_error",
            reason: "engine_unreachable",
            status: 502,
            ..record(&attempts)
        };
        note(&mut recent, &failed);
        for _ in 0..5 * REMEMBERED {
            note(&mut recent, &refused());
        }
        let all = recent.all();
        assert_eq!(all.len(), REMEMBERED + 1);
        let last = all.last().unwrap();
        assert_eq!(
            (last.number, last.kind, last.fault),
            (0, Kind::Failed, Some(Fault::Fleet))
        );
        assert_eq!(all[0].number, 5 * REMEMBERED as u64);
        assert!(all.is_sorted_by(|a, b| a.number > b.number));
    }

    #[test]
    fn what_others_chose_takes_little_room() {
        let mut recent = Recent::default();
        let long = "é".repeat(50_000);
        let attempts = retried(&["connect"; 1000], 1);
        let held = |begun| record::Hold {
            begun: ms(begun),
            took: ms(1),
            result: "served",
        };
        let holds: Vec<_> = (0..1000).map(held).collect();
        note(
            &mut recent,
            &Record {
                request_id: &long,
                method: &long,
                path: &long,
                model: &long,
                status: 0,
                outcome: "own_error",
                reason: "engine_unreachable",
                holds: &holds,
                ..record(&attempts)
            },
        );
        let told = serde_json::to_value(&*recent.all()[0]).unwrap();
        assert!(told.to_string().len() < 5000, "{}", told.to_string().len());
        assert_eq!(
            told["path"].as_str().unwrap().chars().count(),
            LONGEST / 2 + 1
        );
        let attempts = told["attempts"].as_array().unwrap().iter();
        let numbers: Vec<_> = attempts
            .map(|told| told["number"].as_u64().unwrap())
            .collect();
        assert_eq!(numbers, (1..=8).chain(993..=1000).collect::<Vec<_>>());
        assert_eq!(told["attempts_made"], 1000);
        let holds = told["holds"].as_array().unwrap().iter();
        let begun: Vec<_> = holds
            .map(|hold| hold["begun_ms"].as_f64().unwrap())
            .collect();
        let kept = (0..8).chain(992..1000).map(f64::from);
        assert_eq!(begun, kept.collect::<Vec<_>>());
    }
}
