//! Looks at the router once per second.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::time::{MissedTickBehavior, interval};

use super::metrics::Metrics;
use super::process;

/// What was seen at one time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Since the start of the traffic.
    pub at: Duration,
    /// The process.
    pub process: process::Look,
    /// Requests in flight.
    pub in_flight: f64,
}

/// Takes a sample per second and gives each to `keep`; ends when the router cannot be looked at.
pub async fn watch_router(
    pid: u32,
    admin: SocketAddr,
    start: Instant,
    mut keep: impl FnMut(Sample),
) -> String {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut failures = 0;
    loop {
        ticks.tick().await;
        let Some(process) = process::look(pid) else {
            return "the router's process is gone".to_owned();
        };
        let in_flight = match Metrics::read(admin).await {
            Ok(metrics) => metrics.in_flight().0,
            Err(_) if failures < 3 => {
                failures += 1;
                continue;
            }
            Err(error) => return format!("no metrics: {error}"),
        };
        failures = 0;
        keep(Sample {
            at: start.elapsed(),
            process,
            in_flight,
        });
    }
}

/// The median memory of the samples between two times.
pub fn median_rss(samples: &[Sample], from: Duration, to: Duration) -> f64 {
    let within = samples.iter().filter(|it| (from..to).contains(&it.at));
    let mut sizes: Vec<f64> = within.map(|it| it.process.rss_mib).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.get(sizes.len() / 2).copied().unwrap_or(0.0)
}

/// The median memory of each tenth of this time, in whole MiB.
pub fn tenths(samples: &[Sample], loaded: Duration) -> String {
    let tenth = loaded / 10;
    let medians = (0..10).map(|n| median_rss(samples, n * tenth, (n + 1) * tenth));
    let texts: Vec<String> = medians.map(|median| format!("{median:.0}")).collect();
    texts.join(", ")
}

/// How fast memory grew after `from`, in MiB per minute, by least squares.
pub fn slope(samples: &[Sample], from: Duration) -> f64 {
    let points: Vec<(f64, f64)> = samples
        .iter()
        .filter(|it| it.at >= from)
        .map(|it| (it.at.as_secs_f64() / 60.0, it.process.rss_mib))
        .collect();
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|it| it.0), mean(|it| it.1));
    let over: f64 = points.iter().map(|it| (it.0 - x) * (it.1 - y)).sum();
    let under: f64 = points.iter().map(|it| (it.0 - x).powi(2)).sum();
    if under > 0.0 { over / under } else { 0.0 }
}
