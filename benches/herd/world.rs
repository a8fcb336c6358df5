//! The world of one run: requests, the router's own pool and retry policy, simulated engines, and
//! a clock that jumps from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use vllm_pingora::retry::{Attempts, Next, Outcome, Resend, RetryConfig};
use vllm_pingora::routing::{Ask, Kind};

use super::engine::{Engine, Number};
use super::figures::Figures;
use super::scenario::Scenario;
use crate::fleet::Router;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Somebody else asks.
    Other,
    /// A request is sent to an engine, for the first time or again.
    Attempt(Number),
    /// An engine has taken in a request.
    TakenIn(usize),
    /// A request has run to its end.
    Ended(usize),
}

struct Request {
    attempts: Attempts,
    of_herd: bool,
}

/// One run.
pub struct World<'a> {
    scenario: &'a Scenario,
    config: Option<&'a RetryConfig>,
    now: Duration,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    /// Numbers events, so that those of one time come in the order they were made in.
    made: u64,
    /// When others ask, which no policy has a say in.
    arrivals: StdRng,
    dice: StdRng,
    router: Router,
    engines: Vec<Engine>,
    requests: Vec<Request>,
    figures: Figures,
}

impl<'a> World<'a> {
    /// The moment the fleet fails.
    pub fn new(scenario: &'a Scenario, config: Option<&'a RetryConfig>, seed: u64) -> Self {
        Self {
            scenario,
            config,
            now: Duration::ZERO,
            events: BinaryHeap::new(),
            made: 0,
            arrivals: StdRng::seed_from_u64(seed),
            dice: StdRng::seed_from_u64(!seed),
            router: Router::new(Kind::RoundRobin, scenario.engines),
            engines: vec![Engine::new(scenario); scenario.engines],
            requests: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Figures {
        for _ in 0..self.scenario.herd {
            self.ask(true);
        }
        if self.scenario.others > 0.0 {
            self.after(Duration::ZERO, Event::Other);
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            self.happen(event);
        }
        self.figures
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.made += 1;
        self.events
            .push(Reverse((self.now + wait, self.made, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Other => {
                self.figures.others += 1;
                self.ask(false);
                // The time between events that know nothing of each other.
                let gap = -(1.0 - self.arrivals.random::<f64>()).ln() / self.scenario.others;
                if self.now < self.scenario.refuses + self.scenario.watched {
                    self.after(Duration::from_secs_f64(gap), event);
                }
            }
            Event::Attempt(request) => self.attempt(request),
            Event::TakenIn(place) => {
                self.engines[place].taken_in();
                self.work(place);
            }
            Event::Ended(place) => {
                self.engines[place].ended();
                self.work(place);
            }
        }
    }

    fn ask(&mut self, of_herd: bool) {
        self.requests.push(Request {
            attempts: Attempts::new(self.config, Resend::Always),
            of_herd,
        });
        self.after(Duration::ZERO, Event::Attempt(self.requests.len() - 1));
    }

    /// The router's own work: picks an engine, and asks the retry policy what follows a refusal.
    fn attempt(&mut self, number: Number) {
        let request = &mut self.requests[number];
        let ask = Ask {
            draw: self.dice.random(),
            now: self.now,
            ..Ask::default()
        };
        let (engine, _) = self.router.place(&request.attempts, &ask);
        let engine = engine.id();
        request.attempts.begin(engine);
        self.figures.arrivals.push(self.now);
        let place = engine.number() as usize;
        let is_back = self.now >= self.scenario.refuses;
        if is_back && self.engines[place].accept(number) {
            if request.of_herd {
                self.figures.let_in.push(self.now);
            }
            self.work(place);
            return;
        }
        self.figures.refusals.push(self.now);
        let draw = self.dice.random();
        let outcome = Outcome::Status(503);
        match request.attempts.after(outcome, self.router.ids(), draw) {
            Next::Retry { backoff, .. } => self.after(backoff, Event::Attempt(number)),
            Next::Stop(_) if request.of_herd => self.figures.lost += 1,
            Next::Stop(_) => self.figures.others_lost += 1,
        }
    }

    /// Lets an engine begin whatever it can.
    fn work(&mut self, place: usize) {
        while self.engines[place].begin().is_some() {
            let runs = Scenario::spread(self.scenario.service, self.dice.random());
            self.after(self.scenario.prefill, Event::TakenIn(place));
            self.after(self.scenario.prefill + runs, Event::Ended(place));
        }
    }
}
