//! The retry settings that are compared.

use std::time::Duration;

use vllm_pingora::retry::{Backoff, RetryConfig, RetryValues};

/// Retry settings with a name.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    pub word: &'static str,
    /// None where nothing is asked again.
    pub values: Option<RetryValues>,
}

/// Grows from a tenth of a second to four seconds; twelve attempts last 26 s.
const GROWING: RetryValues = RetryValues {
    max_retries: 12,
    initial_backoff_ms: 100,
    max_backoff_ms: 4000,
    backoff_multiplier: 2.0,
    jitter_factor: 0.0,
};
/// As many seconds as attempts, to last as long.
const FIXED: RetryValues = RetryValues {
    max_retries: 27,
    initial_backoff_ms: 1000,
    max_backoff_ms: 1000,
    backoff_multiplier: 1.0,
    jitter_factor: 0.0,
};

/// All, in the order of every table.
pub fn policies() -> [Policy; 6] {
    let named = |word, values| Policy {
        word,
        values: Some(values),
    };
    let jitter = |jitter_factor| RetryValues {
        jitter_factor,
        ..GROWING
    };
    [
        Policy {
            word: "no retries",
            values: None,
        },
        named("the defaults", RetryValues::default()),
        named("fixed", FIXED),
        named("growing", GROWING),
        named("growing, jitter 0.2", jitter(0.2)),
        named("growing, jitter 1.0", jitter(1.0)),
    ]
}

impl Policy {
    /// The checked settings.
    pub fn config(&self) -> Option<RetryConfig> {
        let values = self.values?;
        Some(RetryConfig::try_new(values).expect("valid settings"))
    }

    /// The settings in words.
    pub fn told(&self) -> String {
        let Some(values) = self.values else {
            return "one attempt".to_owned();
        };
        let RetryValues {
            max_retries,
            initial_backoff_ms,
            max_backoff_ms,
            backoff_multiplier,
            jitter_factor,
        } = values;
        format!(
            "{max_retries} attempts, {initial_backoff_ms} ms × {backoff_multiplier} up to {max_backoff_ms} ms, ±{:.0} %; {:.1} s in all",
            100.0 * jitter_factor,
            self.lasts().as_secs_f64()
        )
    }

    /// What all backoffs of a request add up to in the mean.
    fn lasts(&self) -> Duration {
        let Some(config) = self.config() else {
            return Duration::ZERO;
        };
        let schedule = Backoff::new(&config);
        let waits = (0..config.max_retries() - 1).map(|taken| schedule.delay(taken, 0.5));
        waits.sum()
    }
}
