//! What the engine received and what came of it: counters, and the last requests.
//!
//! Probes and scrapes (`/health`, `/metrics`, `/is_sleeping`, …) and the control path itself are not entered.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::fault::Fault;

/// How many requests are remembered.
const REMEMBERED: usize = 1024;

/// Counters and recent requests of one engine.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    counts: Counts,
    recent: VecDeque<Received>,
}

/// Counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests received, whatever came of them.
    pub received: u64,
    /// Heads of answers sent, by status. A stream that breaks later has sent its 200.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers cut by a reset on purpose.
    pub resets: u64,
    /// Answers cut by a close on purpose.
    pub closes: u64,
    /// Answers that fell silent on purpose.
    pub hangs: u64,
    /// Answers that ended as if the engine core had died: an error event, or status 500.
    pub engine_errors: u64,
    /// Answers the client did not wait for.
    pub aborted: u64,
}

/// One received request.
#[derive(Clone, Debug)]
struct Received {
    method: String,
    path: String,
    request_id: Option<String>,
    body_bytes: usize,
    body_hash: u64,
    status: Option<u16>,
    fault: Option<Fault>,
    ending: Ending,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Pending,
    Complete,
    Reset,
    Closed,
    Silent,
    EngineError,
    Aborted,
}

/// A request's line in the ledger.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line(u64);

// === impl Ledger ===

impl Ledger {
    /// Enters a request.
    pub(super) fn receive(
        &self,
        method: &str,
        path: &str,
        request_id: Option<&str>,
        (body_bytes, body_hash): (usize, u64),
    ) -> Line {
        let received = Received {
            method: method.to_owned(),
            path: path.to_owned(),
            request_id: request_id.map(str::to_owned),
            body_bytes,
            body_hash,
            status: None,
            fault: None,
            ending: Ending::Pending,
        };
        let mut state = self.lock();
        if state.recent.len() == REMEMBERED {
            state.recent.pop_front();
        }
        state.recent.push_back(received);
        state.counts.received += 1;
        Line(state.counts.received)
    }

    /// Notes that the head of an answer was sent.
    pub(super) fn head(&self, line: Line, status: u16) {
        let mut state = self.lock();
        *state.counts.statuses.entry(status).or_default() += 1;
        if let Some(received) = state.find(line) {
            received.status = Some(status);
        }
    }

    /// Notes the fault a request met.
    pub(super) fn fault(&self, line: Line, fault: Fault) {
        if let Some(received) = self.lock().find(line) {
            received.fault = Some(fault);
        }
    }

    /// What came of a request so far, in words: its status, fault and ending.
    pub(super) fn outcome(&self, line: Line) -> String {
        let mut state = self.lock();
        let Some(received) = state.find(line) else {
            return "forgotten".to_owned();
        };
        let status = received.status.map_or("-".to_owned(), |it| it.to_string());
        let fault = received.fault.map_or("-".to_owned(), |it| it.to_string());
        format!(
            "status={status} fault={fault} ending={}",
            received.ending.word()
        )
    }

    /// Notes how a request ended. A silent one that the client then leaves stays silent in its line
    /// and counts as aborted too.
    pub(super) fn end(&self, line: Line, ending: Ending) {
        let mut state = self.lock();
        match ending {
            Ending::Pending | Ending::Complete => {}
            Ending::Reset => state.counts.resets += 1,
            Ending::Closed => state.counts.closes += 1,
            Ending::Silent => state.counts.hangs += 1,
            Ending::EngineError => state.counts.engine_errors += 1,
            Ending::Aborted => state.counts.aborted += 1,
        }
        if let Some(received) = state.find(line)
            && received.ending != Ending::Silent
        {
            received.ending = ending;
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// The last requests, the oldest of them first.
    pub(super) fn last(&self, most: usize) -> Value {
        let state = self.lock();
        let skipped = state.recent.len().saturating_sub(most);
        let before = state.counts.received - u64::try_from(state.recent.len()).unwrap_or(0);
        let lines = state.recent.iter().zip(before + 1..).skip(skipped);
        lines
            .map(|(received, number)| received.to_json(number))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn find(&mut self, Line(number): Line) -> Option<&mut Received> {
        let from_the_end = usize::try_from(self.counts.received - number).ok()? + 1;
        let index = self.recent.len().checked_sub(from_the_end)?;
        self.recent.get_mut(index)
    }
}

// === impl Counts ===

impl Counts {
    pub(super) fn to_json(&self) -> Value {
        let Self {
            received,
            statuses,
            resets,
            closes,
            hangs,
            engine_errors,
            aborted,
        } = self;
        let statuses: BTreeMap<String, u64> = statuses
            .iter()
            .map(|(status, count)| (status.to_string(), *count))
            .collect();
        json!({
            "received": received, "statuses": statuses, "resets": resets, "closes": closes,
            "hangs": hangs, "engine_errors": engine_errors, "aborted": aborted,
        })
    }
}

// === impl Received ===

impl Received {
    fn to_json(&self, number: u64) -> Value {
        json!({
            "number": number,
            "method": self.method,
            "path": self.path,
            "x_request_id": self.request_id,
            "body_bytes": self.body_bytes,
            "body_fnv1a": format!("{:016x}", self.body_hash),
            "status": self.status,
            "fault": self.fault.map(|fault| fault.to_string()),
            "ending": self.ending.word(),
        })
    }
}

// === impl Ending ===

impl Ending {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Complete => "complete",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Silent => "silent",
            Self::EngineError => "engine-error",
            Self::Aborted => "aborted",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_requests_are_kept_in_order_and_the_oldest_forgotten() {
        let ledger = Ledger::default();
        let lines: Vec<Line> = (0..REMEMBERED + 2)
            .map(|n| ledger.receive("POST", &format!("/{n}"), None, (n, 0)))
            .collect();
        let (first, last) = (lines[0], lines[REMEMBERED + 1]);
        ledger.head(first, 503);
        ledger.end(first, Ending::Complete);
        ledger.head(last, 200);
        ledger.end(last, Ending::Reset);
        assert_eq!(ledger.last(5000).as_array().unwrap().len(), REMEMBERED);
        let two = ledger.last(2);
        assert_eq!(two[0]["ending"], "pending");
        assert_eq!(two[1]["path"], "/1025");
        assert_eq!(two[1]["number"], 1026);
        assert_eq!(
            (&two[1]["status"], &two[1]["ending"]),
            (&json!(200), &json!("reset"))
        );
        let counts = ledger.counts();
        assert_eq!((counts.received, counts.resets), (1026, 1));
        assert_eq!(counts.statuses[&503], 1);
    }
}
