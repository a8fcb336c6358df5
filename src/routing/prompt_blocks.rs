//! A prompt as the chain of its blocks.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A prompt cut into blocks of [`BYTES`](Self::BYTES), each of which stands for all of the prompt
/// up to its end: two prompts that share their n-th block share all before it, too.
///
/// The last block of a prompt is left out where it is not whole, since the next turn of the
/// conversation goes on within it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blocks(Box<[u64]>);

impl Blocks {
    /// The length of a block.
    pub const BYTES: usize = 128;
    /// The most blocks of a prompt; what comes after is not told apart.
    pub const MOST: usize = 2048;
    /// The longest part of a prompt that is looked at.
    pub const MOST_BYTES: usize = Self::MOST * Self::BYTES;

    /// The blocks of `prompt`, asked of `model`: engines keep nothing of one model for another.
    pub fn of(model: &str, prompt: &[u8]) -> Self {
        let chain = prompt.chunks_exact(Self::BYTES).take(Self::MOST).scan(
            xxh3_64(model.as_bytes()),
            |before, block| {
                *before = xxh3_64_with_seed(block, *before);
                Some(*before)
            },
        );
        Self(chain.collect())
    }

    /// The hash of each block and of all before it.
    pub fn hashes(&self) -> &[u64] {
        &self.0
    }

    /// Whether the prompt is too short to have one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_whole_blocks_count_and_only_so_many() {
        let count = |length: usize| Blocks::of("m", &vec![b'x'; length]).hashes().len();
        assert_eq!([0, 127, 128, 255, 256].map(count), [0, 0, 1, 1, 2]);
        assert_eq!(count(Blocks::MOST_BYTES + 1000), Blocks::MOST);
    }

    #[test]
    fn the_same_prompt_of_another_model_is_another_one() {
        let prompt = [b'x'; 512];
        let (one, other) = (Blocks::of("m", &prompt), Blocks::of("n", &prompt));
        assert_eq!(one, Blocks::of("m", &prompt));
        assert!(one.hashes().iter().zip(other.hashes()).all(|(a, b)| a != b));
    }

    proptest! {
        #[test]
        fn blocks_are_shared_up_to_the_first_difference(
            prompt in prop::collection::vec(any::<u8>(), 128..2000),
            at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(prompt.len());
            let mut other = prompt.clone();
            other[at] ^= 1;
            let (one, other) = (Blocks::of("m", &prompt), Blocks::of("m", &other));
            for (n, (one, other)) in one.hashes().iter().zip(other.hashes()).enumerate() {
                prop_assert_eq!(one == other, n < at / Blocks::BYTES);
            }
        }

        #[test]
        fn a_longer_prompt_goes_on_where_the_shorter_ends(
            prompt in prop::collection::vec(any::<u8>(), 0..1000),
            more in prop::collection::vec(any::<u8>(), 0..1000),
        ) {
            let longer = [prompt.clone(), more].concat();
            let (one, other) = (Blocks::of("m", &prompt), Blocks::of("m", &longer));
            prop_assert!(other.hashes().starts_with(one.hashes()));
        }
    }
}
