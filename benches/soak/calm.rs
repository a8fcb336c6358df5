//! Requests on a fleet that behaves, before the storm and after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clients::{Client, World};
use super::engines::Seat;
use super::metrics::Metrics;
use super::ordinary;
use super::router::Router;

/// What these requests are counted under.
const CALM: &str = "calm fleet";
const CALM_SLOW: &str = "calm fleet, slow reader";
const WARM_UP: &str = "warm-up";

const ATTEMPTS: &str = "attempts_total";
const STALE: &str = "stale_connections_total";

/// The silence after which an engine has read all that was sent to it, and how long that may take.
const SETTLED: Duration = Duration::from_secs(3);
const SETTLING: Duration = Duration::from_secs(90);

/// Has everything in place that the first requests bring about.
pub async fn warm_up(world: &Arc<World>, seed: u64) {
    calm_requests(world, WARM_UP, seed).await;
}

/// Requests of several kinds over engines that answer well.
async fn calm_requests(world: &Arc<World>, kind: &'static str, seed: u64) {
    let mut clients = JoinSet::new();
    for number in 0..8 {
        let mut client = Client::new(Arc::clone(world), seed, 1_000_000 + number);
        clients.spawn(async move {
            for _ in 0..20 {
                ordinary::completion(&mut client, kind).await;
            }
            ordinary::gzip_renamed(&mut client, kind).await;
        });
    }
    while clients.join_next().await.is_some() {}
}

/// After the storm, everything is answered again, and engines receive what is sent.
pub async fn check(world: &Arc<World>, seats: &[Arc<Seat>], router: &Router, seed: u64) {
    let received = || seats.iter().map(|seat| seat.received()).sum::<u64>();
    let counted = async |series| {
        let metrics = Metrics::read(router.admin).await.unwrap_or_default();
        metrics.sum(series)
    };
    settled(&received).await;
    let (attempts_before, received_before) = (counted(ATTEMPTS).await, received());
    let stale_before = counted(STALE).await;
    calm_requests(world, CALM, seed + 1).await;
    let mut slow = JoinSet::new();
    for number in 0..4 {
        let mut client = Client::new(Arc::clone(world), seed, 2_000_000 + number);
        slow.spawn(async move {
            ordinary::slow_reader(&mut client, CALM_SLOW).await;
        });
    }
    while slow.join_next().await.is_some() {}
    for (kind, results) in world.tally.results() {
        let bad = results.iter().filter(|(result, _)| *result != "200");
        if [WARM_UP, CALM, CALM_SLOW].contains(&kind) && bad.count() > 0 {
            world.tally.wrong(format!("{kind}: {results:?}"));
        }
    }
    // The last of them are counted after their clients have their answers.
    settled(&received).await;
    let made = counted(ATTEMPTS).await - attempts_before;
    // What went out on a connection that was closing may have been read, or not.
    let again = counted(STALE).await - stale_before;
    let came = (received() - received_before) as f64;
    if came < made - 0.5 || came > made + again + 0.5 {
        world.tally.wrong(format!(
            "on the calm fleet {made} attempts were made, {again} sent again, and {came} requests received"
        ));
    }
}

/// Waits until no engine has received anything for a while: one that was frozen reads late what
/// was given up long ago.
async fn settled(received: &impl Fn() -> u64) {
    let deadline = Instant::now() + SETTLING;
    let mut before = received();
    let mut since = Instant::now();
    while since.elapsed() < SETTLED && Instant::now() < deadline {
        sleep(Duration::from_millis(200)).await;
        let now = received();
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
}
