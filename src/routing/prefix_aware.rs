//! The engine that has the beginning of the prompt.

use std::sync::Arc;

use super::prefix_index::Holder;
use super::{Ask, Balance, Blocks, Candidates, LeastLoad, Member, PrefixIndex, Routing};
use crate::engines::EngineId;
use crate::retry::Standing;

/// How many bytes of a prompt in an engine's cache are worth one request more on it: to compute
/// some hundred tokens anew takes about as long as one more request in the batch costs the others.
const BYTES_PER_REQUEST: f64 = 1024.0;

/// Picks the engine that most likely has the beginning of the prompt in its cache, unless it is so
/// busy that computing anew elsewhere comes cheaper.
///
/// What an engine would cost is its load less what it need not compute, one request per
/// `BYTES_PER_REQUEST`. The cheapest of those that have seen a beginning of the prompt and of
/// the less busy one of two others is picked. So a conversation stays where it is, while a system
/// prompt that all share draws new ones to an engine only until others are as cheap without it.
///
/// The load alone decides where the engine to pick is above another eligible one by more than the
/// [`Balance`] allows, and for prompts nobody has seen. Whoever is picked is remembered for the
/// prompt.
#[derive(Debug)]
pub struct PrefixAware {
    index: Arc<PrefixIndex>,
    balance: Balance,
    least_match: usize,
    /// The place of each engine, by the number of its id; looked up for every engine that has
    /// seen a block, so it must be quick.
    places: Box<[Option<u32>]>,
}

/// An engine that has seen a beginning of the prompt.
#[derive(Clone, Copy, Debug)]
struct Match {
    place: usize,
    load: f64,
    cost: f64,
}

impl PrefixAware {
    /// The logic of a pool of `members`. What it learns it keeps in `index`.
    pub fn new(routing: &Routing, index: &Arc<PrefixIndex>, members: &[Member<'_>]) -> Self {
        Self {
            index: Arc::clone(index),
            balance: routing.balance,
            least_match: routing.prefix.least_match.max(Blocks::BYTES),
            places: places(members),
        }
    }

    /// The place of the engine that comes cheapest, which is remembered for the prompt.
    pub fn pick(&self, ask: &Ask<'_>, among: &dyn Candidates) -> Option<usize> {
        let drawn = LeastLoad.pick(ask, among)?;
        let Some(prompt) = ask.prompt.filter(|prompt| !prompt.is_empty()) else {
            return Some(drawn);
        };
        let is_any_eligible = among.standing(drawn) == Standing::Eligible;
        let place = is_any_eligible
            .then(|| self.cheapest(prompt, ask, among))
            .flatten()
            .filter(|found| {
                let load = among.load(drawn);
                found.cost <= load && !self.is_too_busy(found.load, load, among)
            })
            .map_or(drawn, |found| found.place);
        let counts = |holder: &Holder| self.place(holder, among).is_some();
        let (engine, incarnation) = (among.id(place), among.incarnation(place));
        self.index
            .record(prompt, engine, incarnation, ask.now, counts);
        Some(place)
    }

    /// The cheapest of the eligible engines that have seen a beginning of the prompt.
    fn cheapest(&self, prompt: &Blocks, ask: &Ask<'_>, among: &dyn Candidates) -> Option<Match> {
        let mut best: Option<Match> = None;
        let see = |length: usize, holders: &mut dyn Iterator<Item = Holder>| {
            for place in holders.filter_map(|holder| self.place(&holder, among)) {
                if among.standing(place) != Standing::Eligible {
                    continue;
                }
                let load = among.load(place);
                let cost = load - worth(length);
                if best.is_none_or(|best| cost < best.cost) {
                    best = Some(Match { place, load, cost });
                }
            }
            // Not even an idle engine would be cheaper with less than this.
            best.map_or(0, |best| worth_as_much(-best.cost))
        };
        self.index.walk_back(prompt, ask.now, self.least_match, see);
        best
    }

    /// Where the engine is that holds a block, if it is in the pool and in the same life still.
    fn place(&self, holder: &Holder, among: &dyn Candidates) -> Option<usize> {
        let place = self.places.get(number(holder.engine)).copied()?? as usize;
        (among.incarnation(place) == holder.incarnation).then_some(place)
    }

    /// Whether an engine of this load is above any eligible one by more than the balance allows.
    /// Seldom are all looked at: most engines are not busy enough, or a drawn one tells at once.
    fn is_too_busy(&self, load: f64, drawn: f64, among: &dyn Candidates) -> bool {
        let is_above = |other: f64| {
            load - other > self.balance.difference && load > self.balance.ratio * other
        };
        load > self.balance.difference
            && (is_above(drawn)
                || (0..among.count()).any(|place| {
                    among.standing(place) == Standing::Eligible && is_above(among.load(place))
                }))
    }
}

/// Ids are numbered from 0 on, so that a table by number has few gaps.
fn places(members: &[Member<'_>]) -> Box<[Option<u32>]> {
    let count = members.iter().map(|member| number(member.id) + 1).max();
    let mut places = vec![None; count.unwrap_or(0)];
    for (place, member) in (0u32..).zip(members) {
        if let Some(of) = places.get_mut(number(member.id)) {
            *of = Some(place);
        }
    }
    places.into()
}

fn number(engine: EngineId) -> usize {
    usize::try_from(engine.number()).unwrap_or(usize::MAX)
}

/// What so many bytes in the cache are worth, in requests.
#[allow(clippy::cast_precision_loss)] // at most 256 KiB
fn worth(bytes: usize) -> f64 {
    bytes as f64 / BYTES_PER_REQUEST
}

/// The bytes that are worth so many requests.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 0 is 0
fn worth_as_much(requests: f64) -> usize {
    (requests * BYTES_PER_REQUEST) as usize
}

#[cfg(test)]
mod tests;
