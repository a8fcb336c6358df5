//! What the logics are told of a prompt.

use vllm_pingora::routing::{Ask, Blocks, Kind};

use super::blocks::{BlockId, spell};
use crate::fleet::MODEL;

/// What a logic is told of a prompt.
#[derive(Debug)]
pub struct Prompt(Option<Blocks>);

impl Prompt {
    /// What this logic asks for.
    pub fn of(kind: Kind, prompt: &[BlockId]) -> Self {
        Self((kind == Kind::PrefixAware).then(|| Blocks::of(MODEL, &spell(prompt))))
    }

    /// The ask for it, without the rest.
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            prompt: self.0.as_ref(),
            ..Ask::default()
        }
    }
}
