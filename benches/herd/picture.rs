//! The picture of a simulation.

use std::time::Duration;

use super::scenario::LARGE;
use super::simulate::Runs;
use crate::drawing::panel::{Axis, Panel};
use crate::drawing::svg::{Anchor, PALE, Svg};

/// One for each policy; they can be told apart by those who see few colours.
const COLOURS: [&str; 6] = [
    "#8c8c8c", "#e69f00", "#cc79a7", "#0072b2", "#009e73", "#d55e00",
];
/// Seconds that are shown, and points in them of a curve.
const SHOWN: f64 = 30.0;
const POINTS: usize = 150;

/// Draws it.
pub fn draw(runs: &[Runs]) -> String {
    let rows = runs.len() as f64;
    let (step, top) = (120.0, 112.0);
    let mut svg = Svg::new(1120.0, top + rows * step + 30.0);
    let title = "10,000 requests fail together and are asked again";
    debug_assert_eq!(LARGE.herd, 10_000);
    svg.title((30.0, 34.0), 18, title);
    let told = format!(
        "{} simulated engines that refuse everything for {} s (shaded) and are back with nothing to do",
        LARGE.engines,
        LARGE.refuses.as_secs()
    );
    svg.text((30.0, 54.0), Anchor::Start, &told);
    svg.title(
        (90.0, 90.0),
        14,
        "Attempts per 10 ms, the most in 0.2 s (logarithmic)",
    );
    svg.title(
        (640.0, 90.0),
        14,
        "Requests let in, of those that failed together",
    );
    for (row, (runs, colour)) in runs.iter().zip(COLOURS).enumerate() {
        let top = top + step * row as f64;
        arrivals(&mut svg, runs, colour, top);
        let_in(&mut svg, runs, colour, top);
        let word = (92.0 + 440.0, top + 16.0);
        svg.text(word, Anchor::End, runs.policy.word);
    }
    svg.file()
}

fn panel(left: f64, top: f64, y: Axis) -> Panel {
    let marks: Vec<_> = (0..=6).map(|mark| f64::from(mark) * SHOWN / 6.0).collect();
    Panel {
        left,
        top,
        width: 440.0,
        height: 80.0,
        x: Axis::new("", &marks, |mark| format!("{mark} s")),
        y: Some(y),
    }
}

/// Shades the incident and draws the axes.
fn frame(svg: &mut Svg, panel: &Panel) {
    let width = panel.at_x(LARGE.refuses.as_secs_f64()) - panel.left;
    svg.rect((panel.left, panel.top), (width, panel.height), PALE);
    panel.frame(svg, "");
}

fn arrivals(svg: &mut Svg, runs: &Runs, colour: &str, top: f64) {
    let marks = [1.0, 10.0, 100.0, 1000.0, 10_000.0];
    let y = Axis::new("", &marks, |mark| format!("{mark}")).logarithmic();
    let panel = panel(90.0, top, y);
    frame(svg, &panel);
    // Of each point's time the most within 10 ms.
    let bins = (SHOWN / LARGE.counted_in.as_secs_f64()) as usize;
    let mut counts = vec![0_u32; bins];
    for at in &runs.figures.arrivals {
        let bin = (at.as_micros() / LARGE.counted_in.as_micros()) as usize;
        if let Some(count) = counts.get_mut(bin) {
            *count += 1;
        }
    }
    let points = counts
        .chunks(bins / POINTS)
        .enumerate()
        .map(|(nth, counts)| {
            let most = counts.iter().max().copied().unwrap_or(0);
            panel.at(nth as f64 * SHOWN / POINTS as f64, f64::from(most))
        });
    svg.curve(&points.collect::<Vec<_>>(), colour);
}

fn let_in(svg: &mut Svg, runs: &Runs, colour: &str, top: f64) {
    let most = LARGE.herd as f64;
    let y = Axis::new("", &[0.0, most / 2.0, most], |mark| format!("{mark}"));
    let panel = panel(640.0, top, y);
    frame(svg, &panel);
    let times = &runs.figures.let_in;
    let points = (0..=SHOWN as u64 * 10).map(|tenth| {
        let at = Duration::from_millis(tenth * 100);
        let count = times.iter().filter(|time| **time <= at).count();
        panel.at(at.as_secs_f64(), count as f64)
    });
    svg.curve(&points.collect::<Vec<_>>(), colour);
}
