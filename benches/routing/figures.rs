//! The figures of one run.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::time::Duration;

use super::blocks::BlockId;
use super::cache::Mixer;
use super::plan::{Plan, micros};

/// The width of a point on the axis of time.
pub const SLICE: Duration = Duration::from_secs(30);

/// What is counted while a run goes on.
#[derive(Clone, Debug)]
pub struct Figures {
    from: u64,
    measured: Duration,
    /// Blocks anybody ever had in a prompt, and all that could have been a hit.
    seen: HashSet<BlockId, BuildHasherDefault<Mixer>>,
    reachable: Share,
    slices: Vec<Slice>,
    /// Waits for the last token, in µs.
    last_tokens: Vec<u64>,
    /// Requests in flight on the busiest engine over the mean, and that mean.
    spreads: Vec<f64>,
    in_flight: Vec<f64>,
    failed: u64,
}

/// A part of a whole.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    part: u64,
    whole: u64,
}

/// What was seen in a slice of time.
#[derive(Clone, Debug, Default)]
struct Slice {
    hits: Share,
    moved: Share,
    /// Waits for the first token, in µs.
    first_tokens: Vec<u64>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Requests answered in full, and how many of them each second.
    pub requests: f64,
    pub rate: f64,
    /// Tokens of a prompt, in the mean.
    pub prompt: f64,
    /// The part of all prompts that somebody had sent before. A cache may hit more: answers are in
    /// it before they are in a prompt.
    pub reachable: f64,
    /// Requests in flight on the busiest engine over the mean of all: median and 99th percentile.
    pub spread: [f64; 2],
    /// That mean.
    pub in_flight: f64,
    /// Seconds to the last token, likewise.
    pub last_token: [f64; 2],
    /// Attempts that failed.
    pub failed: f64,
    /// All of the measured time, some parts of it, and all its slices.
    pub all: Part,
    pub parts: Vec<Part>,
    pub slices: Vec<Part>,
}

/// The figures of some time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// Tokens of a prompt, in the mean.
    pub prompt: f64,
    /// The part of them that was in the cache of the engine.
    pub hit_rate: f64,
    /// Requests of a conversation that went to another engine than the one before.
    pub moved: f64,
    /// Seconds to the first token: median and 99th percentile.
    pub first_token: [f64; 2],
}

/// A first token.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// When it was out.
    pub at: u64,
    /// When the request was sent.
    pub sent: u64,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Those of them that were in the engine's cache.
    pub hit: usize,
}

impl Share {
    fn add(&mut self, part: usize, whole: usize) {
        self.part += part as u64;
        self.whole += whole as u64;
    }

    /// From 0 to 1.
    pub fn get(self) -> f64 {
        self.part as f64 / self.whole.max(1) as f64
    }
}

impl Figures {
    /// No figures yet.
    pub fn new(plan: &Plan) -> Self {
        let slices = plan.measured.as_secs().div_ceil(SLICE.as_secs());
        Self {
            from: micros(plan.warm_up),
            measured: plan.measured,
            seen: HashSet::default(),
            reachable: Share::default(),
            slices: vec![Slice::default(); slices as usize],
            last_tokens: Vec::new(),
            spreads: Vec::new(),
            in_flight: Vec::new(),
            failed: 0,
        }
    }

    fn counts(&self, now: u64) -> bool {
        now >= self.from
    }

    fn slice(&mut self, now: u64) -> Option<&mut Slice> {
        let slice = now.checked_sub(self.from)? / micros(SLICE);
        self.slices.get_mut(slice as usize)
    }

    /// Takes note of a prompt that is sent.
    pub fn asked(&mut self, now: u64, prompt: &[BlockId]) {
        let known = prompt.iter().take_while(|block| self.seen.contains(block));
        let known = known.count();
        if self.counts(now) {
            self.reachable.add(known, prompt.len());
        }
        self.seen.extend(&prompt[known..]);
    }

    /// Takes note of where a request goes, and where the one before it went.
    pub fn placed(&mut self, now: u64, last: Option<usize>, place: usize) {
        if let (Some(last), Some(slice)) = (last, self.slice(now)) {
            slice.moved.add(usize::from(last != place), 1);
        }
    }

    /// Takes note of an attempt that fails.
    pub fn failed(&mut self, now: u64) {
        self.failed += u64::from(self.counts(now));
    }

    /// Takes note of a first token.
    pub fn answered(&mut self, it: &Answered) {
        if let Some(slice) = self.slice(it.at) {
            slice.hits.add(it.hit, it.prompt);
            slice.first_tokens.push(it.at - it.sent);
        }
    }

    /// Takes note of a last token.
    pub fn ended(&mut self, now: u64, sent: u64) {
        if self.counts(now) {
            self.last_tokens.push(now - sent);
        }
    }

    /// Takes note of the requests in flight on each engine.
    pub fn sample(&mut self, now: u64, loads: &[usize]) {
        let most = loads.iter().max().copied().unwrap_or(0);
        let mean = loads.iter().sum::<usize>() as f64 / loads.len().max(1) as f64;
        if self.counts(now) && mean > 0.0 {
            self.spreads.push(most as f64 / mean);
            self.in_flight.push(mean);
        }
    }

    /// What it all came to, and what each of these parts did.
    pub fn summary(&self, parts: &[Range<usize>]) -> Summary {
        let all = 0..self.slices.len();
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        Summary {
            requests: self.last_tokens.len() as f64,
            rate: self.last_tokens.len() as f64 / self.measured.as_secs_f64(),
            prompt: self.part(all.clone()).prompt,
            reachable: self.reachable.get(),
            spread: [0.5, 0.99].map(|it| at(&mut self.spreads.clone(), it)),
            in_flight: mean(&self.in_flight),
            last_token: [0.5, 0.99].map(|it| seconds(&self.last_tokens, it)),
            failed: self.failed as f64,
            all: self.part(all.clone()),
            parts: parts.iter().map(|it| self.part(it.clone())).collect(),
            slices: all.map(|slice| self.part(slice..slice + 1)).collect(),
        }
    }

    /// The figures of some slices.
    pub fn part(&self, slices: Range<usize>) -> Part {
        let slices = self.slices.get(slices).unwrap_or_default();
        let (mut hits, mut moved, mut first) = (Share::default(), Share::default(), Vec::new());
        for slice in slices {
            hits.add(slice.hits.part as usize, slice.hits.whole as usize);
            moved.add(slice.moved.part as usize, slice.moved.whole as usize);
            first.extend(&slice.first_tokens);
        }
        Part {
            prompt: hits.whole as f64 / first.len().max(1) as f64,
            hit_rate: hits.get(),
            moved: moved.get(),
            first_token: [0.5, 0.99].map(|it| seconds(&first, it)),
        }
    }
}

fn seconds(times: &[u64], quantile: f64) -> f64 {
    let mut times: Vec<_> = times.iter().map(|time| *time as f64 / 1e6).collect();
    at(&mut times, quantile)
}

/// The value below which this part of all lies; 0 of none.
fn at(values: &mut [f64], quantile: f64) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let place = (quantile * (values.len() - 1) as f64).round() as usize;
    *values.select_nth_unstable_by(place, f64::total_cmp).1
}
