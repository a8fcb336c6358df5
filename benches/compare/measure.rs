//! One subject under one load, once.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::sleep;

use super::figures::{Figures, What, quantile};
use super::plan::Load;
use super::subject::Subject;
use super::{idle, paced};
use crate::load::child::Running;
use crate::load::closed::{Crowd, Window};
use crate::load::engine::Engines;

/// Until connections are open and caches warm.
const WARM_UP: Duration = Duration::from_millis(400);

/// Who is measured, and where.
#[derive(Debug)]
pub struct Target<'a> {
    pub subject: Subject,
    pub address: SocketAddr,
    /// None where clients connect to an engine.
    pub proxy: Option<&'a Running>,
}

impl Target<'_> {
    fn cpu(&self) -> Duration {
        self.proxy.map(Running::cpu).unwrap_or_default()
    }

    /// Measures it, and takes note of what was found.
    pub async fn measure(
        &self,
        load: Load,
        engines: &Engines,
        time: Duration,
        figures: &mut Figures,
    ) {
        engines.play(load.script());
        match load {
            Load::Idle => unreachable!("that takes a fresh process"),
            Load::Paced => {
                let window = paced::run(self.address, load.question(), time * 2).await;
                self.note(load, &window, figures, (window.answers, Duration::ZERO));
            }
            Load::Chat | Load::Stream | Load::Long | Load::Refusals => {
                let crowd = Crowd::start(self.address, load.question());
                sleep(WARM_UP).await;
                let (attempts, cpu) = (engines.received(), self.cpu());
                let window = crowd.watch(time).await;
                let cpu = self.cpu().saturating_sub(cpu);
                let units = match load {
                    Load::Stream => window.events,
                    Load::Refusals => engines.received() - attempts,
                    _ => window.answers,
                };
                self.note(load, &window, figures, (units, cpu));
            }
        }
    }

    fn note(
        &self,
        load: Load,
        window: &Window,
        figures: &mut Figures,
        (units, cpu): (u64, Duration),
    ) {
        let mut note = |what, value| figures.note(load, self.subject, what, value);
        let waits = if load == Load::Stream {
            &window.first
        } else {
            &window.whole
        };
        let mut waits = waits.clone();
        note(What::P50, quantile(&mut waits, 0.5));
        note(What::P99, quantile(&mut waits, 0.99));
        note(What::P999, quantile(&mut waits, 0.999));
        note(What::Rate, units as f64 / window.seconds);
        note(
            What::Wrong,
            window.wrong as f64 / window.answers.max(1) as f64,
        );
        if load == Load::Stream {
            note(
                What::PerRead,
                window.events as f64 / window.pieces.max(1) as f64,
            );
        }
        if self.proxy.is_some() && load != Load::Paced {
            let cpu = cpu.as_secs_f64();
            // Where nothing was served this is no number, and no median counts it.
            let served = if units > 0 { units as f64 } else { f64::NAN };
            note(What::Cpu, 1e6 * cpu / served);
            note(What::Busy, cpu / window.seconds);
        }
    }

    /// Opens streams on a fresh process and looks at its memory.
    pub async fn hold(&self, engines: &Engines, streams: usize, figures: &mut Figures) {
        let Some(proxy) = self.proxy else { return };
        let load = Load::Idle;
        engines.play(load.script());
        let held = idle::run(self.address, load.question(), engines, proxy, streams).await;
        let mut note = |what, value| figures.note(load, self.subject, what, value);
        note(What::Wrong, held.wrong as f64 / streams as f64);
        let [open, passed, again] = held.memory.map(|bytes| bytes / streams as f64);
        note(What::Held, open);
        note(What::Passed, passed);
        note(What::Grown, again - passed);
    }
}
