//! A simulated engine, as far as it matters who is let in.

use std::collections::VecDeque;

use super::scenario::Scenario;

/// A request, by its number.
pub type Number = usize;

/// One engine.
#[derive(Clone, Debug)]
pub struct Engine {
    slots: usize,
    queue: usize,
    /// Whether requests are taken in one after the other, which takes time.
    prefills: bool,
    waiting: VecDeque<Number>,
    taking_in: Option<Number>,
    running: usize,
}

impl Engine {
    /// One with nothing to do.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            slots: scenario.slots,
            queue: scenario.queue,
            prefills: !scenario.prefill.is_zero(),
            waiting: VecDeque::new(),
            taking_in: None,
            running: 0,
        }
    }

    /// Lets a request in, to run or to wait; false if there is no room.
    pub fn accept(&mut self, request: Number) -> bool {
        let runs_at_once = self.may_begin() && self.waiting.is_empty();
        if !runs_at_once && self.waiting.len() >= self.queue {
            return false;
        }
        self.waiting.push_back(request);
        true
    }

    /// The next one to be taken in, if that can begin now.
    pub fn begin(&mut self) -> Option<Number> {
        if !self.may_begin() {
            return None;
        }
        let request = self.waiting.pop_front()?;
        self.running += 1;
        self.taking_in = self.prefills.then_some(request);
        Some(request)
    }

    fn may_begin(&self) -> bool {
        self.running < self.slots && self.taking_in.is_none()
    }

    /// The one that is being taken in has been.
    pub fn taken_in(&mut self) {
        self.taking_in = None;
    }

    /// One that ran has ended.
    pub fn ended(&mut self) {
        self.running -= 1;
    }
}
