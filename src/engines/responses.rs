//! Remembers which engine made which response.
//!
//! A vLLM server keeps the answers of `POST /v1/responses` in its own memory. Whoever reads or
//! cancels one, or goes on from it, has to be sent to the engine that made it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

use super::EngineId;

/// How many responses are remembered; beyond it the one not asked for the longest is forgotten.
/// At about 100 bytes each that is 10 MB.
pub const REMEMBERED: usize = 100_000;

/// The longest id that is remembered; vLLM's own have 21 bytes.
pub const LONGEST_ID: usize = 128;

/// From the ids of responses to the engines that made them.
pub struct Responses(Mutex<LruCache<Box<str>, EngineId>>);

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses")
            .field("remembered", &self.lock().len())
            .finish()
    }
}

impl Default for Responses {
    fn default() -> Self {
        // A bounded one would take its whole room at once.
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl Responses {
    /// Takes note that `engine` made the response `id`. Clients may choose ids: of two engines
    /// that made the same one, the last counts. An id longer than [`LONGEST_ID`] is not kept.
    pub fn remember(&self, id: &str, engine: EngineId) {
        if id.len() > LONGEST_ID {
            return;
        }
        let mut known = self.lock();
        known.put(id.into(), engine);
        if known.len() > REMEMBERED {
            known.pop_lru();
        }
    }

    /// The engine that made the response `id`, as far as is remembered.
    pub fn engine_of(&self, id: &str) -> Option<EngineId> {
        self.lock().get(id).copied()
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Box<str>, EngineId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_leads_to_the_engine_that_made_it_last() {
        let responses = Responses::default();
        let (one, two) = (EngineId::new(1), EngineId::new(2));
        responses.remember("resp_a", one);
        responses.remember("resp_b", two);
        assert_eq!(responses.engine_of("resp_a"), Some(one));
        assert_eq!(responses.engine_of("resp_b"), Some(two));
        assert_eq!(responses.engine_of("resp_c"), None);
        responses.remember("resp_a", two);
        assert_eq!(responses.engine_of("resp_a"), Some(two));
    }

    #[test]
    fn what_was_not_asked_for_the_longest_is_forgotten() {
        let responses = Responses::default();
        let engine = EngineId::new(1);
        for n in 0..REMEMBERED {
            responses.remember(&format!("resp_{n}"), engine);
        }
        assert!(responses.engine_of("resp_0").is_some());
        responses.remember("resp_new", engine);
        assert!(responses.engine_of("resp_0").is_some());
        assert!(responses.engine_of("resp_1").is_none());
        assert_eq!(responses.lock().len(), REMEMBERED);
    }

    #[test]
    fn an_endless_id_is_not_kept() {
        let responses = Responses::default();
        let longest = "a".repeat(LONGEST_ID);
        responses.remember(&longest, EngineId::new(1));
        assert!(responses.engine_of(&longest).is_some());
        let longer = format!("{longest}a");
        responses.remember(&longer, EngineId::new(1));
        assert!(responses.engine_of(&longer).is_none());
    }
}
