//! Which of the engines that may serve a request gets its next attempt.
//!
//! A logic is given the [`Candidates`], each at a place from 0 on, and what it may know of the
//! request ([`Ask`]), and returns a place. It knows neither clocks nor dice nor sockets: the time
//! and one draw are part of the ask. Every logic honours the standing of a candidate: an excluded
//! one is never picked, and one that just answered a retryable status only where no other is left.

mod least_load;
mod load;
mod prefix_aware;
mod prefix_index;
mod prompt_blocks;
mod round_robin;
mod session;

pub use least_load::LeastLoad;
pub use load::Load;
pub use prefix_aware::PrefixAware;
pub use prefix_index::{Holder, PrefixIndex};
pub use prompt_blocks::Blocks;
pub use round_robin::RoundRobin;
pub use session::Session;

use std::sync::Arc;
use std::time::Duration;

use crate::engines::EngineId;
use crate::retry::Standing;

/// The engines that serve a request's model, as a routing logic sees them.
pub trait Candidates {
    /// How many there are; places run from 0 to below this.
    fn count(&self) -> usize;

    /// The engine at a place.
    fn id(&self, place: usize) -> EngineId;

    /// What the request may do with it now.
    fn standing(&self, place: usize) -> Standing;

    /// How busy it is, per unit of its weight: 0 is idle.
    fn load(&self, place: usize) -> f64;

    /// Requests of this pool that run on it.
    fn placed(&self, place: usize) -> usize;

    /// Requests of this pool that run on all of them.
    fn placed_in_all(&self) -> usize;

    /// Changes when the engine was started anew, and so lost all it had cached.
    fn incarnation(&self, place: usize) -> u32;
}

/// What a routing logic may know of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask<'a> {
    /// Whether this is another attempt after a first one.
    pub again: bool,
    /// The session the request belongs to.
    pub session: Option<&'a str>,
    /// Its prompt, where the logic goes by that and the request has one.
    pub prompt: Option<&'a Blocks>,
    /// Random bits, fresh for every pick.
    pub draw: u64,
    /// Time since the process started.
    pub now: Duration,
}

/// What a pool tells of an engine when its logic is made.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// Its name in this process.
    pub id: EngineId,
    /// A name that is the same in every process.
    pub name: &'a str,
    /// Its share of the requests, relative to the others; at least 1.
    pub weight: u32,
}

/// The routing logic of one pool.
#[derive(Debug)]
pub enum Logic {
    /// Each engine in turn.
    RoundRobin(RoundRobin),
    /// The less busy one of two.
    LeastLoad(LeastLoad),
    /// The one a session belongs to.
    Session(Session),
    /// The one that has the beginning of the prompt.
    PrefixAware(PrefixAware),
}

/// How engines are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Routing {
    /// The logic.
    pub kind: Kind,
    /// When `prefixaware` looks at load alone.
    pub balance: Balance,
    /// What `prefixaware` remembers.
    pub prefix: PrefixLimits,
}

/// How far an engine that has the prompt may be above the least busy one; both must be exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Balance {
    /// By so many requests.
    pub difference: f64,
    /// By this factor; at least 1.
    pub ratio: f64,
}

/// The bounds of what is remembered of prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixLimits {
    /// The shortest match that counts, in bytes.
    pub least_match: usize,
    /// The most memory for all of it, in bytes.
    pub memory: usize,
    /// How long an engine is taken to keep a prompt.
    pub ttl: Duration,
}

/// The logics there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Each engine in turn.
    #[default]
    RoundRobin,
    /// The less busy one of two.
    LeastLoad,
    /// The one a session belongs to.
    Session,
    /// The one that has the beginning of the prompt.
    PrefixAware,
}

impl Kind {
    /// Every logic, by its word in the configuration.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("roundrobin", Self::RoundRobin),
        ("leastload", Self::LeastLoad),
        ("session", Self::Session),
        ("prefixaware", Self::PrefixAware),
    ];

    /// The word in the configuration.
    pub fn word(self) -> &'static str {
        match self {
            Self::RoundRobin => "roundrobin",
            Self::LeastLoad => "leastload",
            Self::Session => "session",
            Self::PrefixAware => "prefixaware",
        }
    }

    /// Whether it looks at how busy the engines are.
    pub fn weighs_load(self) -> bool {
        self != Self::RoundRobin
    }
}

/// Makes the logic of each pool, and holds what the pools share.
#[derive(Clone, Debug)]
pub struct Logics {
    routing: Routing,
    /// One bound of memory for all pools; there only where it is used.
    index: Option<Arc<PrefixIndex>>,
}

impl Logics {
    /// Logics of this kind.
    pub fn new(routing: Routing) -> Self {
        let index = (routing.kind == Kind::PrefixAware)
            .then(|| Arc::new(PrefixIndex::new(&routing.prefix)));
        Self { routing, index }
    }

    /// Logics of this kind, which take over what these have learnt.
    #[must_use]
    pub fn changed(&self, routing: Routing) -> Self {
        match &self.index {
            Some(index) if routing.kind == Kind::PrefixAware => {
                index.set_limits(&routing.prefix);
                Self {
                    routing,
                    index: Some(Arc::clone(index)),
                }
            }
            _ => Self::new(routing),
        }
    }
}

impl Default for Logic {
    fn default() -> Self {
        Self::LeastLoad(LeastLoad)
    }
}

impl Logic {
    /// The logic of a pool of `members`, which takes over what `before`, the logic of the same
    /// pool with other members, has learnt.
    pub fn new(logics: &Logics, members: &[Member<'_>], before: Option<&Self>) -> Self {
        let Logics { routing, index } = logics;
        match (routing.kind, index) {
            (Kind::PrefixAware, Some(index)) => {
                Self::PrefixAware(PrefixAware::new(routing, index, members))
            }
            (Kind::RoundRobin, _) => {
                let before = match before {
                    Some(Self::RoundRobin(before)) => Some(before),
                    _ => None,
                };
                Self::RoundRobin(RoundRobin::new(members, before))
            }
            (Kind::Session, _) => Self::Session(Session::new(members)),
            (Kind::LeastLoad | Kind::PrefixAware, _) => Self::LeastLoad(LeastLoad),
        }
    }

    /// The place of the engine for the next attempt; `None` where all are excluded.
    pub fn pick(&self, ask: &Ask<'_>, among: &dyn Candidates) -> Option<usize> {
        let picked = match self {
            Self::RoundRobin(logic) => logic.pick(ask, among),
            Self::LeastLoad(logic) => logic.pick(ask, among),
            Self::Session(logic) => logic.pick(ask, among),
            Self::PrefixAware(logic) => logic.pick(ask, among),
        };
        // An engine that falls ill or gets well between two looks at it must not leave nobody.
        picked.or_else(|| first_of_best(among))
    }
}

/// The first engine of the best standing.
fn first_of_best(among: &dyn Candidates) -> Option<usize> {
    let standings = (0..among.count()).map(|place| (among.standing(place), place));
    let (standing, place) = standings.min()?;
    (standing != Standing::Excluded).then_some(place)
}

/// The best standing any engine has.
fn best_of(among: &dyn Candidates) -> Option<Standing> {
    let mut best = Standing::Excluded;
    for place in 0..among.count() {
        best = best.min(among.standing(place));
        if best == Standing::Eligible {
            break;
        }
    }
    (best != Standing::Excluded).then_some(best)
}

#[cfg(test)]
mod mock;

#[cfg(test)]
mod tests;
