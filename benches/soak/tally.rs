//! What came of every request, and what was wrong.

use std::collections::BTreeMap;
use std::sync::Mutex;

/// How many faults are told in full.
const TOLD: usize = 25;

/// Counts of results by kind of request, and the faults.
#[derive(Debug, Default)]
pub struct Tally(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    results: BTreeMap<&'static str, BTreeMap<String, u64>>,
    wrong: Vec<String>,
    wrong_count: u64,
    kept_connections: u64,
    new_connections: u64,
}

impl Tally {
    /// One request of this kind ended like this.
    pub fn count(&self, kind: &'static str, result: &str) {
        let mut state = self.0.lock().expect("no panic");
        let results = state.results.entry(kind).or_default();
        *results.entry(result.to_owned()).or_default() += 1;
    }

    /// An ordinary request went on a connection that had carried one before, or on a new one.
    pub fn reused(&self, reused: bool) {
        let mut state = self.0.lock().expect("no panic");
        if reused {
            state.kept_connections += 1;
        } else {
            state.new_connections += 1;
        }
    }

    /// How many ordinary requests went on kept connections, and how many on new ones.
    pub fn connections(&self) -> (u64, u64) {
        let state = self.0.lock().expect("no panic");
        (state.kept_connections, state.new_connections)
    }

    /// Something must not have happened.
    pub fn wrong(&self, what: String) {
        let mut state = self.0.lock().expect("no panic");
        state.wrong_count += 1;
        eprintln!("WRONG: {what}");
        if state.wrong.len() < TOLD {
            state.wrong.push(what);
        }
    }

    /// The results by kind.
    pub fn results(&self) -> BTreeMap<&'static str, BTreeMap<String, u64>> {
        self.0.lock().expect("no panic").results.clone()
    }

    /// How many faults there were, and the first of them.
    pub fn faults(&self) -> (u64, Vec<String>) {
        let state = self.0.lock().expect("no panic");
        (state.wrong_count, state.wrong.clone())
    }

    /// How many requests there were.
    pub fn requests(&self) -> u64 {
        let state = self.0.lock().expect("no panic");
        state.results.values().flat_map(BTreeMap::values).sum()
    }
}
