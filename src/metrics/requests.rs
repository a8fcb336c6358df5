//! Series of requests, by route and model.

use std::sync::OnceLock;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry, Result};

use super::handles::Handles;
use super::models::Models;
use super::names;
use super::pace::Pace;
use super::register::{counters, histograms};
use crate::record::{ANSWERED, Record};
use crate::retry::StopReason;

/// Counts requests once they have ended.
#[derive(Debug)]
pub(super) struct Requests {
    families: Families,
    known: Handles<OfModel>,
    models: Models,
}

#[derive(Debug)]
struct Families {
    requests: IntCounterVec,
    saved: IntCounterVec,
    exhausted: IntCounterVec,
    attempts: HistogramVec,
    duration: HistogramVec,
    first_token: HistogramVec,
    inter_token: HistogramVec,
    received: IntCounterVec,
    sent: IntCounterVec,
    prompt_tokens: IntCounterVec,
    cached_tokens: IntCounterVec,
    completion_tokens: IntCounterVec,
}

/// The series of a route and a model. Most exist only once they have something to say: a model that
/// embeds has no pace.
#[derive(Debug)]
struct OfModel {
    model: Box<str>,
    duration: Histogram,
    received: IntCounter,
    sent: IntCounter,
    answered: OnceLock<IntCounter>,
    attempts: OnceLock<Histogram>,
    first_token: OnceLock<Histogram>,
    inter_token: OnceLock<Histogram>,
    prompt_tokens: OnceLock<IntCounter>,
    cached_tokens: OnceLock<IntCounter>,
    completion_tokens: OnceLock<IntCounter>,
}

impl Requests {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        Ok(Self {
            families: Families {
                requests: counters(registry, &names::REQUESTS)?,
                saved: counters(registry, &names::SAVED)?,
                exhausted: counters(registry, &names::EXHAUSTED)?,
                attempts: histograms(registry, &names::ATTEMPTS_PER_REQUEST)?,
                duration: histograms(registry, &names::DURATION)?,
                first_token: histograms(registry, &names::FIRST_TOKEN)?,
                inter_token: histograms(registry, &names::INTER_TOKEN)?,
                received: counters(registry, &names::RECEIVED)?,
                sent: counters(registry, &names::SENT)?,
                prompt_tokens: counters(registry, &names::PROMPT_TOKENS)?,
                cached_tokens: counters(registry, &names::CACHED_TOKENS)?,
                completion_tokens: counters(registry, &names::COMPLETION_TOKENS)?,
            },
            known: Handles::default(),
            models: Models::default(),
        })
    }

    pub(super) fn ended(&self, record: &Record<'_>) {
        self.with(record.route, record.model, |of| {
            self.families.count(record, of);
        });
    }

    /// The pace of a stream that begins.
    pub(super) fn pace(&self, route: &str, model: &str) -> Pace {
        self.with(route, model, |of| {
            let family = &self.families.inter_token;
            let make = || family.with_label_values(&[route, &of.model]);
            Pace::new(of.inter_token.get_or_init(make))
        })
    }

    fn with<R>(&self, route: &str, model: &str, f: impl Fn(&OfModel) -> R) -> R {
        if let Some(result) = self.known.with(route, Models::or_unknown(model), &f) {
            return result;
        }
        let model = self.models.admit(model);
        let make = || self.families.of(route, model);
        self.known.add(route, model, make);
        // Nobody forgets what was added.
        self.known
            .with(route, model, &f)
            .unwrap_or_else(|| f(&make()))
    }
}

impl Families {
    fn of(&self, route: &str, model: &str) -> OfModel {
        OfModel {
            model: model.into(),
            duration: self.duration.with_label_values(&[route, model]),
            received: self.received.with_label_values(&[route]),
            sent: self.sent.with_label_values(&[route]),
            answered: OnceLock::new(),
            attempts: OnceLock::new(),
            first_token: OnceLock::new(),
            inter_token: OnceLock::new(),
            prompt_tokens: OnceLock::new(),
            cached_tokens: OnceLock::new(),
            completion_tokens: OnceLock::new(),
        }
    }

    fn count(&self, record: &Record<'_>, of: &OfModel) {
        let (route, model) = (record.route, &*of.model);
        let ended = || {
            let status = StatusText::new(record.status);
            let labels = [route, model, record.outcome, status.as_str()];
            self.requests.with_label_values(&labels)
        };
        // How nearly all of them end; other ends are looked up.
        if record.outcome == ANSWERED && record.status == 200 {
            of.answered.get_or_init(ended).inc();
        } else {
            ended().inc();
        }
        of.duration.observe(record.total.as_secs_f64());
        of.received.inc_by(record.bytes_in as u64);
        of.sent.inc_by(record.bytes_out as u64);
        if (200..300).contains(&record.status)
            && let Some(first_byte) = record.first_byte
        {
            let make = || self.first_token.with_label_values(&[route, model]);
            let first_token = of.first_token.get_or_init(make);
            first_token.observe(first_byte.as_secs_f64());
        }
        if !record.attempts.is_empty() {
            let make = || self.attempts.with_label_values(&[model]);
            let attempts = of.attempts.get_or_init(make);
            #[allow(clippy::cast_precision_loss)] // as many as fit into a request's life
            attempts.observe(record.attempts.len() as f64);
        }
        if record.attempts.len() > 1 && record.is_success() {
            self.saved.with_label_values(&[model]).inc();
        }
        if record.stop == Some(StopReason::BudgetSpent) {
            self.exhausted.with_label_values(&[model]).inc();
        }
        for (tokens, series, family) in [
            (record.usage.prompt, &of.prompt_tokens, &self.prompt_tokens),
            (record.usage.cached, &of.cached_tokens, &self.cached_tokens),
            (
                record.usage.completion,
                &of.completion_tokens,
                &self.completion_tokens,
            ),
        ] {
            if let Some(tokens) = tokens {
                let make = || family.with_label_values(&[model]);
                series.get_or_init(make).inc_by(tokens);
            }
        }
    }
}

/// A status as text, without an allocation.
struct StatusText([u8; 3]);

impl StatusText {
    fn new(status: u16) -> Self {
        let digit = |place: u16| b"0123456789".get(usize::from(status / place % 10)).copied();
        Self([100, 10, 1].map(|place| digit(place).unwrap_or(b'0')))
    }

    fn as_str(&self) -> &str {
        match &self.0 {
            b"000" => "0",
            digits => std::str::from_utf8(digits).unwrap_or("0"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::models;

    #[test]
    fn a_status_is_three_digits_or_zero() {
        assert_eq!(StatusText::new(503).as_str(), "503");
        assert_eq!(StatusText::new(0).as_str(), "0");
    }

    #[test]
    fn a_flood_of_models_shares_one_name() {
        let requests = Requests::new(&Registry::new()).unwrap();
        let name = |n: usize| requests.with("/r", &format!("m{n}"), |of| of.model.clone());
        (0..2 * models::MOST).for_each(|n| drop(name(n)));
        assert_eq!(&*name(7), "m7");
        assert_eq!(&*name(models::MOST), models::OTHER);
    }
}
