//! What was found, for people.

use std::fmt::Write as _;

use super::options::Options;
use super::rounds::{Found, Round};
use crate::load::machine;
use crate::plan::Load;

/// The part of processor time that books may take.
const ALLOWED: f64 = 0.03;

/// A table in Markdown.
pub fn markdown(options: &Options, found: &[Found]) -> String {
    let mut text = format!(
        "What books cost: {}, commit {}, {}\n\nBy `{}`: {} rounds of {} ms for each, in turn. \
         Processor time is that of the router, user and system, in microseconds.\n\n\
         | load | per | without books | with books | overhead | middle half | all rounds | by chance |\n\
         |---|---|---|---|---|---|---|---|\n",
        machine::date(),
        machine::commit(),
        machine::processor(),
        machine::command(),
        u32::from(options.starts) * u32::from(options.rounds),
        options.time.as_millis(),
    );
    for Found { load, rounds } in found {
        let sorted = |figure: fn(&Round) -> f64| {
            let mut all: Vec<_> = rounds.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let overheads = sorted(|round| round.with / round.without - 1.0);
        let by_chance = sorted(|round| round.control / round.without - 1.0);
        let percent = |all: &[f64], part: f64| format!("{:+.1} %", 100.0 * quantile(all, part));
        let range = |from: f64, to: f64| {
            format!(
                "{} to {}",
                percent(&overheads, from),
                percent(&overheads, to)
            )
        };
        let unit = if *load == Load::Stream {
            "event"
        } else {
            "request"
        };
        let _ = writeln!(
            text,
            "| ({}) {} | {unit} | {:.2} | {:.2} | {} | {} | {} | {} |",
            load.letter(),
            load.told(),
            quantile(&sorted(|round| round.without), 0.5),
            quantile(&sorted(|round| round.with), 0.5),
            percent(&overheads, 0.5),
            range(0.25, 0.75),
            range(0.0, 1.0),
            percent(&by_chance, 0.5),
        );
    }
    let _ = writeln!(
        text,
        "\nOverhead is the median over the rounds of what one router took more than the other in the \
         same round; by chance is the same of two routers without books. It is to be below {:.0} %.",
        100.0 * ALLOWED
    );
    text
}

/// Of sorted figures.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a length"
    )]
    let place = (part * (sorted.len() - 1) as f64).round() as usize;
    sorted[place]
}
