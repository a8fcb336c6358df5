//! The engines that have seen one block.

use crate::engines::EngineId;

/// The most engines that are known for one block. There is no need of more: who looks for an
/// engine with this beginning has these to choose from.
pub(super) const MOST_HOLDERS: usize = 32;

/// An engine that has seen a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The engine.
    pub engine: EngineId,
    /// Which of its lives it was in: the next one has forgotten.
    pub incarnation: u32,
    /// When it was last sent a prompt with the block, in milliseconds.
    pub(super) used: u64,
}

/// The engines that have seen a block. Most blocks are one engine's, and cost no list.
#[derive(Debug)]
pub(super) enum Holders {
    One(Holder),
    Several(Vec<Holder>),
}

impl Holders {
    pub(super) fn as_slice(&self) -> &[Holder] {
        match self {
            Self::One(holder) => std::slice::from_ref(holder),
            Self::Several(list) => list,
        }
    }

    /// Bytes of its list, without what the allocator adds; 0 where there is none.
    pub(super) fn list_bytes(&self) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Several(list) => list.capacity() * size_of::<Holder>(),
        }
    }

    /// Takes note that `holder` has the block now. Those that no longer count make way.
    pub(super) fn touch(&mut self, holder: Holder, counts: &impl Fn(&Holder) -> bool) {
        let known = match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Several(list) => list,
        };
        if let Some(known) = known.iter_mut().find(|one| one.engine == holder.engine) {
            *known = holder;
            return;
        }
        match self {
            Self::One(one) if counts(one) => *self = Self::Several(vec![*one, holder]),
            Self::One(one) => *one = holder,
            Self::Several(list) => {
                if list.len() == list.capacity() {
                    list.retain(counts);
                }
                if list.len() < MOST_HOLDERS {
                    list.push(holder);
                } else if let Some(oldest) = list.iter_mut().min_by_key(|one| one.used) {
                    *oldest = holder;
                }
            }
        }
    }

    /// A number that tells sets of holders apart, whatever their order.
    pub(super) fn signature(&self) -> u64 {
        self.as_slice().iter().fold(0, |sum: u64, holder| {
            let one = holder.engine.number() << 32 | u64::from(holder.incarnation);
            sum.wrapping_add((one + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(engine: u32, used: u64) -> Holder {
        Holder {
            engine: EngineId::new(engine),
            incarnation: 0,
            used,
        }
    }

    fn engines(holders: &Holders) -> Vec<u64> {
        let mut engines: Vec<_> = holders
            .as_slice()
            .iter()
            .map(|holder| holder.engine.number())
            .collect();
        engines.sort_unstable();
        engines
    }

    #[test]
    fn an_engine_is_listed_once_and_in_its_last_life() {
        let mut holders = Holders::One(holder(1, 0));
        let reborn = Holder {
            incarnation: 1,
            ..holder(1, 5)
        };
        holders.touch(reborn, &|_| true);
        assert_eq!(holders.as_slice(), [reborn]);
        assert_eq!(holders.list_bytes(), 0);
    }

    #[test]
    fn the_engine_that_was_used_longest_ago_makes_way() {
        let mut holders = Holders::One(holder(0, 100));
        for engine in 1..32 {
            holders.touch(holder(engine, u64::from(engine)), &|_| true);
        }
        assert_eq!(engines(&holders).len(), MOST_HOLDERS);
        holders.touch(holder(99, 101), &|_| true);
        assert_eq!(engines(&holders).len(), MOST_HOLDERS);
        assert!(!engines(&holders).contains(&1) && engines(&holders).contains(&0));
        assert_eq!(holders.list_bytes(), MOST_HOLDERS * 16);
    }

    #[test]
    fn engines_that_no_longer_count_make_way_before_the_list_grows() {
        let counts = |one: &Holder| one.engine.number() != 1;
        let mut holders = Holders::One(holder(1, 0));
        holders.touch(holder(2, 0), &counts);
        assert_eq!(engines(&holders), [2]);
        holders.touch(holder(1, 0), &counts);
        holders.touch(holder(3, 0), &counts);
        assert_eq!(engines(&holders), [2, 3]);
        assert_eq!(holders.list_bytes(), 2 * 16);
    }

    #[test]
    fn the_signature_is_of_the_set() {
        let of = |order: [u32; 3]| {
            Holders::Several(order.map(|engine| holder(engine, 0)).to_vec()).signature()
        };
        assert_eq!(of([1, 2, 3]), of([3, 1, 2]));
        assert_ne!(of([1, 2, 3]), of([1, 2, 4]));
        assert_ne!(of([0, 1, 2]), Holders::One(holder(1, 0)).signature());
    }
}
