//! What control calls change of that which the router knows of engines.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;

use super::Control;
use crate::engines::{AskError, Engine, Sleep};

/// What a call changes of that which the router knows of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// The models it serves.
    Models,
    /// What it has cached of prompts: that is gone.
    Cache,
    /// The same, and it gets no requests until it is awake.
    Sleep,
    /// It may be awake.
    Wake,
    /// Nothing, but it says whether it sleeps.
    TellsSleep,
}

/// What an engine said to a call.
pub(super) type Heard = Result<(u16, Bytes), AskError>;

/// Whether it did as it was told.
pub(super) fn is_done(heard: &Heard) -> bool {
    matches!(heard, Ok((200..300, _)))
}

impl Control {
    /// Takes note of what a call is about to change. Falling asleep takes a while, in which no
    /// request should get there. The engines that were awake until now.
    pub(super) fn foresee(&self, effect: Effect, engines: &[Arc<Engine>]) -> Vec<Arc<Engine>> {
        let engines = engines.iter().filter(|_| effect == Effect::Sleep);
        engines
            .filter(|engine| self.fleet.sleeps(engine, true))
            .cloned()
            .collect()
    }

    /// Takes note of what a call has changed, engine by engine; `foreseen` is what
    /// [`foresee`](Self::foresee) said.
    pub(super) async fn take_note(
        &self,
        effect: Effect,
        engines: &[Arc<Engine>],
        answers: &[Heard],
        foreseen: &[Arc<Engine>],
    ) {
        let all = || engines.iter().zip(answers);
        let done = || all().filter(|(_, heard)| is_done(heard));
        match effect {
            Effect::None => {}
            Effect::Models => self.learn(engines).await,
            Effect::Cache => done().for_each(|(engine, _)| engine.restarted()),
            Effect::Sleep => {
                for (engine, heard) in all() {
                    if is_done(heard) {
                        engine.restarted();
                        self.fleet.sleeps(engine, true);
                    } else if foreseen.iter().any(|known| known.id() == engine.id()) {
                        self.fleet.sleeps(engine, false);
                    }
                }
            }
            Effect::Wake => {
                // A part of it may be asleep still, where the call named what to wake.
                join_all(done().map(async |(engine, _)| {
                    let asleep = self.catalog.ask_sleep(engine).await.is_asleep();
                    self.fleet.sleeps(engine, asleep.unwrap_or(false));
                }))
                .await;
            }
            Effect::TellsSleep => {
                for (engine, heard) in all() {
                    if let Some(asleep) = Sleep::read(heard).is_asleep() {
                        self.fleet.sleeps(engine, asleep);
                    }
                }
            }
        }
    }

    /// Asks those whose models are not configured what they serve now, so that the next request
    /// finds it.
    async fn learn(&self, engines: &[Arc<Engine>]) {
        let silent = engines.iter().filter(|engine| !engine.declares_models());
        let silent: Vec<_> = silent.cloned().collect();
        self.catalog.learn(&silent).await;
        self.catalog.forget().await;
    }
}
