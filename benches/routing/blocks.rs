//! Prompts as chains of blocks of 16 tokens, the unit in which an engine caches them.

/// Tokens in a block.
pub const BLOCK: usize = 16;
/// Words of 8 bytes in a block: 4 bytes a token, as in English prose and code.
const WORDS: u64 = 8;

/// The tokens of a block and of all before it: two prompts share a block only where they share
/// their whole beginning up to it.
pub type BlockId = u64;

/// How many blocks so many tokens fill; every message is whole blocks, at least one.
pub fn blocks(tokens: f64) -> usize {
    ((tokens / BLOCK as f64).round() as usize).max(1)
}

/// Gives out the blocks of one author; no two authors write the same.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    next: BlockId,
}

impl Author {
    /// The author with this number.
    pub fn new(number: u64) -> Self {
        Self { next: number << 24 }
    }

    /// Writes `count` more blocks at the end of `chain`.
    pub fn write(&mut self, chain: &mut Vec<BlockId>, count: usize) {
        chain.extend((0..count).map(|_| {
            self.next += 1;
            self.next
        }));
    }
}

/// The text of a chain.
pub fn spell(chain: &[BlockId]) -> Vec<u8> {
    let words = chain
        .iter()
        .flat_map(|block| (0..WORDS).map(move |word| mixed(block << 3 | word).to_le_bytes()));
    words.flatten().collect()
}

/// The finaliser of `SplitMix64`.
pub fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
