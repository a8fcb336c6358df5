//! Which runs there are, and what they come to.

use std::path::Path;

use super::figures::{Figures, Summary};
use super::policy::{Policy, policies};
use super::scenario::{LARGE, Scenario};
use super::world::World;
use super::{picture, report};

/// A policy, and what came of it in each run; the last one's figures are there as a whole.
#[derive(Debug)]
pub struct Runs {
    pub policy: Policy,
    pub summaries: Vec<Summary>,
    pub figures: Figures,
}

/// Makes all runs with the large fleet, prints the table and draws the picture.
pub fn simulate(seeds: u64, svg: Option<&Path>) {
    let runs: Vec<_> = policies()
        .into_iter()
        .map(|policy| {
            eprintln!("{}", policy.word);
            run(&LARGE, policy, seeds)
        })
        .collect();
    print!("{}", report::large(&runs));
    if let Some(path) = svg {
        std::fs::write(path, picture::draw(&runs)).expect("the picture can be written");
    }
}

/// Makes the runs of one policy.
pub fn run(scenario: &Scenario, policy: Policy, seeds: u64) -> Runs {
    let config = policy.config();
    let figures = |seed| World::new(scenario, config.as_ref(), seed).run();
    let all: Vec<_> = (1..=seeds).map(figures).collect();
    let summary = |figures: &Figures| figures.summary(scenario, scenario.refuses);
    let summaries: Vec<_> = all.iter().map(summary).collect();
    let again = summary(&figures(seeds));
    // Of none that was let in there is no median.
    let comparable = again.let_in[0].is_finite();
    assert!(
        !comparable || summaries.last() == Some(&again),
        "a seed replays its run"
    );
    Runs {
        policy,
        summaries,
        figures: all.into_iter().next_back().expect("at least one seed"),
    }
}
