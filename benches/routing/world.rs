//! The world of one run: users, the router's own pool of engines, simulated engines, and a clock
//! that jumps from event to event.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use vllm_pingora::engines::Gauges;
use vllm_pingora::retry::{Attempts, Failure, Next, Outcome, Resend};
use vllm_pingora::routing::Ask;

use super::blocks::{BLOCK, mixed};
use super::draws;
use super::engine::Engine;
use super::figures::{Answered, Figures};
use super::plan::{Plan, micros, seconds};
use super::prompt::Prompt;
use super::talk::Talk;
use super::trace::Trace;
use crate::fleet::Router;

/// Conversations begun per second and engine at a load of 1.
const BEGUN: f64 = 0.45;
/// How often the router looks at an engine's gauges, as by default.
const SCRAPE: u64 = 5_000_000;
/// How often loads are compared.
const SAMPLE: u64 = 100_000;
/// A client whose answer breaks off asks again after this.
const ASKS_AGAIN: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Somebody begins a conversation.
    Begin,
    /// A user sends what is next in a conversation.
    Send(usize),
    /// The router places the request of a conversation.
    Place(usize),
    /// An engine ends a step.
    Step(usize, u32),
    Scrape(usize),
    Sample,
    Lose,
    Return,
}

struct Seat {
    engine: Engine,
    /// Which start of the engine this is; its steps belong to one.
    start: u32,
    up: bool,
    /// The router has heard of this start, and when it last heard anything.
    heard: (u32, u64),
}

/// One run.
pub struct World {
    plan: Plan,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// Numbers events, so that those of one time come in the order they were made in.
    made: u64,
    trace: Trace,
    /// When conversations begin, which no logic has a say in.
    arrivals: StdRng,
    dice: StdRng,
    router: Router,
    talks: Vec<Option<Talk>>,
    seats: Vec<Seat>,
    figures: Figures,
}

impl World {
    /// A world before its first event.
    pub fn new(plan: Plan) -> Self {
        let seat = || Seat {
            engine: Engine::new(),
            start: 0,
            up: true,
            heard: (0, 0),
        };
        Self {
            plan,
            now: 0,
            events: BinaryHeap::new(),
            made: 0,
            trace: Trace::new(plan.seed, plan.engines),
            arrivals: StdRng::seed_from_u64(mixed(plan.seed ^ 1 << 63)),
            dice: StdRng::seed_from_u64(mixed(!plan.seed)),
            router: Router::new(plan.kind, plan.engines),
            talks: Vec::new(),
            seats: (0..plan.engines).map(|_| seat()).collect(),
            figures: Figures::new(&plan),
        }
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Figures {
        let end = micros(self.plan.warm_up + self.plan.measured);
        self.after(0, Event::Begin);
        self.after(0, Event::Sample);
        for engine in 0..self.plan.engines {
            let stagger = SCRAPE * engine as u64 / self.plan.engines as u64;
            self.after(stagger, Event::Scrape(engine));
        }
        if let Some((lost, back)) = self.plan.lost {
            self.after(micros(lost), Event::Lose);
            self.after(micros(back), Event::Return);
        }
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            self.happen(event);
        }
        self.figures
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.made += 1;
        self.events
            .push(Reverse((self.now + wait, self.made, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin => {
                let mut conversation = self.trace.begin();
                let next = conversation.first();
                self.talks.push(Some(Talk::new(conversation, next)));
                self.after(0, Event::Send(self.talks.len() - 1));
                let rate = BEGUN * self.plan.load * self.plan.engines as f64;
                let gap = draws::gap(&mut self.arrivals, rate);
                self.after(seconds(gap), Event::Begin);
            }
            Event::Send(talk) => self.send(talk),
            Event::Place(talk) => self.place(talk),
            Event::Step(engine, start) if start == self.seats[engine].start => self.step(engine),
            Event::Step(..) => {}
            Event::Scrape(engine) => {
                self.scrape(engine);
                self.after(SCRAPE, event);
            }
            Event::Sample => {
                let engines = self.router.engines();
                let up = self.seats.iter().zip(&*engines);
                let loads = up.filter(|(seat, _)| seat.up);
                let loads: Vec<_> = loads.map(|(_, engine)| engine.in_flight()).collect();
                self.figures.sample(self.now, &loads);
                self.after(SAMPLE, event);
            }
            Event::Lose => self.lose(),
            Event::Return => self.seats[0].up = true,
        }
    }

    fn send(&mut self, talk: usize) {
        let talk_of = self.talks[talk].as_mut().expect("it goes on");
        talk_of.attempts = Attempts::new(Some(self.router.retries()), Resend::Always);
        talk_of.sent = self.now;
        talk_of.first = None;
        self.figures.asked(self.now, talk_of.next.prompt());
        self.place(talk);
    }

    /// The router's own work: picks an engine, and another one where that refuses.
    fn place(&mut self, talk: usize) {
        let talk_of = self.talks[talk].as_mut().expect("it goes on");
        let prompt = Prompt::of(self.plan.kind, talk_of.next.prompt());
        let ask = Ask {
            session: Some(talk_of.conversation.user()),
            draw: self.dice.random(),
            now: Duration::from_micros(self.now),
            ..prompt.ask()
        };
        let (engine, placed) = self.router.place(&talk_of.attempts, &ask);
        talk_of.attempts.begin(engine.id());
        let place = engine.id().number() as usize;
        if !self.seats[place].up {
            drop(placed);
            // What the proxy does where nobody listens.
            self.router.engines()[place].restarted();
            self.fail(talk, Failure::Connect);
            return;
        }
        talk_of.running = Some(placed);
        self.figures.placed(self.now, talk_of.last, place);
        talk_of.last = Some(place);
        let turn = talk_of.next.clone();
        self.seats[place].engine.accept(talk, turn);
        self.work(place);
    }

    /// Asks the retry policy what follows a failure.
    fn fail(&mut self, talk: usize, failure: Failure) {
        let talk_of = self.talks[talk].as_mut().expect("it goes on");
        talk_of.running = None;
        let draw = self.dice.random();
        let next = talk_of
            .attempts
            .after(Outcome::Failed(failure), self.router.ids(), draw);
        let Next::Retry { backoff, .. } = next else {
            unreachable!("one engine of many fails, which takes two attempts at most");
        };
        self.figures.failed(self.now);
        self.after(micros(backoff), Event::Place(talk));
    }

    fn work(&mut self, place: usize) {
        let seat = &mut self.seats[place];
        if let Some(took) = seat.engine.begin() {
            let event = Event::Step(place, seat.start);
            self.after(took, event);
        }
    }

    fn step(&mut self, place: usize) {
        let ended = self.seats[place].engine.end();
        for (talk, hit) in ended.first {
            let talk_of = self.talks[talk].as_mut().expect("it goes on");
            if talk_of.first.is_none() {
                talk_of.first = Some(self.now);
                self.figures.answered(&Answered {
                    at: self.now,
                    sent: talk_of.sent,
                    prompt: talk_of.next.prompt * BLOCK,
                    hit,
                });
            }
        }
        for talk in ended.last {
            let talk_of = self.talks[talk].as_mut().expect("it goes on");
            talk_of.running = None;
            self.figures.ended(self.now, talk_of.sent);
            if let Some((think, next)) = talk_of.conversation.next() {
                talk_of.next = next;
                self.after(seconds(think), Event::Send(talk));
            } else {
                self.talks[talk] = None;
            }
        }
        self.work(place);
    }

    /// What the router's scraper does with what it hears.
    fn scrape(&mut self, place: usize) {
        let (seat, known) = (&mut self.seats[place], &self.router.engines()[place]);
        let (start, at) = seat.heard;
        if !seat.up {
            if self.now - at >= 3 * SCRAPE {
                known.report(None);
            }
            return;
        }
        if start != seat.start {
            known.restarted();
        }
        seat.heard = (seat.start, self.now);
        let (running, waiting) = seat.engine.requests();
        known.report(Some(&Gauges {
            running: running as f64,
            waiting: waiting as f64,
            kv_cache: seat.engine.kv_cache(),
            started: None,
        }));
    }

    /// The first engine is gone. Requests without a token are asked again by the router, the
    /// others by their clients.
    fn lose(&mut self) {
        self.seats[0] = Seat {
            engine: Engine::new(),
            start: self.seats[0].start + 1,
            up: false,
            heard: self.seats[0].heard,
        };
        for talk in 0..self.talks.len() {
            let Some(talk_of) = &mut self.talks[talk] else {
                continue;
            };
            if talk_of.running.is_none() || talk_of.last != Some(0) {
                continue;
            }
            if talk_of.first.is_none() {
                self.fail(talk, Failure::Closed);
            } else {
                talk_of.running = None;
                self.figures.failed(self.now);
                self.after(ASKS_AGAIN, Event::Send(talk));
            }
        }
    }
}
