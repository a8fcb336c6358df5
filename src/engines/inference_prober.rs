//! Makes engines work a little, off the path of requests, to see whether they can.
//!
//! A vLLM server whose engine is frozen answers `/health` as ever, and would be found out by a
//! client's request only. So each engine is sent the smallest request of its models' type every
//! now and then, for one of its models after the other.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use http::Method;
use rand::RngExt as _;

use super::attend::attend;
use super::{AskError, Asker, Check, Condition, Engine, EngineKey, Fleet, Question};

/// The share by which the time between two probes is spread, so that they do not come in step.
const SPREAD: f64 = 0.1;

/// How often an engine is made to work, and for how long it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InferenceProbe {
    /// Between two probes of an engine.
    pub interval: Duration,
    /// For the whole answer; longer is a failure.
    pub timeout: Duration,
}

/// Makes the engines of a fleet work.
#[derive(Debug)]
pub struct InferenceProber {
    fleet: Arc<Fleet>,
    asker: Asker,
    probe: InferenceProbe,
    key: Arc<EngineKey>,
}

/// What an answer says of its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It works.
    Works,
    /// It has enough to do.
    Busy,
    /// It was asked for what it cannot do.
    Misasked,
    /// It does not work.
    Fails,
}

fn judge(answer: &Result<(u16, Bytes), AskError>) -> Verdict {
    match answer {
        Ok((200..300, _)) => Verdict::Works,
        Ok((408 | 429 | 503, _)) => Verdict::Busy,
        Ok((..500, _)) => Verdict::Misasked,
        Ok(_) | Err(_) => Verdict::Fails,
    }
}

impl InferenceProber {
    /// A prober of `fleet`; `key` is presented to engines.
    pub fn new(fleet: &Arc<Fleet>, probe: InferenceProbe, key: Arc<EngineKey>) -> Self {
        Self {
            fleet: Arc::clone(fleet),
            asker: Asker::new(probe.timeout),
            probe,
            key,
        }
    }

    /// Probes every engine once, now; `turn` counts the rounds, and with them its models.
    pub async fn round(&self, turn: usize) {
        let engines = self.fleet.engines();
        join_all(engines.iter().map(|engine| self.look(engine, turn))).await;
    }

    /// Goes on probing whoever belongs to the fleet, for ever.
    pub async fn run(&self) {
        attend(&self.fleet, |engine| async move {
            let first: f64 = rand::rng().random();
            tokio::time::sleep(self.probe.interval.mul_f64(first)).await;
            for turn in 0.. {
                self.look(&engine, turn).await;
                let spread: f64 = rand::rng().random_range(1.0 - SPREAD..1.0 + SPREAD);
                tokio::time::sleep(self.probe.interval.mul_f64(spread)).await;
            }
        })
        .await;
    }

    async fn look(&self, engine: &Engine, turn: usize) {
        let (condition, _) = engine.condition();
        if matches!(
            condition,
            Condition::Starting(_) | Condition::Sleeping | Condition::Down(Check::Health)
        ) {
            // The other probes say when it is back.
            return;
        }
        let models = self.fleet.models_of(engine.id());
        let Some(model) = models.get(turn % models.len().max(1)) else {
            return;
        };
        let sample = engine.model_type().sample(model);
        let authorization = self.key.authorization();
        let question = Question {
            method: &Method::POST,
            target: sample.path,
            authorization: authorization.as_deref().map(String::as_bytes),
            content_type: Some(sample.content_type.as_bytes()),
            body: &sample.body,
        };
        engine.inference_begins();
        let answer = self.asker.send(engine, &question).await;
        let verdict = judge(&answer);
        let said = match &answer {
            Ok((status, _)) => format!("it answered {status}"),
            Err(error) => error.to_string(),
        };
        let (label, word) = (engine.label(), engine.model_type().word());
        match verdict {
            Verdict::Works => self.fleet.inferred(engine, true),
            Verdict::Fails => {
                log::debug!("engine={label} model={model:?} inference probe failed: {said}");
                self.fleet.inferred(engine, false);
            }
            Verdict::Busy => {
                log::debug!("engine={label} model={model:?} inference probe told nothing: {said}");
            }
            Verdict::Misasked => log::warn!(
                "engine={label} model={model:?} inference probe told nothing: {said}; is its type \
                 {word}?"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_work_from_too_much_of_it_and_from_none() {
        for (statuses, verdict) in [
            (&[200, 201][..], Verdict::Works),
            (&[408, 429, 503], Verdict::Busy),
            (&[301, 400, 401, 404, 422], Verdict::Misasked),
            (&[500, 501, 502, 504], Verdict::Fails),
        ] {
            for status in statuses {
                assert_eq!(judge(&Ok((*status, Bytes::new()))), verdict, "{status}");
            }
        }
        let silence = AskError::Timeout(Duration::from_secs(1));
        assert_eq!(judge(&Err(silence)), Verdict::Fails);
    }
}
