//! What it costs to pick an engine by the prompt, and how much memory the index of prompts takes.
//!
//! ```text
//! cargo bench --bench pick
//! ```
//!
//! Times are what one thread spends on the processor, for a prompt of 8 KiB among 1,000 engines, over an index that is full
//! of other prompts. The memory is what the system says of the process.

#![allow(
    clippy::unwrap_used,
    clippy::cast_precision_loss,
    reason = "a bench that cannot go on should say so; figures are for people"
)]

use std::hint::black_box;
use std::time::Duration;

use vllm_pingora::engines::EngineId;
use vllm_pingora::retry::Standing;
use vllm_pingora::routing::{
    Ask, Balance, Blocks, Candidates, Kind, Logic, Logics, Member, PrefixLimits, Routing,
};

const ENGINES: usize = 1000;
const PROMPT: usize = 8 << 10;
const PICKS: usize = 100_000;
const MEMORY: usize = 64 << 20;

/// Engines of these loads.
struct Fleet(Vec<f64>);

impl Candidates for Fleet {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn id(&self, place: usize) -> EngineId {
        EngineId::new(u32::try_from(place).unwrap())
    }

    fn standing(&self, _: usize) -> Standing {
        Standing::Eligible
    }

    fn load(&self, place: usize) -> f64 {
        self.0.get(place).copied().unwrap_or(f64::INFINITY)
    }

    fn placed(&self, _: usize) -> usize {
        0
    }

    fn placed_in_all(&self) -> usize {
        0
    }

    fn incarnation(&self, _: usize) -> u32 {
        0
    }
}

/// Numbers that look random (splitmix64).
fn mixed(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn logic(kind: Kind) -> Logic {
    let routing = Routing {
        kind,
        balance: Balance {
            difference: 64.0,
            ratio: 1.5,
        },
        prefix: PrefixLimits {
            least_match: 0,
            memory: MEMORY,
            ttl: Duration::from_secs(1800),
        },
    };
    let members: Vec<_> = (0..ENGINES)
        .map(|place| Member {
            id: EngineId::new(u32::try_from(place).unwrap()),
            name: "engine",
            weight: 1,
        })
        .collect();
    Logic::new(&Logics::new(routing), &members, None)
}

/// A prompt that shares its first `shared` bytes with all others.
fn prompt(number: usize, shared: usize, length: usize) -> Blocks {
    let own = mixed(number as u64 + 1).to_le_bytes();
    let text = [
        vec![b's'; shared],
        own.repeat((length - shared) / own.len()),
    ]
    .concat();
    Blocks::of("m", &text)
}

/// What this thread has spent on the processor: unlike a clock it does not count those it has to
/// share it with.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = stat.split(' ').next().unwrap();
    Duration::from_nanos(nanos.parse().unwrap())
}

/// The mean time of a pick.
fn time(logic: &Logic, fleet: &Fleet, prompts: &[Blocks]) -> Duration {
    let begun = spent();
    for (number, prompt) in prompts.iter().cycle().take(PICKS).enumerate() {
        let ask = Ask {
            prompt: Some(prompt),
            draw: mixed(number as u64),
            ..Ask::default()
        };
        black_box(logic.pick(&ask, fleet));
    }
    spent().saturating_sub(begun) / u32::try_from(PICKS).unwrap()
}

/// Resident memory, in bytes.
fn memory() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

fn main() {
    let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
    let even = Fleet(vec![3.0; ENGINES]);
    let uneven = Fleet(
        (0..ENGINES)
            .map(|place| (mixed(place as u64) % 200) as f64)
            .collect(),
    );
    let of = |shared: usize, length: usize, from: usize| -> Vec<_> {
        (0..4000)
            .map(|n| prompt(from + n, shared, length))
            .collect()
    };

    let empty = memory();
    let by_prompt = logic(Kind::PrefixAware);
    for number in 0..50_000 {
        let prompt = prompt(number, 0, PROMPT);
        let ask = Ask {
            prompt: Some(&prompt),
            draw: mixed(number as u64),
            ..Ask::default()
        };
        by_prompt.pick(&ask, &even);
    }
    let full = memory() - empty;
    println!("memory: {:.1} MiB of {:.1} allowed", mib(full), mib(MEMORY));

    let text = vec![b'x'; PROMPT];
    let begun = spent();
    for _ in 0..PICKS {
        black_box(Blocks::of("m", black_box(&text)));
    }
    let hashing = spent().saturating_sub(begun) / u32::try_from(PICKS).unwrap();
    println!("hashing a prompt: {hashing:?}");

    let load = logic(Kind::LeastLoad);
    println!("leastload: {:?}", time(&load, &even, &of(0, PROMPT, 0)));
    for (fleet, word) in [(&even, "even"), (&uneven, "uneven")] {
        println!("{word} loads");
        for (case, prompts) in [
            ("known prompts", of(0, PROMPT, 1 << 20)),
            ("one system prompt of 4 KiB", of(4096, PROMPT, 2 << 20)),
            ("256 KiB, known", of(0, 256 << 10, 3 << 20).split_off(3900)),
        ] {
            println!("  {case}: {:?}", time(&by_prompt, fleet, &prompts));
        }
        // More of them than the index can hold: each comes as a new one.
        let new = (0..25).flat_map(|part| of(0, PROMPT, (4 << 20) + part * 4000));
        let new: Vec<_> = new.collect();
        println!("  new prompts: {:?}", time(&by_prompt, fleet, &new));
    }
}
