//! Maps whose keys are a few words that nobody outside chooses.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Something by words: the names of engines, of outcomes, of paths and models that are served. They
/// are looked up at every request, and not hashed against an attack, which a client, who can add
/// none, cannot make with them.
pub(crate) type Words<T> = HashMap<Arc<str>, T, BuildHasherDefault<Quick>>;

/// A hash for words.
#[derive(Debug, Default)]
pub(crate) struct Quick(u64);

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    // What ends a word in a hash of several.
    fn write_u8(&mut self, _end: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}
