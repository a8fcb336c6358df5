//! The settings of the retry policy, in a type that cannot hold a wrong one.

use std::time::Duration;

/// The smallest accepted `max_retries`: one send and one more.
pub const MIN_MAX_RETRIES: u32 = 2;

/// What an operator writes, before it is checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryValues {
    /// Budget of a request: all attempts, the first included.
    pub max_retries: u64,
    /// The first backoff, in milliseconds.
    pub initial_backoff_ms: u64,
    /// The longest backoff before jitter, in milliseconds.
    pub max_backoff_ms: u64,
    /// Growth of the backoff from one to the next.
    pub backoff_multiplier: f64,
    /// Half-width of the jitter, as a share of the backoff.
    pub jitter_factor: f64,
}

impl Default for RetryValues {
    fn default() -> Self {
        Self {
            max_retries: 5,
            initial_backoff_ms: 50,
            max_backoff_ms: 30_000,
            backoff_multiplier: 1.5,
            jitter_factor: 0.2,
        }
    }
}

/// A setting of the retry policy that is out of its range.
///
/// The text starts with the key, then says what was found and what is accepted.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RetryConfigError {
    /// `max_retries` is below two or does not fit 32 bits.
    #[error(
        "max_retries: {0} is not accepted; it counts all attempts, the first included, and must be between 2 and 4294967295"
    )]
    MaxRetries(u64),
    /// `initial_backoff_ms` is zero.
    #[error("initial_backoff_ms: {0} is not accepted; it must be at least 1")]
    InitialBackoff(u64),
    /// `max_backoff_ms` is shorter than `initial_backoff_ms`.
    #[error(
        "max_backoff_ms: {longest} is shorter than initial_backoff_ms ({first}); it must be at least as long"
    )]
    Reversed {
        /// `initial_backoff_ms` as given.
        first: u64,
        /// `max_backoff_ms` as given.
        longest: u64,
    },
    /// `backoff_multiplier` would shrink the backoff, or is not a finite number.
    #[error("backoff_multiplier: {0} is not accepted; it must be a finite number of at least 1")]
    Multiplier(f64),
    /// `jitter_factor` is outside `[0, 1]`, or not a number.
    #[error("jitter_factor: {0} is not accepted; it must be a number between 0 and 1")]
    Jitter(f64),
}

impl RetryConfigError {
    /// The key of the setting at fault.
    pub fn key(&self) -> &'static str {
        match self {
            Self::MaxRetries(_) => "max_retries",
            Self::InitialBackoff(_) => "initial_backoff_ms",
            Self::Reversed { .. } => "max_backoff_ms",
            Self::Multiplier(_) => "backoff_multiplier",
            Self::Jitter(_) => "jitter_factor",
        }
    }
}

/// The checked settings of the retry policy. Having one means it is valid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetryConfig {
    max_retries: u32,
    initial_backoff_ms: u64,
    max_backoff_ms: u64,
    backoff_multiplier: f64,
    jitter_factor: f64,
}

impl RetryConfig {
    /// Checks the values.
    ///
    /// # Errors
    /// Every setting that is out of its range, in the order of the fields.
    pub fn try_new(values: RetryValues) -> Result<Self, Vec<RetryConfigError>> {
        let mut errors = Vec::new();
        let max_retries = u32::try_from(values.max_retries)
            .ok()
            .filter(|n| *n >= MIN_MAX_RETRIES)
            .unwrap_or_else(|| {
                errors.push(RetryConfigError::MaxRetries(values.max_retries));
                MIN_MAX_RETRIES
            });
        if values.initial_backoff_ms == 0 {
            errors.push(RetryConfigError::InitialBackoff(values.initial_backoff_ms));
        }
        if values.max_backoff_ms < values.initial_backoff_ms {
            errors.push(RetryConfigError::Reversed {
                first: values.initial_backoff_ms,
                longest: values.max_backoff_ms,
            });
        }
        if !(values.backoff_multiplier.is_finite() && values.backoff_multiplier >= 1.0) {
            errors.push(RetryConfigError::Multiplier(values.backoff_multiplier));
        }
        if !(0.0..=1.0).contains(&values.jitter_factor) {
            errors.push(RetryConfigError::Jitter(values.jitter_factor));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            max_retries,
            initial_backoff_ms: values.initial_backoff_ms,
            max_backoff_ms: values.max_backoff_ms,
            backoff_multiplier: values.backoff_multiplier,
            jitter_factor: values.jitter_factor,
        })
    }

    /// The budget of a request: all attempts, the first included; at least 2.
    pub fn max_retries(&self) -> u32 {
        self.max_retries
    }

    /// The first backoff before jitter.
    pub fn initial_backoff(&self) -> Duration {
        Duration::from_millis(self.initial_backoff_ms)
    }

    /// The longest backoff before jitter.
    pub fn max_backoff(&self) -> Duration {
        Duration::from_millis(self.max_backoff_ms)
    }

    /// Growth of the backoff from one to the next; finite, at least 1.
    pub fn backoff_multiplier(&self) -> f64 {
        self.backoff_multiplier
    }

    /// Half-width of the jitter as a share of the backoff; in `[0, 1]`.
    pub fn jitter_factor(&self) -> f64 {
        self.jitter_factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert!(RetryConfig::try_new(RetryValues::default()).is_ok());
    }

    #[test]
    fn each_setting_names_its_own_mistake() {
        let base = RetryValues::default();
        let cases = [
            (
                RetryValues {
                    max_retries: 0,
                    ..base
                },
                "max_retries",
            ),
            (
                RetryValues {
                    max_retries: 1,
                    ..base
                },
                "max_retries",
            ),
            (
                RetryValues {
                    max_retries: 4_294_967_297,
                    ..base
                },
                "max_retries",
            ),
            (
                RetryValues {
                    initial_backoff_ms: 0,
                    ..base
                },
                "initial_backoff_ms",
            ),
            (
                RetryValues {
                    max_backoff_ms: 49,
                    ..base
                },
                "max_backoff_ms",
            ),
            (
                RetryValues {
                    backoff_multiplier: 0.5,
                    ..base
                },
                "backoff_multiplier",
            ),
            (
                RetryValues {
                    backoff_multiplier: f64::INFINITY,
                    ..base
                },
                "backoff_multiplier",
            ),
            (
                RetryValues {
                    backoff_multiplier: f64::NAN,
                    ..base
                },
                "backoff_multiplier",
            ),
            (
                RetryValues {
                    jitter_factor: -0.1,
                    ..base
                },
                "jitter_factor",
            ),
            (
                RetryValues {
                    jitter_factor: 1.5,
                    ..base
                },
                "jitter_factor",
            ),
            (
                RetryValues {
                    jitter_factor: f64::NAN,
                    ..base
                },
                "jitter_factor",
            ),
        ];
        for (values, key) in cases {
            let errors = RetryConfig::try_new(values).unwrap_err();
            assert_eq!(errors.len(), 1, "{values:?}");
            assert_eq!(errors[0].key(), key);
            assert!(errors[0].to_string().starts_with(&format!("{key}: ")));
        }
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let errors = RetryConfig::try_new(RetryValues {
            max_retries: 1,
            initial_backoff_ms: 0,
            max_backoff_ms: 0,
            backoff_multiplier: 0.0,
            jitter_factor: 2.0,
        })
        .unwrap_err();
        assert_eq!(errors.len(), 4);
    }

    #[test]
    fn the_bounds_themselves_are_accepted() {
        let edge = RetryConfig::try_new(RetryValues {
            max_retries: 2,
            initial_backoff_ms: 1,
            max_backoff_ms: 1,
            backoff_multiplier: 1.0,
            jitter_factor: 1.0,
        });
        assert!(edge.is_ok());
    }
}
