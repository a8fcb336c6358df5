//! The engines that serve one model.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::engine::{Engine, EngineId, InFlight};
use super::health::Fitness;
use crate::retry::{Attempts, Standing};
use crate::routing::{Ask, Candidates, LeastLoad, Logic, Logics, Member};

/// The engines that may serve a request, and the logic that chooses among them.
#[derive(Debug, Default)]
pub struct Pool {
    model: Arc<str>,
    seats: Vec<Seat>,
    ids: Vec<EngineId>,
    /// Requests of this pool that run.
    placed: Arc<AtomicUsize>,
    logic: Logic,
    /// The share of the engines that may be out; beyond it, health is ignored.
    most_out: f64,
    /// It was made for one engine that a request is held to.
    is_pinned: bool,
}

/// An engine in a pool.
#[derive(Clone, Debug)]
struct Seat {
    engine: Arc<Engine>,
    /// Requests of the pool that run on it.
    placed: Arc<AtomicUsize>,
}

/// Whether a pool has an engine to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hope {
    /// It has.
    Now,
    /// One that is out may be tried then, in the time of the process.
    At(Duration),
    /// None, until something changes.
    None,
}

/// A request that runs on an engine, counted until this is dropped.
#[derive(Debug)]
pub struct Placed {
    in_flight: InFlight,
    counts: [Arc<AtomicUsize>; 2],
}

impl Placed {
    /// Its answer has begun to come; said again, it changes nothing.
    pub fn answers(&mut self) {
        self.in_flight.answers();
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for count in &self.counts {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pool {
    /// The pool of `engines` for `model`. It takes the counts over, and what the routing logic
    /// has learnt, from `before`, the same model's pool until now.
    pub(super) fn new(
        model: Arc<str>,
        engines: Vec<Arc<Engine>>,
        logics: &Logics,
        most_out: f64,
        before: Option<&Self>,
    ) -> Self {
        let seats: Vec<_> = engines
            .into_iter()
            .map(|engine| {
                let seat = before.and_then(|before| before.seat(engine.id()));
                let placed = seat
                    .map(|seat| Arc::clone(&seat.placed))
                    .unwrap_or_default();
                Seat { engine, placed }
            })
            .collect();
        let members: Vec<_> = seats
            .iter()
            .map(|seat| Member {
                id: seat.engine.id(),
                name: seat.engine.label(),
                weight: seat.engine.weight(),
            })
            .collect();
        let logic = Logic::new(logics, &members, before.map(|before| &before.logic));
        let ids = seats.iter().map(|seat| seat.engine.id()).collect();
        let placed = before
            .map(|before| Arc::clone(&before.placed))
            .unwrap_or_default();
        Self {
            model,
            seats,
            ids,
            placed,
            logic,
            most_out,
            is_pinned: false,
        }
    }

    /// The pool of a model that nobody serves.
    pub(super) fn of_nobody(model: &str) -> Self {
        Self {
            model: model.into(),
            ..Self::default()
        }
    }

    /// Whether some engine is up, or may be tried to see whether it is, at `now`; else when one
    /// may be tried, if only time stands in the way of that.
    pub fn hope(&self, now: Duration) -> Hope {
        let mut next: Option<Duration> = None;
        for seat in self.seats.iter().filter(|seat| !seat.engine.is_gone()) {
            let fitness = seat.engine.fitness(now);
            if !matches!(fitness, Fitness::Out | Fitness::NotYet | Fitness::Asleep) {
                return Hope::Now;
            }
            if let Some(trial) = seat.engine.next_trial() {
                next = Some(next.map_or(trial, |next| next.min(trial)));
            }
        }
        next.map_or(Hope::None, Hope::At)
    }

    /// The same pool with no engine but this one; `None` where that is not in it.
    pub fn pinned(&self, engine: EngineId) -> Option<Self> {
        let seat = self.seat(engine)?.clone();
        Some(Self {
            model: Arc::clone(&self.model),
            seats: vec![seat],
            ids: vec![engine],
            placed: Arc::clone(&self.placed),
            logic: Logic::LeastLoad(LeastLoad),
            most_out: self.most_out,
            is_pinned: true,
        })
    }

    /// Whether requests are held to its one engine.
    pub fn is_pinned(&self) -> bool {
        self.is_pinned
    }

    /// The model, by the name engines know; empty for requests that name none.
    pub fn model(&self) -> &Arc<str> {
        &self.model
    }

    /// The engines' ids, in the order of the configuration.
    pub fn ids(&self) -> &[EngineId] {
        &self.ids
    }

    /// Those of them that may get an attempt at `now`: all that are not asleep.
    pub fn awake(&self, now: Duration) -> Vec<EngineId> {
        let seats = self.seats.iter();
        seats
            .filter(|seat| seat.engine.fitness(now) != Fitness::Asleep)
            .map(|seat| seat.engine.id())
            .collect()
    }

    /// The engines, in the order of the configuration.
    pub fn engines(&self) -> impl ExactSizeIterator<Item = &Arc<Engine>> {
        self.seats.iter().map(|seat| &seat.engine)
    }

    /// Whether nobody serves the model now.
    pub fn is_empty(&self) -> bool {
        self.seats.is_empty()
    }

    /// Chooses the engine for a request's next attempt, and counts it there; `None` where the
    /// pool has none to offer.
    pub fn place(&self, attempts: &Attempts, ask: &Ask<'_>) -> Option<(&Arc<Engine>, Placed)> {
        let ask = Ask {
            again: attempts.spent() > 0,
            ..*ask
        };
        let among = Among {
            pool: self,
            attempts,
            now: ask.now,
            draw: ask.draw,
            panic: OnceCell::new(),
        };
        let seat = self.seats.get(self.logic.pick(&ask, &among)?)?;
        if seat.engine.fitness(ask.now) == Fitness::Trial {
            seat.engine.trial_begins(ask.now);
        }
        let counts = [Arc::clone(&self.placed), Arc::clone(&seat.placed)];
        for count in &counts {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let placed = Placed {
            in_flight: seat.engine.enter(),
            counts,
        };
        Some((&seat.engine, placed))
    }

    fn seat(&self, engine: EngineId) -> Option<&Seat> {
        let place = self.ids.iter().position(|id| *id == engine)?;
        self.seats.get(place)
    }
}

/// The engines of a pool, as one request may use them.
struct Among<'a> {
    pool: &'a Pool,
    attempts: &'a Attempts,
    now: Duration,
    draw: u64,
    /// Whether so many engines are out that health is ignored.
    panic: OnceCell<bool>,
}

impl Among<'_> {
    /// Whether this request is among the part of all that an engine is to get.
    fn falls_within(&self, engine: EngineId, part: f64) -> bool {
        // Each engine sees another draw, so that two that warm up do not get the same requests.
        let draw = self.draw ^ engine.number().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let draw = draw.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
        #[allow(clippy::cast_precision_loss)] // 32 bits
        let draw = draw as f64 / f64::from(u32::MAX);
        draw < part
    }

    fn is_panic(&self) -> bool {
        *self.panic.get_or_init(|| {
            let (mut out, mut all) = (0.0, 0.0);
            for seat in &self.pool.seats {
                match seat.engine.fitness(self.now) {
                    Fitness::Out | Fitness::Trial => out += 1.0,
                    Fitness::Fit | Fitness::Warming(_) | Fitness::Last => {}
                    // Nobody doubts that.
                    Fitness::NotYet | Fitness::Asleep => continue,
                }
                all += 1.0;
            }
            out / all > self.pool.most_out
        })
    }

    fn engine(&self, place: usize) -> Option<&Engine> {
        self.pool.seats.get(place).map(|seat| &*seat.engine)
    }
}

impl Candidates for Among<'_> {
    fn count(&self) -> usize {
        self.pool.seats.len()
    }

    fn id(&self, place: usize) -> EngineId {
        self.pool
            .ids
            .get(place)
            .copied()
            .unwrap_or(EngineId::NOBODY)
    }

    fn standing(&self, place: usize) -> Standing {
        let Some((seat, id)) = self.pool.seats.get(place).zip(self.pool.ids.get(place)) else {
            return Standing::Excluded;
        };
        if seat.engine.is_gone() {
            return Standing::Excluded;
        }
        let standing = self.attempts.standing(*id);
        let health = match seat.engine.fitness(self.now) {
            Fitness::Fit | Fitness::Trial => Standing::Eligible,
            Fitness::Warming(part) if self.falls_within(*id, part) => Standing::Eligible,
            Fitness::Warming(_) | Fitness::Last => Standing::Last,
            Fitness::Out if self.is_panic() => Standing::Eligible,
            Fitness::Out | Fitness::NotYet => Standing::Doubtful,
            Fitness::Asleep => Standing::Excluded,
        };
        standing.max(health)
    }

    fn load(&self, place: usize) -> f64 {
        self.engine(place).map_or(f64::INFINITY, Engine::load)
    }

    fn placed(&self, place: usize) -> usize {
        let seat = self.pool.seats.get(place);
        seat.map_or(usize::MAX, |seat| seat.placed.load(Ordering::Relaxed))
    }

    fn placed_in_all(&self) -> usize {
        self.pool.placed.load(Ordering::Relaxed)
    }

    fn incarnation(&self, place: usize) -> u32 {
        self.engine(place).map_or(0, Engine::incarnation)
    }
}
