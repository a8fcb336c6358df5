//! The picture of a comparison.

use super::figures::What;
use super::plan::Load;
use super::report::Findings;
use super::subject::Subject;
use crate::drawing::panel::{Axis, Panel};
use crate::drawing::svg::{Anchor, Svg};

/// Neighbours, the smallest Pingora proxy, and ours; they can be told apart by those who see few
/// colours.
const NEIGHBOUR: &str = "#8c8c8c";
const SMALLEST: &str = "#0072b2";
const OURS: &str = "#d55e00";

const WIDTH: f64 = 1120.0;
const ROW: f64 = 24.0;

/// A panel: its load and figure, its title, the unit of its axis, and how much of the figure is
/// one of that.
type Shown = (Load, What, &'static str, &'static str, f64);

const PANELS: [Shown; 6] = [
    (
        Load::Chat,
        What::Cpu,
        "(a) Short answers",
        "µs of processor time per request",
        1.0,
    ),
    (
        Load::Stream,
        What::Cpu,
        "(b) Streams",
        "µs of processor time per event",
        1.0,
    ),
    (
        Load::Long,
        What::Cpu,
        "(c) Prompts of 128 KiB",
        "µs of processor time per request",
        1.0,
    ),
    (
        Load::Refusals,
        What::Cpu,
        "(d) One in five refused",
        "µs of processor time per attempt",
        1.0,
    ),
    (
        Load::Idle,
        What::Held,
        "(e) Open streams",
        "KiB of memory per stream",
        1024.0,
    ),
    (
        Load::Paced,
        What::P50,
        "(f) 1,000 requests per second",
        "µs to the answer, p50",
        1.0,
    ),
];

/// Draws it.
pub fn draw(findings: &Findings) -> String {
    let shown: Vec<_> = PANELS
        .into_iter()
        .map(|panel| (panel, findings.subjects(panel.0)))
        .filter(|(_, subjects)| !subjects.is_empty())
        .collect();
    let rows = shown.iter().map(|(_, subjects)| subjects.len());
    let height = ROW * rows.max().unwrap_or(0) as f64;
    let bands = shown.len().div_ceil(2) as f64;
    let mut svg = Svg::new(WIDTH, 80.0 + bands * (height + 100.0));
    svg.title((30.0, 34.0), 18, "What a proxy costs");
    let told = format!(
        "one worker on a core of its own; medians of {} rounds, whiskers are the range",
        findings.options.rounds
    );
    svg.text((30.0, 54.0), Anchor::Start, &told);
    for (place, (shown, subjects)) in shown.iter().enumerate() {
        let (column, band) = ((place % 2) as f64, (place / 2) as f64);
        let corner = (160.0 + 540.0 * column, 104.0 + band * (height + 100.0));
        bars(&mut svg, findings, shown, subjects, corner, height);
    }
    svg.file()
}

fn bars(
    svg: &mut Svg,
    findings: &Findings,
    (load, what, title, unit, one): &Shown,
    subjects: &[Subject],
    (left, top): (f64, f64),
    height: f64,
) {
    let values = |subject: &Subject| {
        let all = findings.figures.all(*load, *subject, *what).iter();
        all.map(|value| value / one).collect::<Vec<_>>()
    };
    let medians: Vec<_> = subjects
        .iter()
        .map(|subject| {
            let median = findings.figures.median(*load, *subject, *what);
            median.map(|value| value / one)
        })
        .collect();
    let ours = |subject: &Subject| *subject >= Subject::Pingora;
    // The axis is made for ours; what is far beyond it lies on its end, with its number.
    let near = subjects.iter().zip(&medians).filter(|(it, _)| ours(it));
    let near = near.filter_map(|(_, median)| *median).fold(0.0, f64::max);
    let all = medians.iter().flatten().copied().fold(0.0, f64::max);
    let end = all.min(near * 4.0).max(near);
    let panel = Panel {
        left,
        top,
        width: 330.0,
        height,
        x: Axis::new(unit, &marks(end), |mark| format!("{mark}")),
        y: None,
    };
    panel.frame(svg, title);
    for (row, (subject, median)) in subjects.iter().zip(&medians).enumerate() {
        let y = panel.row(row, subjects.len());
        svg.text((left - 8.0, y + 4.0), Anchor::End, subject.word());
        let Some(median) = median else { continue };
        let colour = match subject {
            Subject::Pingora => SMALLEST,
            it if ours(it) => OURS,
            _ => NEIGHBOUR,
        };
        let all = values(subject);
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        let width = panel.at_x(*median) - left;
        svg.rect((left, y - 8.0), (width, 16.0), colour);
        panel.whisker(svg, y, (least, most));
        let beyond = panel.at_x(most.max(*median));
        let text = if *median < 99.5 {
            format!("{median:.1}")
        } else {
            format!("{median:.0}")
        };
        svg.text((beyond + 8.0, y + 4.0), Anchor::Start, &text);
    }
}

/// Round marks from 0 to beyond the end.
fn marks(end: f64) -> Vec<f64> {
    let end = end.max(1e-3);
    let power = 10_f64.powf((end / 4.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let step = steps.into_iter().find(|step| 5.0 * step >= end);
    let step = step.unwrap_or(10.0 * power);
    let count = (end / step).ceil() as usize;
    (0..=count).map(|nth| nth as f64 * step).collect()
}
