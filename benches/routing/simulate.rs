//! Which runs there are, and what they come to.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use vllm_pingora::routing::Kind;

use super::figures::{SLICE, Summary};
use super::options::Simulate;
use super::plan::Plan;
use super::world::World;
use super::{picture, report};

/// Caches are full by then, and as many conversations end as begin.
const WARM_UP: Duration = Duration::from_secs(600);
/// When an engine is lost and when it is back, after the warm-up.
const LOST: Range<Duration> = Duration::from_secs(240)..Duration::from_secs(360);
/// Loads beside 1 that the first fleet is put under, and the seeds of that.
const LOADS: [f64; 7] = [0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0];
const LOAD_SEEDS: u64 = 2;

/// The logics, in the order of every table.
pub const LOGICS: [Kind; 4] = [
    Kind::RoundRobin,
    Kind::LeastLoad,
    Kind::Session,
    Kind::PrefixAware,
];

/// The runs of one kind, one for each seed.
pub type Runs = Vec<Summary>;

/// All that was found out.
#[derive(Debug)]
pub struct Findings {
    /// What was asked for.
    pub options: Simulate,
    /// For each size of fleet, for each logic.
    pub steady: Vec<(usize, [Runs; 4])>,
    /// For each load, for each logic.
    pub loads: Vec<(f64, [Runs; 4])>,
    /// With an engine lost, for each logic.
    pub lost: [Runs; 4],
}

impl Findings {
    /// The slices of time before an engine is lost, while it is away, and as long again after it
    /// is back.
    pub fn around_the_loss() -> [Range<usize>; 3] {
        let slice = |time: Duration| (time.as_secs() / SLICE.as_secs()) as usize;
        let (lost, back) = (slice(LOST.start), slice(LOST.end));
        [0..lost, lost..back, back..2 * back - lost]
    }
}

/// Makes all runs, prints the tables and draws the picture.
pub fn simulate(options: &Simulate) {
    let plan = |kind, engines, seed| Plan {
        kind,
        seed,
        engines,
        load: 1.0,
        warm_up: WARM_UP,
        measured: options.measured,
        lost: None,
    };
    let first = options.engines[0];
    let mut plans = Vec::new();
    for engines in &options.engines {
        plans.extend(for_each(options.seeds, |kind, seed| {
            plan(kind, *engines, seed)
        }));
    }
    for load in LOADS {
        plans.extend(for_each(LOAD_SEEDS, |kind, seed| Plan {
            load,
            ..plan(kind, first, seed)
        }));
    }
    plans.extend(for_each(options.seeds, |kind, seed| Plan {
        lost: Some((WARM_UP + LOST.start, WARM_UP + LOST.end)),
        ..plan(kind, first, seed)
    }));
    let again = *plans.last().expect("there are some");
    let mut runs = run_all(&plans).into_iter();
    let mut take = |seeds: u64| LOGICS.map(|_| runs.by_ref().take(seeds as usize).collect());
    let findings = Findings {
        steady: options
            .engines
            .iter()
            .map(|engines| (*engines, take(options.seeds)))
            .collect(),
        loads: LOADS.map(|load| (load, take(LOAD_SEEDS))).into(),
        lost: take(options.seeds),
        options: options.clone(),
    };
    let last = findings.lost[3].last();
    assert_eq!(last, Some(&summary(again)), "a seed replays its run");
    print!("{}", report::tables(&findings));
    if let Some(path) = &options.svg {
        std::fs::write(path, picture::draw(&findings)).expect("the picture can be written");
    }
}

fn for_each(seeds: u64, plan: impl Fn(Kind, u64) -> Plan) -> Vec<Plan> {
    let pairs = LOGICS.map(|kind| (1..=seeds).map(move |seed| (kind, seed)));
    let pairs = pairs.into_iter().flatten();
    pairs.map(|(kind, seed)| plan(kind, seed)).collect()
}

/// Runs share nothing, so it does not matter which thread makes which.
fn run_all(plans: &[Plan]) -> Vec<Summary> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![None; plans.len()]);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = plans.get(place) else {
                        break;
                    };
                    let summary = summary(*plan);
                    done.lock().expect("no panic")[place] = Some(summary);
                    eprint!(".");
                }
            });
        }
    });
    eprintln!();
    let done = done.into_inner().expect("no panic");
    done.into_iter().flatten().collect()
}

fn summary(plan: Plan) -> Summary {
    World::new(plan).run().summary(&Findings::around_the_loss())
}
