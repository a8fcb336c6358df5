//! A simulated engine: continuous batching in steps, with chunked prefill and a prefix cache.
//!
//! Its figures are those of a model of 70 billion parameters in FP8 on four GPUs of 80 GB with
//! 3.35 TB/s each. What is left out: attention costs prefill nothing, and messages are whole
//! blocks.

use std::collections::VecDeque;

use super::blocks::BLOCK;
use super::cache::Cache;
use super::conversation::Turn;

/// Blocks of KV cache: 640,000 tokens of 320 KiB each in 16 bits, which is what 70 GB of weights
/// leave of 288 GB.
const CAPACITY: usize = 40_000;
/// A step without work, in µs: weights are read and kernels are launched.
const STEP: f64 = 15_000.0;
/// A token of prefill, in µs: 140 GFLOP at 1.4 PFLOP/s, which is 10,000 tokens a second.
const PREFILL: f64 = 100.0;
/// A token of context in a decode, in µs: 320 KiB at 10 TB/s.
const CONTEXT: f64 = 0.033;
/// Tokens of a step, prefill and decode together, and requests of a batch: vLLM's defaults for
/// such a GPU.
const STEP_TOKENS: usize = 8192;
const BATCH: usize = 256;

/// One engine.
#[derive(Debug)]
pub struct Engine {
    cache: Cache,
    waiting: VecDeque<Job>,
    running: Vec<Job>,
    /// A step runs.
    stepping: bool,
}

/// A request on an engine.
#[derive(Debug)]
struct Job {
    request: usize,
    turn: Turn,
    /// Tokens it must compute before it can generate.
    target: usize,
    /// Tokens that are computed, or were in the cache.
    computed: usize,
    /// Blocks of the chain it holds, and blank ones.
    held: usize,
    blank: usize,
    /// Tokens generated.
    generated: usize,
    /// Tokens of the prompt that were in the cache; set when it first leaves the queue.
    hit: Option<usize>,
}

/// What a step came to.
#[derive(Debug, Default)]
pub struct Ended {
    /// Requests whose first token is out, and how many tokens of their prompt were in the cache.
    pub first: Vec<(usize, usize)>,
    /// Requests whose last token is out.
    pub last: Vec<usize>,
}

impl Engine {
    /// An engine that was just started.
    pub fn new() -> Self {
        Self {
            cache: Cache::new(CAPACITY),
            waiting: VecDeque::new(),
            running: Vec::new(),
            stepping: false,
        }
    }

    /// Requests in the batch, and in the queue.
    pub fn requests(&self) -> (usize, usize) {
        (self.running.len(), self.waiting.len())
    }

    /// The used part of the KV cache.
    pub fn kv_cache(&self) -> f64 {
        self.cache.used()
    }

    /// Queues a request.
    pub fn accept(&mut self, request: usize, turn: Turn) {
        self.waiting.push_back(Job {
            request,
            target: turn.prompt * BLOCK,
            turn,
            computed: 0,
            held: 0,
            blank: 0,
            generated: 0,
            hit: None,
        });
    }

    /// Begins a step, and says how many µs it takes; `None` where one runs or there is no work.
    pub fn begin(&mut self) -> Option<u64> {
        if self.stepping {
            return None;
        }
        let (mut budget, mut prefill, mut context) = (STEP_TOKENS, 0, 0);
        let preempted = self.make_room();
        for job in &mut self.running {
            if job.computed < job.target {
                prefill += job.prefill(&mut budget, &mut self.cache);
            } else {
                budget = budget.saturating_sub(1);
                context += job.turn.prompt * BLOCK + job.generated;
            }
        }
        while !preempted && budget > 0 && self.running.len() < BATCH && self.admit() {
            let job = self.running.last_mut().expect("one was admitted");
            prefill += job.prefill(&mut budget, &mut self.cache);
        }
        self.stepping = !self.running.is_empty();
        let took = STEP + PREFILL * prefill as f64 + CONTEXT * context as f64;
        self.stepping.then_some(took as u64)
    }

    /// Ends the step that runs.
    pub fn end(&mut self) -> Ended {
        self.stepping = false;
        let mut ended = Ended::default();
        let cache = &mut self.cache;
        self.running.retain_mut(|job| {
            if job.computed < job.target {
                return true;
            }
            job.generated += 1;
            if job.generated == 1 {
                ended.first.push((job.request, job.hit.unwrap_or(0)));
            } else if job.blank > 0 && job.generated % BLOCK == 1 {
                // The step wrote the token before the one that it generated.
                job.fill(cache);
            }
            if job.generated < job.turn.answer() {
                return true;
            }
            ended.last.push(job.request);
            job.leave(cache);
            false
        });
        ended
    }

    /// Gives every decode the block its next token needs; the youngest requests go back into the
    /// queue where there are not enough. Says whether any did.
    fn make_room(&mut self) -> bool {
        let (mut at, mut preempted) = (0, false);
        while let Some(job) = self.running.get_mut(at) {
            if job.computed >= job.target && job.blank == 0 {
                if !self.cache.take(1) {
                    preempted = true;
                    let mut youngest = self.running.pop().expect("this one at least");
                    youngest.leave(&mut self.cache);
                    self.waiting.push_front(youngest);
                    continue;
                }
                job.blank = 1;
            }
            at += 1;
        }
        preempted
    }

    /// Takes the first of the queue into the batch, if its prompt fits.
    fn admit(&mut self) -> bool {
        let Some(job) = self.waiting.front_mut() else {
            return false;
        };
        let chain = &job.turn.chain[..job.target / BLOCK];
        // The last block is computed in any case, since the next token follows from it.
        let hit = self.cache.has(chain).min(chain.len() - 1);
        self.cache.hold(&chain[..hit]);
        if !self.cache.take(chain.len() - hit) {
            self.cache.release(&chain[..hit], 0);
            return false;
        }
        (job.held, job.blank) = (hit, chain.len() - hit);
        job.computed = hit * BLOCK;
        job.hit.get_or_insert(job.computed);
        self.running.extend(self.waiting.pop_front());
        true
    }
}

impl Job {
    /// Computes as much of the prompt as the budget of the step allows; says how much.
    fn prefill(&mut self, budget: &mut usize, cache: &mut Cache) -> usize {
        let chunk = (self.target - self.computed).min(*budget);
        *budget -= chunk;
        self.computed += chunk;
        while self.held < self.computed / BLOCK {
            self.fill(cache);
        }
        chunk
    }

    fn fill(&mut self, cache: &mut Cache) {
        cache.fill(self.turn.chain[self.held]);
        self.held += 1;
        self.blank -= 1;
    }

    /// Gives back all it holds. Should it come back, it computes anew what is forgotten by then;
    /// tokens of a block that is not full are generated again.
    fn leave(&mut self, cache: &mut Cache) {
        cache.release(&self.turn.chain[..self.held], self.blank);
        self.generated = (self.generated / BLOCK) * BLOCK;
        self.target = self.turn.prompt * BLOCK + self.generated;
        (self.held, self.blank, self.computed) = (0, 0, 0);
    }
}
