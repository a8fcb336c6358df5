//! The engine a session belongs to.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};

use pingora_ketama::{Bucket, Continuum};
use xxhash_rust::xxh3::xxh3_128;

use super::{Ask, Candidates, LeastLoad, Member};
use crate::retry::Standing;

/// How far an engine may be above the mean: to keep a session is worth no more than that.
const BOUND: (usize, usize) = (5, 4);
/// How many points of the ring are looked at before somebody else is asked.
const MOST_POINTS: usize = 512;
/// Points of the ring grow with the weight; more than this would only cost memory.
const HEAVIEST: u32 = 100;

/// Picks by consistent hashing with bounded loads: a session keeps its engine while it is there,
/// and when one of n engines comes or goes, about 1/n of the sessions move. An engine with more
/// than 1.25 times the mean of the requests that run in the pool passes new ones on to the next
/// of the ring. Requests without a session go to the less busy one of two engines.
///
/// The ring is the same in every process, so that replicas of the router agree.
pub struct Session {
    ring: Continuum,
    places: HashMap<SocketAddr, u32>,
    shares: Box<[u32]>,
    total: u64,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("engines", &self.shares.len())
            .finish_non_exhaustive()
    }
}

impl Session {
    /// A ring of `members`.
    pub fn new(members: &[Member<'_>]) -> Self {
        let lightest = members
            .iter()
            .map(|member| member.weight)
            .min()
            .unwrap_or(1)
            .max(1);
        let buckets: Vec<_> = members
            .iter()
            .map(|member| {
                Bucket::new(
                    point(member.name),
                    (member.weight / lightest).clamp(1, HEAVIEST),
                )
            })
            .collect();
        Self {
            ring: Continuum::new(&buckets),
            places: (0u32..)
                .zip(members)
                .map(|(place, member)| (point(member.name), place))
                .collect(),
            shares: members.iter().map(|member| member.weight).collect(),
            total: members.iter().map(|member| u64::from(member.weight)).sum(),
        }
    }

    /// The place of the session's engine, or of the next one on the ring that may be picked and
    /// has room.
    pub fn pick(&self, ask: &Ask<'_>, among: &dyn Candidates) -> Option<usize> {
        let Some(session) = ask.session else {
            return LeastLoad.pick(ask, among);
        };
        let running = among.placed_in_all();
        let mut full = None;
        for node in self.ring.node_iter(session.as_bytes()).take(MOST_POINTS) {
            let Some(place) = self.places.get(node).map(|place| *place as usize) else {
                continue;
            };
            if among.standing(place) != Standing::Eligible {
                continue;
            }
            if among.placed(place) < self.most(place, running) {
                return Some(place);
            }
            full.get_or_insert(place);
        }
        full.or_else(|| LeastLoad.pick(ask, among))
    }

    /// The most requests an engine may have, the one to be placed included, when so many run.
    fn most(&self, place: usize, running: usize) -> usize {
        let share = self.shares.get(place).copied().unwrap_or(1);
        let (above, mean) = BOUND;
        let all = (running as u128 + 1) * above as u128 * u128::from(share);
        let most = all.div_ceil(mean as u128 * u128::from(self.total.max(1)));
        usize::try_from(most).unwrap_or(usize::MAX)
    }
}

/// The ring knows nodes by socket addresses. An engine's address may change, and two engines may
/// share one, so its name stands in, as 128 bits.
fn point(name: &str) -> SocketAddr {
    (Ipv6Addr::from(xxh3_128(name.as_bytes())), 0).into()
}

#[cfg(test)]
mod tests;
