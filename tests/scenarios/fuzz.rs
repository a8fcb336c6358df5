//! Malformed, mutated and split requests from seeded generators, over both protocols.
//!
//! `VLLM_PINGORA_FUZZ_SEED` replays a run, `VLLM_PINGORA_FUZZ_CASES` says how many cases it has.
//! Each request says who it is in its target and its body, and carries others that are none: in its
//! body, its chunk extensions, its trailers, its field values. A reading of the client's bytes that
//! shares no code with the router, and forgives nothing, says which requests there are; an engine
//! that is given any other has been given one that was smuggled.

mod frames;
mod http_1;
mod http_2;
mod ledger;
mod left_open;
mod reading;
mod requests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::support::*;
use reading::Reading;

/// How many cases a run has, and what it is made from.
struct Run {
    seed: u64,
    cases: usize,
}

impl Run {
    /// The run asked for, or one of so many cases.
    fn of(cases: usize) -> Self {
        let seed = number("VLLM_PINGORA_FUZZ_SEED").unwrap_or(0x5eed);
        let cases = number("VLLM_PINGORA_FUZZ_CASES").map_or(cases, |cases| cases as usize);
        println!("VLLM_PINGORA_FUZZ_SEED={seed} VLLM_PINGORA_FUZZ_CASES={cases}");
        Self { seed, cases }
    }

    fn dice(&self) -> Dice {
        Dice(StdRng::seed_from_u64(self.seed))
    }
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
}

/// Where all that is left to chance comes from.
struct Dice(StdRng);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    fn byte(&mut self) -> u8 {
        self.0.random()
    }

    /// The bytes in up to five pieces.
    fn split(&mut self, mut bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let mut pieces = Vec::new();
        while self.one_in(2) && bytes.len() > 1 && pieces.len() < 4 {
            let rest = bytes.split_off(1 + self.below(bytes.len() - 1));
            pieces.push(std::mem::replace(&mut bytes, rest));
        }
        pieces.push(bytes);
        pieces
    }

    /// Changes a few bytes.
    fn mutate(&mut self, bytes: &mut Vec<u8>, spice: &[&[u8]]) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = bytes.len().min(at + 1 + self.below(6));
            match self.below(4) {
                0 => drop(bytes.splice(at..at, self.pick(spice).iter().copied())),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let copy = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, copy));
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = self.0.random();
                    }
                }
            }
        }
    }

    /// What an engine does with a request, well or not.
    fn reply(&mut self) -> Reply {
        match self.below(12) {
            0 => status(503),
            1 => sse(2, ms(1)),
            2 => echo(|told| ok(told).close()),
            3 => echo(|told| ok(told).chunked()),
            4 => fin_at(Point::Request),
            5 => rst_at(Point::Request),
            6 => status(204),
            7 => ok("0123456789").fin_at(Point::BodyBytes(4)),
            8 => raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n").then_close(),
            9 => echo(|told| ok(told).informational(103, "Early Hints")),
            _ => echo(ok),
        }
    }
}

/// An answer that says which request it is one to.
fn echo(reply: impl Fn(String) -> Reply + Send + Sync + 'static) -> Reply {
    answer(move |delivery| reply(Reading::from(delivery).told()))
}

/// An engine that tells of its model, and does with requests what these replies say.
fn playing(replies: impl Into<Script>) -> Script {
    script(replies).on("/v1/models", ok(r#"{"data":[{"id":"m"}]}"#))
}

/// Panics of the code under test, on whatever thread. A panicking task is otherwise seen by nobody.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() -> usize {
    static HOOK: OnceLock<()> = OnceLock::new();
    HOOK.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |place| place.file());
            // What fails in a test's own code fails that test.
            if !file.contains("tests/") {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(panic);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

/// Waits until nothing is left of what the clients did.
async fn settle(edge: &TestEdge) {
    edge.wait_until_idle().await;
    let closed = async {
        while edge.open() > 0 {
            tokio::time::sleep(ms(1)).await;
        }
    };
    let complaint = || format!("{} connections of clients are open", edge.open());
    within(PATIENCE, complaint, closed).await;
}

/// Waits until no connection to this engine is open: none was forgotten when it had been idle for
/// as long as the router keeps one.
async fn let_go(engine: &ScriptedEngine) {
    tokio::time::sleep(secs(10)).await;
    let open = || {
        let connections = engine.connections();
        let ended = |c: &&Connection| c.peer_close.is_none() && c.engine_close.is_none();
        connections.iter().filter(ended).count()
    };
    let closed = async {
        while open() > 0 {
            tokio::time::sleep(ms(1)).await;
        }
    };
    let complaint = || format!("{} connections to an engine are open", open());
    within(PATIENCE, complaint, closed).await;
}
