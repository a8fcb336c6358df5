//! How busy an engine is, as one number.

/// What is known of an engine's work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Attempts of this router that run on it.
    pub in_flight: usize,
    /// Requests that run or wait on it and are not this router's.
    pub foreign: f64,
    /// Requests that wait in its queue, whoever sent them.
    pub waiting: f64,
    /// Used part of its KV cache, from 0 to 1.
    pub kv_cache: f64,
}

impl Load {
    /// One number to compare engines by; 0 is idle.
    ///
    /// Every request counts once, and one that waits counts once more: those that run share a
    /// batch and hardly slow each other down, a queue is time lost before the first token. A full
    /// KV cache doubles it all, since the next request may push others out.
    pub fn score(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)] // no engine has 2^52 requests
        let requests = self.in_flight as f64 + self.foreign + self.waiting;
        requests * (1.0 + self.kv_cache.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_engine_has_no_load() {
        let warm = Load {
            kv_cache: 0.9,
            ..Load::default()
        };
        assert_eq!((Load::default().score(), warm.score()), (0.0, 0.0));
    }

    #[test]
    fn a_request_that_waits_weighs_more_than_one_that_runs() {
        let runs = Load {
            in_flight: 4,
            ..Load::default()
        };
        let waits = Load {
            in_flight: 3,
            waiting: 2.0,
            ..Load::default()
        };
        assert!(waits.score() > runs.score());
    }

    #[test]
    fn of_two_engines_with_the_same_requests_the_one_with_room_in_its_cache_is_less_busy() {
        let full = Load {
            in_flight: 4,
            kv_cache: 0.95,
            ..Load::default()
        };
        let roomy = Load {
            in_flight: 4,
            kv_cache: 0.2,
            ..Load::default()
        };
        assert!(full.score() > roomy.score());
    }

    #[test]
    fn foreign_requests_count_like_our_own() {
        let own = Load {
            in_flight: 4,
            ..Load::default()
        };
        let theirs = Load {
            foreign: 4.0,
            ..Load::default()
        };
        assert_eq!(own.score().to_bits(), theirs.score().to_bits());
    }
}
