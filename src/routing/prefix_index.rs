//! What is known of the engines' caches: which of them have seen which beginnings of prompts.

mod holders;
mod shard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::shard::Shard;
use super::{Blocks, PrefixLimits};
use crate::engines::EngineId;

pub use holders::Holder;

/// Blocks in a row that share a lock.
const RUN: usize = 16;
/// Memory that is worth a lock of its own.
const SHARD_BYTES: usize = 4 << 20;
/// The most locks.
const MOST_SHARDS: usize = 64;

/// Engines by the blocks they have seen, within a bound of memory.
///
/// What was used longest ago is forgotten first, and of a prompt its end before its beginning. A
/// prompt is spread over the locks in runs of sixteen blocks: in one piece, all prompts with one
/// system prompt would share one lock, and its part of the memory. So the order of forgetting is
/// exact within each part, and nearly so over all; a block whose beginning was forgotten first
/// still says the truth, since its hash covers all before it.
///
/// One index serves all pools. Blocks of different models differ, so pools do not disturb each
/// other.
#[derive(Debug)]
pub struct PrefixIndex {
    shards: Box<[Mutex<Shard>]>,
    /// In milliseconds.
    ttl: AtomicU64,
}

impl PrefixIndex {
    /// An index with these bounds that knows nothing.
    pub fn new(limits: &PrefixLimits) -> Self {
        let count = (limits.memory / SHARD_BYTES).clamp(1, MOST_SHARDS);
        let shard = |_| Mutex::new(Shard::new(limits.memory / count));
        Self {
            shards: (0..count).map(shard).collect(),
            ttl: AtomicU64::new(millis(limits.ttl)),
        }
    }

    /// Changes the bounds. What is known stays, but for the oldest where there is less room now.
    pub fn set_limits(&self, limits: &PrefixLimits) {
        self.ttl.store(millis(limits.ttl), Ordering::Relaxed);
        let bytes = limits.memory / self.shards.len();
        for shard in &self.shards {
            lock(shard).resize(bytes);
        }
    }

    /// Takes note that an engine, in this incarnation, is sent `prompt` now. Other engines of the
    /// blocks that do not count any more make way.
    pub fn record(
        &self,
        prompt: &Blocks,
        engine: EngineId,
        incarnation: u32,
        now: Duration,
        counts: impl Fn(&Holder) -> bool,
    ) {
        let used = millis(now);
        let holder = Holder {
            engine,
            incarnation,
            used,
        };
        let counts = |holder: &Holder| self.is_fresh(holder, used) && counts(holder);
        // From the last to the first, so that the beginning is what was used last.
        for run in prompt.hashes().chunks(RUN).rev() {
            let mut shard = self.shard(run);
            for block in run.iter().rev() {
                shard.touch(*block, holder, &counts);
            }
        }
    }

    /// Looks at the engines that have seen a beginning of `prompt`, from the longest known one
    /// back to the shortest of at least `least` bytes. `see` is given the length of a beginning
    /// in bytes and those that have seen it, and says how long others must be to be of interest.
    ///
    /// Engines that have seen a longer beginning are seen again with a shorter one. Where nobody
    /// comes or goes nothing is shown.
    pub fn walk_back(
        &self,
        prompt: &Blocks,
        now: Duration,
        mut least: usize,
        mut see: impl FnMut(usize, &mut dyn Iterator<Item = Holder>) -> usize,
    ) {
        let now = millis(now);
        let known = self.known(prompt);
        let known = prompt.hashes().get(..known).unwrap_or_default();
        let mut shown = None;
        for (number, run) in known.chunks(RUN).enumerate().rev() {
            let shard = self.shard(run);
            for (at, block) in run.iter().enumerate().rev() {
                let length = (number * RUN + at + 1) * Blocks::BYTES;
                if length < least {
                    return;
                }
                let Some(holders) = shard.holders(*block) else {
                    continue;
                };
                let signature = Some(holders.signature());
                if signature == shown {
                    continue;
                }
                shown = signature;
                let mut fresh = holders
                    .as_slice()
                    .iter()
                    .filter(|holder| self.is_fresh(holder, now))
                    .copied();
                least = least.max(see(length, &mut fresh));
            }
        }
    }

    /// The memory it takes.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).bytes()).sum()
    }

    /// How many blocks it knows.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Whether it knows nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many blocks of the prompt are known. Since no block is known longer than those before
    /// it, there is no need to look at all of them.
    fn known(&self, prompt: &Blocks) -> usize {
        let hashes = prompt.hashes();
        let knows = |at: usize| {
            let run = hashes.chunks(RUN).nth(at / RUN).unwrap_or_default();
            let block = run.get(at % RUN);
            block.is_some_and(|block| self.shard(run).holders(*block).is_some())
        };
        let (mut low, mut high) = (0, hashes.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if knows(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn is_fresh(&self, holder: &Holder, now: u64) -> bool {
        now.saturating_sub(holder.used) < self.ttl.load(Ordering::Relaxed)
    }

    /// The shard of a run, by its first block: that is the same however long the prompt is.
    fn shard(&self, run: &[u64]) -> MutexGuard<'_, Shard> {
        let first = run.first().copied().unwrap_or(0);
        let place = usize::try_from(first >> 32).unwrap_or(0) % self.shards.len();
        #[allow(clippy::indexing_slicing)] // a remainder, and there is at least one
        lock(&self.shards[place])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
