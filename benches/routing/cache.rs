//! The KV cache of an engine: what it remembers of prompts and answers, and what it forgets first.
//!
//! As in vLLM: blocks of running requests stay; those of finished ones are kept until room is
//! needed, the least recently used first, and of one prompt the last block first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use super::blocks::{BlockId, mixed};

/// The cache of one engine.
#[derive(Debug)]
pub struct Cache {
    /// How many blocks it holds at most.
    capacity: usize,
    known: HashMap<BlockId, Known, BuildHasherDefault<Mixer>>,
    /// Blocks nobody uses, by when they were last used. An entry counts if its time is the block's
    /// own: a block that was taken up again leaves its old entry behind.
    unused: VecDeque<(BlockId, u64)>,
    unused_blocks: usize,
    /// Blocks that are taken and whose tokens are not computed yet.
    blank: usize,
    clock: u64,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    users: u32,
    since: u64,
}

impl Cache {
    /// An empty cache of so many blocks.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            known: HashMap::default(),
            unused: VecDeque::new(),
            unused_blocks: 0,
            blank: 0,
            clock: 0,
        }
    }

    /// The part that running requests use, from 0 to 1.
    pub fn used(&self) -> f64 {
        (self.known.len() - self.unused_blocks + self.blank) as f64 / self.capacity as f64
    }

    /// How many blocks at the beginning of a prompt it has.
    pub fn has(&self, prompt: &[BlockId]) -> usize {
        let known = prompt.iter().take_while(|it| self.known.contains_key(it));
        known.count()
    }

    /// Uses blocks that it has.
    pub fn hold(&mut self, blocks: &[BlockId]) {
        for block in blocks {
            let known = self.known.get_mut(block).expect("the caller looked");
            self.unused_blocks -= usize::from(known.users == 0);
            known.users += 1;
        }
    }

    /// Takes blank blocks, and forgets others for them; `false` where running requests need all.
    pub fn take(&mut self, count: usize) -> bool {
        let wanted = self.known.len() + self.blank + count;
        let missing = wanted.saturating_sub(self.capacity);
        if missing > self.unused_blocks {
            return false;
        }
        for _ in 0..missing {
            self.forget();
        }
        self.blank += count;
        true
    }

    /// A blank block has been computed. What two requests compute at once is kept once.
    pub fn fill(&mut self, block: BlockId) {
        self.blank -= 1;
        let known = self.known.entry(block);
        let known = known.or_insert(Known { users: 0, since: 0 });
        // Nobody's, though known before: somebody computed it in the meantime and is done.
        self.unused_blocks -= usize::from(known.users == 0 && known.since > 0);
        known.users += 1;
    }

    /// Gives back what a request used: the first blocks of its chain, and blank ones.
    pub fn release(&mut self, chain: &[BlockId], blank: usize) {
        self.blank -= blank;
        for block in chain.iter().rev() {
            let known = self.known.get_mut(block).expect("it was held");
            known.users -= 1;
            if known.users == 0 {
                self.clock += 1;
                known.since = self.clock;
                self.unused.push_back((*block, self.clock));
                self.unused_blocks += 1;
            }
        }
    }

    fn forget(&mut self) {
        while let Some((block, since)) = self.unused.pop_front() {
            let known = self.known.get(&block);
            if known.is_some_and(|known| known.users == 0 && known.since == since) {
                self.known.remove(&block);
                self.unused_blocks -= 1;
                return;
            }
        }
    }
}

/// Mixes block ids, which are distinct already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("block ids are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mixed(number);
    }
}
