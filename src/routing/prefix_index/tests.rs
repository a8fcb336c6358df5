use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn index(memory: usize) -> PrefixIndex {
    PrefixIndex::new(&PrefixLimits {
        least_match: 0,
        memory,
        ttl: HOUR,
    })
}

fn prompt(seed: u64, blocks: usize) -> Blocks {
    let text: Vec<u8> = (0..blocks * Blocks::BYTES / 8)
        .flat_map(|word| (seed << 20 | word as u64).to_le_bytes())
        .collect();
    Blocks::of("m", &text)
}

fn record(index: &PrefixIndex, prompt: &Blocks, engine: u32, second: u64) {
    let now = Duration::from_secs(second);
    index.record(prompt, EngineId::new(engine), 0, now, |_| true);
}

/// The beginnings that are known, in blocks, and who has them.
fn seen(index: &PrefixIndex, prompt: &Blocks, second: u64) -> Vec<(usize, Vec<u64>)> {
    let mut all = Vec::new();
    index.walk_back(prompt, Duration::from_secs(second), 0, |length, holders| {
        let engines: Vec<_> = holders.map(|holder| holder.engine.number()).collect();
        all.push((length / Blocks::BYTES, engines));
        0
    });
    all
}

/// How much of a prompt is known, in blocks.
fn known(index: &PrefixIndex, prompt: &Blocks) -> usize {
    seen(index, prompt, 0)
        .first()
        .map_or(0, |(known, _)| *known)
}

#[test]
fn a_beginning_is_known_as_far_as_it_was_seen() {
    let index = index(1 << 20);
    let long = prompt(1, 100);
    let text = vec![b'x'; 40 * Blocks::BYTES];
    let (short, longer) = (
        Blocks::of("m", &text),
        Blocks::of("m", &[text, vec![b'y'; 5000]].concat()),
    );
    record(&index, &long, 1, 0);
    record(&index, &short, 2, 0);
    assert_eq!(seen(&index, &long, 0), [(100, vec![1])]);
    assert_eq!(seen(&index, &longer, 0), [(40, vec![2])]);
    assert_eq!(seen(&index, &prompt(2, 100), 0), []);
}

#[test]
fn shorter_beginnings_are_shown_where_others_have_seen_them() {
    let index = index(1 << 20);
    let text: Vec<u8> = (0..50u8).flat_map(|block| [block; Blocks::BYTES]).collect();
    let of = |blocks: usize| Blocks::of("m", &text[..blocks * Blocks::BYTES]);
    record(&index, &of(50), 1, 0);
    record(&index, &of(30), 2, 0);
    record(&index, &of(3), 3, 0);
    assert_eq!(
        seen(&index, &of(50), 0),
        [(50, vec![1]), (30, vec![1, 2]), (3, vec![1, 2, 3])]
    );
    let mut shown = 0;
    index.walk_back(&of(50), Duration::ZERO, 0, |_, _| {
        shown += 1;
        31 * Blocks::BYTES
    });
    assert_eq!(shown, 1, "what is of no interest is not shown");
}

#[test]
fn what_is_older_than_its_time_to_live_does_not_count() {
    let index = index(1 << 20);
    let prompt = prompt(1, 10);
    record(&index, &prompt, 1, 0);
    record(&index, &prompt, 2, 1000);
    assert_eq!(seen(&index, &prompt, 3599), [(10, vec![1, 2])]);
    assert_eq!(seen(&index, &prompt, 3600), [(10, vec![2])]);
    assert_eq!(seen(&index, &prompt, 4600), [(10, vec![])]);
    record(&index, &prompt, 1, 4600);
    assert_eq!(seen(&index, &prompt, 4600), [(10, vec![1])]);
}

#[test]
fn a_flood_of_prompts_stays_within_the_bound() {
    for memory in [1 << 16, 1 << 20, 10 << 20] {
        let index = index(memory);
        for seed in 0..4000u32 {
            record(&index, &prompt(seed.into(), 60), seed, 0);
            assert!(index.bytes() <= memory);
        }
        assert!(index.bytes() > memory / 2, "and uses what it may");
        assert!(known(&index, &prompt(3999, 60)) == 60);
        assert_eq!(known(&index, &prompt(0, 60)), 0);
    }
}

#[test]
fn a_prompt_that_is_too_long_is_known_by_its_beginning() {
    let index = index(1 << 16);
    let prompt = prompt(1, Blocks::MOST);
    for _ in 0..3 {
        record(&index, &prompt, 1, 0);
        let known = known(&index, &prompt);
        assert_eq!(known, index.len());
        assert!(known > 300, "{known}");
    }
}

#[test]
fn the_end_of_a_prompt_is_forgotten_before_its_beginning() {
    let index = index(1 << 16);
    let first = prompt(0, 200);
    record(&index, &first, 1, 0);
    let mut left = 200;
    for seed in 1..2000 {
        record(&index, &prompt(seed, 3), 1, 0);
        let now = (0..200)
            .filter(|at| {
                let block = first.hashes()[*at];
                let known = lock(&index.shards[0]).holders(block).is_some();
                assert!(!known || *at < left, "block {at} of {left}");
                known
            })
            .count();
        assert!(now <= left);
        left = now;
    }
    assert_eq!(left, 0);
}

#[test]
fn prompts_with_one_beginning_share_all_locks_and_all_memory() {
    let index = index(64 << 20);
    let system = vec![b's'; 4096];
    for n in 0..10_000u64 {
        let text = [system.clone(), n.to_le_bytes().repeat(600)].concat();
        record(&index, &Blocks::of("m", &text), 1, 0);
    }
    let most = index.shards.iter().map(|shard| lock(shard).len()).max();
    let even = index.len() / index.shards.len();
    assert!(index.shards.len() == 16 && most.unwrap() < even * 3 / 2);
}

#[test]
fn threads_record_and_look_at_once() {
    let index = index(1 << 20);
    std::thread::scope(|scope| {
        for engine in 0..4 {
            let index = &index;
            scope.spawn(move || {
                for seed in 0..500 {
                    record(index, &prompt(seed, 20), engine, 0);
                    seen(index, &prompt(seed, 20), 0);
                }
            });
        }
    });
    assert!(index.bytes() <= 1 << 20);
}

proptest! {
    /// Compared with a list of all that was recorded.
    #[test]
    fn what_is_seen_is_what_was_recorded(
        records in prop::collection::vec((0u8..3, 1usize..70, 0u32..5), 1..20),
        asked in (0u8..3, 1usize..70),
    ) {
        let index = index(1 << 20);
        let of = |(kind, blocks): (u8, usize)| Blocks::of("m", &vec![kind; blocks * Blocks::BYTES]);
        for (kind, blocks, engine) in &records {
            record(&index, &of((*kind, *blocks)), *engine, 0);
        }
        let longest = |engine: u32| {
            let same = records.iter().filter(|r| r.0 == asked.0 && r.2 == engine);
            same.map(|r| r.1.min(asked.1)).max().unwrap_or(0)
        };
        let shown = seen(&index, &of(asked), 0);
        for engine in 0..5 {
            let found = shown.iter().find(|(_, all)| all.contains(&u64::from(engine)));
            prop_assert_eq!(found.map_or(0, |(length, _)| *length), longest(engine));
        }
    }
}
