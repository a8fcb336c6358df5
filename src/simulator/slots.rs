//! Who runs, who waits, who is turned away: the engine's two limits.
//!
//! Up to `max_num_seqs` requests run; later ones wait in order of arrival, and beyond
//! `max_num_queued_reqs` waiting ones a request is turned away. Both limits can change at any time.
//! Leaving is a drop: a [`Slot`] gives its place to the first in line, a [`Ticket`] leaves the line,
//! so a client that goes away is out of the gauges at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// The places of one engine.
#[derive(Debug)]
pub(super) struct Slots {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    max_running: usize,
    max_waiting: Option<usize>,
    running: usize,
    /// In order of arrival: numbers only grow.
    waiting: BTreeMap<u64, oneshot::Sender<Slot>>,
    arrivals: u64,
}

/// The answer to a request that wants to run.
#[derive(Debug)]
pub(super) enum Admission {
    Running(Slot),
    Waiting(Ticket),
    Full,
}

/// A running request's place.
#[derive(Debug)]
pub(super) struct Slot(Arc<Slots>);

/// A waiting request's place in line.
#[derive(Debug)]
pub(super) struct Ticket {
    slots: Arc<Slots>,
    number: u64,
    turn: oneshot::Receiver<Slot>,
}

// === impl Slots ===

impl Slots {
    pub(super) fn new(max_running: usize, max_waiting: Option<usize>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                max_running,
                max_waiting,
                running: 0,
                waiting: BTreeMap::new(),
                arrivals: 0,
            }),
        })
    }

    /// Runs, queues or turns away a new request.
    pub(super) fn admit(self: &Arc<Self>) -> Admission {
        let mut state = self.lock();
        if state.running < state.max_running && state.waiting.is_empty() {
            state.running += 1;
            return Admission::Running(Slot(Arc::clone(self)));
        }
        if state
            .max_waiting
            .is_some_and(|most| state.waiting.len() >= most)
        {
            return Admission::Full;
        }
        let (sender, turn) = oneshot::channel();
        let number = state.arrivals;
        state.arrivals += 1;
        state.waiting.insert(number, sender);
        Admission::Waiting(Ticket {
            slots: Arc::clone(self),
            number,
            turn,
        })
    }

    /// Puts new limits in place; a higher one lets waiting requests run at once.
    pub(super) fn set_limits(self: &Arc<Self>, max_running: usize, max_waiting: Option<usize>) {
        {
            let mut state = self.lock();
            state.max_running = max_running;
            state.max_waiting = max_waiting;
        }
        self.call_next();
    }

    /// How many requests run and how many wait.
    pub(super) fn gauges(&self) -> (usize, usize) {
        let state = self.lock();
        (state.running, state.waiting.len())
    }

    /// Hands free places to the line. The lock is not held while a slot is handed over: a slot
    /// nobody takes is dropped right there and comes back here.
    fn call_next(self: &Arc<Self>) {
        loop {
            let next = {
                let mut state = self.lock();
                if state.running >= state.max_running {
                    return;
                }
                let Some((_, next)) = state.waiting.pop_first() else {
                    return;
                };
                state.running += 1;
                next
            };
            drop(next.send(Slot(Arc::clone(self))));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Slot ===

impl Drop for Slot {
    fn drop(&mut self) {
        let line = {
            let mut state = self.0.lock();
            state.running = state.running.saturating_sub(1);
            !state.waiting.is_empty()
        };
        if line {
            self.0.call_next();
        }
    }
}

// === impl Ticket ===

impl Ticket {
    /// Waits for its turn. `None` only if the engine is gone.
    pub(super) async fn turn(mut self) -> Option<Slot> {
        (&mut self.turn).await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let sender = self.slots.lock().waiting.remove(&self.number);
        drop(sender);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_line_is_served_in_order_and_beyond_its_limit_requests_are_turned_away() {
        let slots = Slots::new(1, Some(2));
        let Admission::Running(first) = slots.admit() else {
            panic!("the first runs")
        };
        let Admission::Waiting(second) = slots.admit() else {
            panic!("the second waits")
        };
        let Admission::Waiting(third) = slots.admit() else {
            panic!("the third waits")
        };
        assert!(matches!(slots.admit(), Admission::Full));
        assert_eq!(slots.gauges(), (1, 2));
        drop(first);
        assert_eq!(slots.gauges(), (1, 1));
        let slot = second.turn().await.unwrap();
        drop(third);
        assert_eq!(slots.gauges(), (1, 0), "who leaves the line is out of it");
        drop(slot);
        assert_eq!(slots.gauges(), (0, 0));
    }

    #[tokio::test]
    async fn a_slot_handed_to_someone_who_left_comes_back() {
        let slots = Slots::new(1, None);
        let Admission::Running(first) = slots.admit() else {
            panic!("the first runs")
        };
        let Admission::Waiting(second) = slots.admit() else {
            panic!("the second waits")
        };
        drop(first);
        assert_eq!(slots.gauges(), (1, 0), "the second has been called");
        drop(second);
        assert_eq!(slots.gauges(), (0, 0));
    }

    #[tokio::test]
    async fn a_higher_limit_lets_the_line_run() {
        let slots = Slots::new(1, None);
        let _first = slots.admit();
        let line = [slots.admit(), slots.admit(), slots.admit()];
        slots.set_limits(3, Some(0));
        assert_eq!(slots.gauges(), (3, 1));
        assert!(matches!(slots.admit(), Admission::Full));
        drop(line);
        assert_eq!(slots.gauges(), (1, 0));
    }
}
