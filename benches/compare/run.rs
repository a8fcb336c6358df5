//! All rounds, from the start of the engines to the report.

use std::io;
use std::time::Duration;

use super::figures::{Figures, What};
use super::measure::Target;
use super::options::Options;
use super::plan::Load;
use super::report::Findings;
use super::start::{Place, Started, start};
use super::subject::Subject;
use crate::load::child;
use crate::load::engine::Engines;

/// Engines behind every subject.
const ENGINES: usize = 3;

/// Memory is the same every time, so that it need not be looked at in every round.
const MEMORY_ROUNDS: usize = 3;
/// How long a proxy may take to stop before it is killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// Measures everything there is to measure.
///
/// In each round every subject is started anew. Subjects take turns under one load before the
/// next one comes, every other round in the opposite order, so that what else the machine does
/// hits all of them alike.
pub async fn run(options: &Options) -> io::Result<Findings> {
    let place = place()?;
    let engines = Engines::start(ENGINES)?;
    let mut findings = Findings {
        options: options.clone(),
        figures: Figures::default(),
        missing: Vec::new(),
    };
    let mut subjects = options.subjects.clone();
    for round in 1..=options.rounds {
        eprintln!("round {round} of {}", options.rounds);
        let running = start_all(&mut subjects, &place, &engines, &mut findings).await;
        let loads = options.loads.iter().filter(|load| **load != Load::Idle);
        for load in loads {
            // Others would pass the refusals on, which costs them nothing.
            let retries = |it: &&Started| *load != Load::Refusals || it.subject.retries();
            for started in running.iter().filter(retries) {
                let target = started.target();
                let figures = &mut findings.figures;
                target.measure(*load, &engines, options.time, figures).await;
                tell(figures, *load, started.subject);
            }
        }
        for started in running {
            stop(started).await;
        }
        if options.loads.contains(&Load::Idle) && round <= MEMORY_ROUNDS {
            hold_all(&subjects, &place, &engines, &mut findings).await;
        }
        subjects.reverse();
    }
    Ok(findings)
}

/// The first core is the proxy's, the last one that of clients and engines.
fn place() -> io::Result<Place> {
    let cores = child::cores();
    let (proxy, home) = (cores[0], cores[cores.len() - 1]);
    if proxy == home {
        eprintln!("there is one core only: waits and rates tell nothing");
    }
    child::stay_on(home);
    let dir = std::env::temp_dir().join(format!("compare-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    Ok(Place { proxy, home, dir })
}

/// Starts all of them; those that cannot be are left out from now on.
async fn start_all(
    subjects: &mut Vec<Subject>,
    place: &Place,
    engines: &Engines,
    findings: &mut Findings,
) -> Vec<Started> {
    let mut running = Vec::new();
    for subject in subjects.clone() {
        match start(subject, place, &findings.options.tools, engines).await {
            Ok(started) => {
                findings.started(&started);
                running.push(started);
            }
            Err(why) => {
                eprintln!("{} is left out: {why}", subject.word());
                findings.missing.push((subject, why));
                subjects.retain(|it| *it != subject);
            }
        }
    }
    running
}

/// Looks at the memory of each, in a process that has done nothing else.
async fn hold_all(subjects: &[Subject], place: &Place, engines: &Engines, findings: &mut Findings) {
    for subject in subjects.iter().filter(|it| **it != Subject::Direct) {
        let started = start(*subject, place, &findings.options.tools, engines).await;
        let Ok(started) = started else { continue };
        findings.started(&started);
        let (streams, figures) = (findings.options.streams, &mut findings.figures);
        started.target().hold(engines, streams, figures).await;
        tell(figures, Load::Idle, *subject);
        stop(started).await;
    }
}

async fn stop(started: Started) {
    if let Some(proxy) = started.proxy {
        proxy.stop(PATIENCE).await;
    }
}

impl Started {
    fn target(&self) -> Target<'_> {
        Target {
            subject: self.subject,
            address: self.address,
            proxy: self.proxy.as_ref(),
        }
    }
}

fn tell(figures: &Figures, load: Load, subject: Subject) {
    let last = |what| figures.all(load, subject, what).last().copied();
    let shown = |what| last(what).map_or_else(|| "–".to_owned(), |it| format!("{it:.1}"));
    let (letter, word) = (load.letter(), subject.word());
    match load {
        Load::Idle => eprintln!(
            "  ({letter}) {word}: {} bytes per stream, {} with tokens passed, {} more with more of them",
            shown(What::Held),
            shown(What::Passed),
            shown(What::Grown)
        ),
        _ => eprintln!(
            "  ({letter}) {word}: {} µs of processor time, {} per second, p50 {} µs, p99 {} µs",
            shown(What::Cpu),
            shown(What::Rate),
            shown(What::P50),
            shown(What::P99)
        ),
    }
}
