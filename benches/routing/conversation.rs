//! What is asked: conversations whose prompts grow by every answer.

use std::sync::Arc;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::blocks::{Author, BLOCK, BlockId, blocks};
use super::draws::Spread;

/// The chance that a conversation goes on after an answer: six turns in the mean.
const GOES_ON: f64 = 5.0 / 6.0;
/// Prompts do not grow beyond this many tokens.
const LONGEST: usize = 32_000;
/// Tokens of a message, and of one that comes with pasted text.
const MESSAGE: Spread = Spread {
    median: 60.0,
    sigma: 1.0,
    least: 16.0,
    most: 1000.0,
};
const PASTED: Spread = Spread {
    median: 1200.0,
    sigma: 0.7,
    least: 200.0,
    most: 6000.0,
};
const PASTES: f64 = 0.1;
/// Tokens of an answer.
const ANSWER: Spread = Spread {
    median: 220.0,
    sigma: 0.7,
    least: 16.0,
    most: 2000.0,
};
/// Seconds to read the answer and to write the next message.
const THINK: Spread = Spread {
    median: 25.0,
    sigma: 1.0,
    least: 1.0,
    most: 600.0,
};
/// How often an answer is asked for again, and how often the user goes back to an earlier one and
/// goes on from there.
const AGAIN: f64 = 0.08;
const FORK: f64 = 0.04;

/// One conversation.
#[derive(Debug)]
pub struct Conversation {
    user: Arc<str>,
    author: Author,
    dice: StdRng,
    chain: Vec<BlockId>,
    /// The prompt of the last turn, in blocks.
    prompt: usize,
    /// Where the answers end that a user may go back to.
    ends: Vec<usize>,
}

/// One request and its answer.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The prompt and then the answer.
    pub chain: Arc<[BlockId]>,
    /// How many blocks of it are the prompt.
    pub prompt: usize,
}

impl Turn {
    /// The blocks of the prompt.
    pub fn prompt(&self) -> &[BlockId] {
        &self.chain[..self.prompt]
    }

    /// Tokens of the answer.
    pub fn answer(&self) -> usize {
        (self.chain.len() - self.prompt) * BLOCK
    }
}

impl Conversation {
    /// A conversation before its first turn.
    pub fn new(number: u64, user: &Arc<str>, beginning: &[BlockId], dice: StdRng) -> Self {
        Self {
            user: Arc::clone(user),
            author: Author::new(number),
            dice,
            chain: beginning.to_vec(),
            prompt: 0,
            ends: Vec::new(),
        }
    }

    /// Who asks: the key of the session.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The first turn.
    pub fn first(&mut self) -> Turn {
        self.ask()
    }

    /// The turn after an answer, and the seconds until it is asked; `None` at the end.
    pub fn next(&mut self) -> Option<(f64, Turn)> {
        let think = THINK.draw(&mut self.dice);
        if self.dice.random_bool(AGAIN) {
            self.chain.truncate(self.prompt);
            return Some((think / 2.0, self.answer()));
        }
        if !self.dice.random_bool(GOES_ON) || self.chain.len() * BLOCK > LONGEST {
            return None;
        }
        self.ends.push(self.chain.len());
        if self.dice.random_bool(FORK) {
            let to = self.dice.random_range(0..self.ends.len());
            self.ends.truncate(to + 1);
            self.chain.truncate(self.ends[to]);
        }
        Some((think, self.ask()))
    }

    fn ask(&mut self) -> Turn {
        let pastes = self.dice.random_bool(PASTES);
        let message = if pastes { PASTED } else { MESSAGE };
        let message = blocks(message.draw(&mut self.dice));
        self.author.write(&mut self.chain, message);
        self.prompt = self.chain.len();
        self.answer()
    }

    fn answer(&mut self) -> Turn {
        let answer = blocks(ANSWER.draw(&mut self.dice));
        self.author.write(&mut self.chain, answer);
        Turn {
            chain: self.chain.as_slice().into(),
            prompt: self.prompt,
        }
    }
}
