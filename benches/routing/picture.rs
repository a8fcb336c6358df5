//! The picture of a simulation.

use super::figures::{Part, SLICE, Summary};
use super::report::{mean, range};
use super::simulate::{Findings, LOGICS, Runs};
use crate::drawing::panel::{Axis, Panel};
use crate::drawing::svg::{Anchor, PALE, Svg};

/// One for each logic; they can be told apart by those who see few colours.
const COLOURS: [&str; 4] = ["#8c8c8c", "#0072b2", "#009e73", "#d55e00"];

/// Draws it.
pub fn draw(findings: &Findings) -> String {
    let mut svg = Svg::new(1120.0, 760.0);
    let (engines, steady) = &findings.steady[0];
    let title = format!("Routing logics over {engines} simulated engines");
    svg.title((30.0, 34.0), 18, &title);
    let told = format!(
        "multi-turn chat in virtual time, means over {} seeds; whiskers are the range",
        findings.options.seeds
    );
    svg.text((30.0, 54.0), Anchor::Start, &told);
    legend(&mut svg);
    hits(&mut svg, steady);
    first_tokens(&mut svg, steady);
    spreads(&mut svg, steady);
    loads(&mut svg, findings);
    loss(&mut svg, findings);
    svg.file()
}

fn legend(svg: &mut Svg) {
    for (place, (kind, colour)) in LOGICS.iter().zip(COLOURS).enumerate() {
        let x = 660.0 + 112.0 * place as f64;
        svg.rect((x, 24.0), (22.0, 12.0), colour);
        svg.text((x + 28.0, 34.0), Anchor::Start, kind.word());
    }
}

fn small(place: f64, x: Axis) -> Panel {
    Panel {
        left: 100.0 + 350.0 * place,
        top: 110.0,
        width: 270.0,
        height: 180.0,
        x,
        y: None,
    }
}

fn wide(place: f64, x: Axis, y: Axis) -> Panel {
    Panel {
        left: 90.0 + 540.0 * place,
        top: 400.0,
        width: 440.0,
        height: 290.0,
        x,
        y: Some(y),
    }
}

fn hits(svg: &mut Svg, steady: &[Runs; 4]) {
    let marks = [0.0, 0.25, 0.5, 0.75, 1.0];
    let panel = small(0.0, Axis::new("of all tokens in prompts", &marks, percent));
    panel.frame(svg, "Prompt tokens found in the cache");
    for (row, (runs, colour)) in steady.iter().zip(COLOURS).enumerate() {
        let y = panel.row(row, 4);
        let hits = || runs.iter().map(|it| it.all.hit_rate);
        let end = panel.at_x(mean(hits()));
        svg.text((panel.left - 8.0, y + 4.0), Anchor::End, LOGICS[row].word());
        svg.rect((panel.left, y - 13.0), (end - panel.left, 26.0), colour);
        panel.whisker(svg, y, range(hits()));
        let text = format!("{:.0} %", 100.0 * mean(hits()));
        let beyond = panel.at_x(range(hits()).1);
        svg.text((beyond + 8.0, y + 4.0), Anchor::Start, &text);
    }
}

fn first_tokens(svg: &mut Svg, steady: &[Runs; 4]) {
    let marks = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
    let axis = Axis::new("seconds, logarithmic", &marks, plain).logarithmic();
    let panel = small(1.0, axis);
    panel.frame(svg, "Time to first token");
    pairs(svg, &panel, steady, |it| it.all.first_token);
}

fn spreads(svg: &mut Svg, steady: &[Runs; 4]) {
    let marks = [1.0, 1.5, 2.0, 2.5, 3.0];
    let panel = small(2.0, Axis::new("busiest engine / mean", &marks, plain));
    panel.frame(svg, "Spread of requests in flight");
    pairs(svg, &panel, steady, |it| it.spread);
}

/// Two dots on each row: a median, hollow, and a 99th percentile.
fn pairs(svg: &mut Svg, panel: &Panel, steady: &[Runs; 4], of: fn(&Summary) -> [f64; 2]) {
    for (row, (runs, colour)) in steady.iter().zip(COLOURS).enumerate() {
        let y = panel.row(row, 4);
        let ends = [0, 1].map(|end| panel.at_x(mean(runs.iter().map(|it| of(it)[end]))));
        svg.line((ends[0], y), (ends[1], y), colour, 2.2);
        for (end, x) in ends.into_iter().enumerate() {
            panel.whisker(svg, y, range(runs.iter().map(|it| of(it)[end])));
            svg.dot((x, y), colour, end == 0);
        }
        if row == 0 {
            svg.text((ends[0], y - 12.0), Anchor::Middle, "p50");
            svg.text((ends[1], y - 12.0), Anchor::Middle, "p99");
        }
    }
}

fn loads(svg: &mut Svg, findings: &Findings) {
    let x: Vec<_> = findings.loads.iter().map(|(load, _)| *load).collect();
    let x = Axis::new(
        "rate of new conversations (1 in the panels above)",
        &x,
        plain,
    );
    let marks = [0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0];
    let y = Axis::new("seconds, logarithmic", &marks, plain).logarithmic();
    let panel = wide(0.0, x, y);
    panel.frame(svg, "Time to first token under load, p99");
    for (place, colour) in COLOURS.into_iter().enumerate() {
        let points = findings.loads.iter().map(|(load, logics)| {
            let first = logics[place].iter().map(|it| it.all.first_token[1]);
            panel.at(*load, mean(first))
        });
        svg.curve(&points.collect::<Vec<_>>(), colour);
    }
}

fn loss(svg: &mut Svg, findings: &Findings) {
    let minutes = |slice: usize| slice as f64 * SLICE.as_secs_f64() / 60.0;
    let marks = [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0];
    let x = Axis::new("minutes", &marks, plain);
    let y = Axis::new(
        "of all tokens in prompts",
        &[0.2, 0.4, 0.6, 0.8, 1.0],
        percent,
    );
    let panel = wide(1.0, x, y);
    let [_, away, _] = Findings::around_the_loss();
    let (from, to) = (
        panel.at_x(minutes(away.start)),
        panel.at_x(minutes(away.end)),
    );
    svg.rect((from, panel.top), (to - from, panel.height), PALE);
    panel.frame(svg, "Prompt tokens found in the cache, one engine lost");
    let middle = f64::midpoint(from, to);
    svg.text(
        (middle, panel.bottom() - 10.0),
        Anchor::Middle,
        "engine away",
    );
    let shown = (12.0 / minutes(1)) as usize;
    for (runs, colour) in findings.lost.iter().zip(COLOURS) {
        let hits = |slice: usize| mean(runs.iter().map(|it| part(it, slice).hit_rate));
        let points = (0..shown).map(|slice| panel.at(minutes(slice) + 0.25, hits(slice)));
        svg.curve(&points.collect::<Vec<_>>(), colour);
    }
}

fn part(run: &Summary, slice: usize) -> &Part {
    &run.slices[slice]
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn plain(value: f64) -> String {
    format!("{value}")
}
