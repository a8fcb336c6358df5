//! The names models are counted under.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The model of requests that were not routed by one.
const UNKNOWN: &str = "unknown";

/// The model of all those that came after [`MOST`] others.
pub(super) const OTHER: &str = "other";

/// So many models have series of their own. Engines may load adapters under ever new names, and a
/// name costs a few dozen series.
pub(super) const MOST: usize = 500;

/// The models that have series of their own: those that were asked for first.
#[derive(Debug, Default)]
pub(super) struct Models(Mutex<HashSet<Box<str>>>);

impl Models {
    /// The name of requests without a model, or of one that is always counted under its own.
    pub(super) fn or_unknown(model: &str) -> &str {
        if model.is_empty() { UNKNOWN } else { model }
    }

    /// The name `model` is counted under.
    pub(super) fn admit<'a>(&self, model: &'a str) -> &'a str {
        let model = Self::or_unknown(model);
        let mut models = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if models.contains(model) {
            return model;
        }
        if models.len() >= MOST {
            return OTHER;
        }
        models.insert(model.into());
        model
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_come_first_have_names_of_their_own() {
        let models = Models::default();
        let names: Vec<_> = (0..MOST).map(|n| format!("m{n}")).collect();
        for name in &names {
            assert_eq!(models.admit(name), name);
        }
        assert_eq!(models.admit("late"), OTHER);
        assert_eq!(models.admit(""), OTHER);
        assert_eq!(models.admit(&names[7]), names[7]);
        assert_eq!(Models::default().admit(""), UNKNOWN);
    }
}
