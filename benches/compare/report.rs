//! The tables.

use std::fmt::Write as _;

use super::figures::{Figures, What};
use super::options::Options;
use super::plan::Load;
use super::start::Started;
use super::subject::Subject;
use super::targets;
use crate::load::machine;

/// All that was found.
#[derive(Debug)]
pub struct Findings {
    pub options: Options,
    pub figures: Figures,
    /// Who could not be compared, and why.
    pub missing: Vec<(Subject, String)>,
}

/// A column: what it is called, what it shows, and how that is written.
type Column = (&'static str, What, fn(f64) -> String);

impl Findings {
    /// Takes note of how long a start took.
    pub fn started(&mut self, started: &Started) {
        if let Some(took) = started.took {
            let micros = 1e6 * took.as_secs_f64();
            let subject = started.subject;
            self.figures.note(Load::Chat, subject, What::Start, micros);
        }
    }

    /// Those of whom there is anything under this load, in the order of every table.
    pub fn subjects(&self, load: Load) -> Vec<Subject> {
        let all = Subject::ALL.into_iter();
        all.filter(|it| self.figures.has(load, *it)).collect()
    }

    /// Everything, in Markdown; `picture` is the name of its file.
    pub fn markdown(&self, picture: Option<&str>) -> String {
        let mut out = format!(
            "# Comparison of proxies, {}\n\nThe processor time a proxy takes per request, and what comes with it. Commit {}; {}. {} rounds of {:.1} s per load; medians over the rounds, ranges in brackets. The proxy has a core and one worker, clients and engines have the other core.\n\n```sh\n{}\n```\n\n",
            machine::date(),
            machine::commit(),
            machine::processor(),
            self.options.rounds,
            self.options.time.as_secs_f64(),
            machine::command(),
        );
        if let Some(picture) = picture {
            let _ = writeln!(out, "![The figures of the tables below]({picture})\n");
        }
        out += &self.goals();
        for load in &self.options.loads {
            let _ = writeln!(out, "## ({}) {}\n", load.letter(), load.told());
            out += &self.table(*load);
        }
        out += &self.compared();
        out
    }

    fn goals(&self) -> String {
        let goals = targets::goals(&self.figures);
        if goals.is_empty() {
            return String::new();
        }
        let mut out = "## `ours-on` and its limits\n\n| load | what | limit | found | kept |\n|---|---|---|---|---|\n".to_owned();
        for goal in goals {
            let written = |value: f64| format!("{}{}", significant(value), goal.unit);
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} | {} |",
                goal.load.letter(),
                goal.told,
                written(goal.at_most),
                written(goal.found),
                if goal.is_kept() { "yes" } else { "**no**" }
            );
        }
        out + "\n"
    }

    fn table(&self, load: Load) -> String {
        let columns = columns(load);
        let mut out = "| subject |".to_owned();
        for (title, ..) in &columns {
            let _ = write!(out, " {title} |");
        }
        let against = matches!(
            load,
            Load::Chat | Load::Stream | Load::Long | Load::Refusals
        );
        if against {
            out += " `ours-on` against it |";
        }
        out += "\n|---|";
        out += &"---|".repeat(columns.len() + usize::from(against));
        out += "\n";
        for subject in self.subjects(load) {
            let _ = write!(out, "| {} |", subject.word());
            for (_, what, written) in &columns {
                let _ = write!(out, " {} |", self.cell(load, subject, *what, *written));
            }
            if against {
                let (on, it) = (Subject::OursOn, subject);
                let ratio = self.figures.paired(
                    (load, on, What::Cpu),
                    (load, it, What::Cpu),
                    |one, other| one / other,
                );
                let _ = write!(out, " {} |", ratio.map_or("–".to_owned(), significant));
            }
            out += "\n";
        }
        out + "\n"
    }

    fn cell(&self, load: Load, subject: Subject, what: What, written: fn(f64) -> String) -> String {
        let all = self.figures.all(load, subject, what);
        let Some(median) = self.figures.median(load, subject, what) else {
            return "–".to_owned();
        };
        let least = written(all.iter().copied().fold(f64::INFINITY, f64::min));
        let most = written(all.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        if least == most {
            written(median)
        } else {
            format!("{} ({least}–{most})", written(median))
        }
    }

    fn compared(&self) -> String {
        let mut out =
            "## Who is compared\n\n| subject | version | how it is set up | start to first answer |\n|---|---|---|---|\n"
                .to_owned();
        for subject in &self.options.subjects {
            if let Some((_, why)) = self.missing.iter().find(|(it, _)| it == subject) {
                let why: String = why.chars().take_while(|it| *it != '\n').take(120).collect();
                let _ = writeln!(out, "| {} | – | left out: {why} | – |", subject.word());
                continue;
            }
            let _ = writeln!(
                out,
                "| {} | {} | {} | {} |",
                subject.word(),
                subject.version(&self.options.tools),
                subject.told(),
                self.cell(Load::Chat, *subject, What::Start, milliseconds)
            );
        }
        out + "\n"
    }
}

fn columns(load: Load) -> Vec<Column> {
    let waits: [Column; 2] = match load {
        Load::Stream => [
            ("first event p50", What::P50, time),
            ("p99", What::P99, time),
        ],
        _ => [("p50", What::P50, time), ("p99", What::P99, time)],
    };
    let mut columns: Vec<Column> = match load {
        Load::Chat | Load::Long => vec![
            ("µs per request", What::Cpu, tenths),
            ("requests/s", What::Rate, whole),
            ("core busy", What::Busy, percent),
        ],
        Load::Stream => vec![
            ("µs per event", What::Cpu, hundredths),
            ("events/s", What::Rate, whole),
            ("core busy", What::Busy, percent),
            ("events per read", What::PerRead, hundredths),
        ],
        Load::Refusals => vec![
            ("µs per attempt", What::Cpu, tenths),
            ("attempts/s", What::Rate, whole),
            ("core busy", What::Busy, percent),
        ],
        Load::Idle => vec![
            ("KiB per stream", What::Held, kibibytes),
            ("with 50 tokens passed", What::Passed, kibibytes),
            ("and more for 50 more", What::Grown, kibibytes),
        ],
        Load::Paced => vec![],
    };
    if load != Load::Idle {
        columns.extend(waits);
    }
    if load == Load::Paced {
        columns.push(("p99.9", What::P999, time));
    }
    columns.push(("clients without a 200", What::Wrong, share));
    columns
}

/// Three significant digits.
fn significant(value: f64) -> String {
    match value.abs() {
        0.0..9.995 => format!("{value:.2}"),
        9.995..99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// A part that should be nothing.
fn share(part: f64) -> String {
    if part == 0.0 {
        "0".to_owned()
    } else {
        format!("{:.3} %", 100.0 * part)
    }
}

fn kibibytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1024.0)
}

fn milliseconds(micros: f64) -> String {
    format!("{:.0} ms", micros / 1e3)
}

fn time(micros: f64) -> String {
    match micros {
        ..1000.0 => format!("{micros:.0} µs"),
        1000.0..100_000.0 => format!("{:.1} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}
