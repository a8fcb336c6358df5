//! A part of the index, with a lock and bounds of its own.

use std::num::NonZeroUsize;

use lru::LruCache;

use super::holders::{Holder, Holders};

/// What an allocator may add to a piece of memory.
const ALLOCATION: usize = 16;
/// A block: its hash, its holders, and two links that keep the order of use.
const ENTRY: usize = size_of::<u64>() + size_of::<Holders>() + 2 * size_of::<usize>() + ALLOCATION;
/// A bucket of the table: two pointers to an entry, and a byte of control.
const BUCKET: usize = 2 * size_of::<usize>() + 1;
/// What a block is expected to cost, with its part of the lists of holders.
const EXPECTED: usize = ENTRY + 16;

/// Blocks and their holders, in the order of use.
///
/// The table is made once, in the size it will have: growing would hold the lock for long, and
/// need the old and the new one at once. It is at most seven sixteenths full, which lets it reuse
/// the buckets of dropped blocks in place.
#[derive(Debug)]
pub(super) struct Shard {
    blocks: LruCache<u64, Holders>,
    most_blocks: usize,
    /// Bytes of the table.
    table: usize,
    /// Bytes of the lists of holders.
    lists: usize,
    /// For table, entries and lists together.
    most_bytes: usize,
}

impl Shard {
    /// A shard that takes up to `most_bytes`, or one block where that is too little.
    pub(super) fn new(most_bytes: usize) -> Self {
        let size = |log: u32| {
            let buckets = 1usize << log;
            let room = most_bytes.saturating_sub(buckets * BUCKET) / EXPECTED;
            (buckets / 16 * 7 - 1).min(room)
        };
        let most_blocks = (4..40).map(size).max().unwrap_or(0).max(1);
        let capacity = NonZeroUsize::MIN.saturating_add(2 * most_blocks);
        let buckets = (capacity.get() * 8 / 7 + 1).next_power_of_two();
        Self {
            blocks: LruCache::new(capacity),
            most_blocks,
            table: buckets * BUCKET,
            lists: 0,
            most_bytes,
        }
    }

    /// Changes the bound; what was used last stays.
    pub(super) fn resize(&mut self, most_bytes: usize) {
        if most_bytes == self.most_bytes {
            return;
        }
        let mut resized = Self::new(most_bytes);
        while let Some((block, holders)) = self.blocks.pop_lru() {
            resized.lists += cost_of_list(&holders);
            if resized.blocks.len() >= resized.most_blocks {
                resized.drop_oldest();
            }
            resized.blocks.put(block, holders);
            resized.shrink();
        }
        *self = resized;
    }

    /// The holders of a block. Does not count as a use.
    pub(super) fn holders(&self, block: u64) -> Option<&Holders> {
        self.blocks.peek(&block)
    }

    /// Takes note that `holder` has the block, which is now the one used last.
    pub(super) fn touch(&mut self, block: u64, holder: Holder, counts: &impl Fn(&Holder) -> bool) {
        if let Some(holders) = self.blocks.get_mut(&block) {
            let before = cost_of_list(holders);
            holders.touch(holder, counts);
            self.lists = self.lists - before + cost_of_list(holders);
        } else {
            if self.blocks.len() >= self.most_blocks {
                self.drop_oldest();
            }
            self.blocks.put(block, Holders::One(holder));
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.bytes() > self.most_bytes && self.blocks.len() > 1 {
            self.drop_oldest();
        }
    }

    /// The memory it takes, or a little more than that.
    pub(super) fn bytes(&self) -> usize {
        self.table + self.blocks.len() * ENTRY + self.lists
    }

    /// How many blocks it knows.
    pub(super) fn len(&self) -> usize {
        self.blocks.len()
    }

    fn drop_oldest(&mut self) {
        if let Some((_, holders)) = self.blocks.pop_lru() {
            self.lists -= cost_of_list(&holders);
        }
    }
}

fn cost_of_list(holders: &Holders) -> usize {
    match holders.list_bytes() {
        0 => 0,
        bytes => bytes + ALLOCATION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::EngineId;

    fn holder(engine: u32) -> Holder {
        Holder {
            engine: EngineId::new(engine),
            incarnation: 0,
            used: 0,
        }
    }

    #[test]
    fn an_entry_is_as_large_as_counted() {
        assert_eq!((size_of::<Holder>(), size_of::<Holders>()), (16, 24));
    }

    #[test]
    fn most_of_the_memory_is_for_blocks() {
        for bytes in [1 << 12, 1 << 16, 3 << 18, 1 << 20, 1 << 22] {
            let mut shard = Shard::new(bytes);
            assert!(
                shard.bytes() <= bytes,
                "an empty table of {}",
                shard.bytes()
            );
            for block in 0..100_000 {
                shard.touch(block, holder(1), &|_| true);
                assert!(shard.bytes() <= bytes);
            }
            let used = shard.bytes();
            assert!(used > bytes / 100 * 65, "{used} of {bytes}");
        }
    }

    #[test]
    fn lists_of_holders_count() {
        let mut shard = Shard::new(1 << 16);
        for engine in 0..32 {
            for block in 0..10_000 {
                shard.touch(block, holder(engine), &|_| true);
            }
            assert!(shard.bytes() <= 1 << 16);
        }
        for block in 0..10_000 {
            shard.touch(block, holder(1), &|_| true);
        }
        assert_eq!(shard.lists, 0, "what is dropped is given back");
    }

    #[test]
    fn too_little_memory_is_enough_for_one_block() {
        let mut shard = Shard::new(0);
        shard.touch(1, holder(1), &|_| true);
        shard.touch(2, holder(1), &|_| true);
        assert!(shard.holders(1).is_none() && shard.holders(2).is_some());
    }
}
