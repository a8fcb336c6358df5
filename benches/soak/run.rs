//! One run, from the start of the engines to the report.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::SeedableRng as _;
use rand::rngs::StdRng;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::calm;
use super::clients::{Client, Stop, World};
use super::engines::{ENGINES, Seat};
use super::metrics::Metrics;
use super::options::Options;
use super::process::{self, Look};
use super::report::{self, Figures};
use super::router::Router;
use super::tally::Tally;
use super::watch::{Sample, watch_router};

/// How long the last requests may take once the traffic has stopped.
const LAST_REQUESTS: Duration = Duration::from_secs(90);
/// How long descriptors may take to come down: a connection that is being closed is read from for
/// up to 30 s, an unused one to an engine is kept for 4 s.
const COOLING: Duration = Duration::from_secs(45);
/// Longer than connections to engines are kept unused.
const UNUSED: Duration = Duration::from_secs(6);

/// Runs the soak test and prints its report.
///
/// The first interrupt ends the traffic early, the second one everything; the router is a child
/// that ends with this.
pub async fn run(options: &Options) -> ExitCode {
    let (count, interrupts) = watch::channel(0_u32);
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt()).expect("a signal handler"),
        signal(SignalKind::terminate()).expect("a signal handler"),
    );
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            count.send_modify(|count| *count += 1);
        }
    });
    let mut twice = interrupts.clone();
    tokio::select! {
        code = whole(options, interrupts) => code,
        _ = twice.wait_for(|count| *count > 1) => {
            eprintln!("soak: interrupted twice, no report");
            ExitCode::FAILURE
        }
    }
}

async fn whole(options: &Options, interrupts: watch::Receiver<u32>) -> ExitCode {
    let mut rng = StdRng::seed_from_u64(options.seed);
    let mut seats = Vec::new();
    for n in 0..ENGINES {
        seats.push(Arc::new(Seat::start(n, &mut rng).await));
    }
    let flags: Vec<_> = seats.iter().map(|seat| seat.as_flag()).collect();
    let mut router = Router::start(&flags).await;
    let world = Arc::new(World {
        router: router.public,
        tally: Tally::default(),
        log: Arc::clone(&router.log),
    });
    eprintln!("soak: {options:?}, router {}", router.pid);

    calm::warm_up(&world, options.seed).await;
    let idle = idle_look(&router).await;
    let before = Metrics::read(router.admin).await.unwrap_or_default();

    let start = Instant::now();
    let (samples, loaded) = storm(options, &world, &seats, &router, interrupts).await;
    let traffic = start.elapsed();
    let busy = process::look(router.pid).unwrap_or_default();
    let after = Metrics::read(router.admin).await.unwrap_or_default();

    if let Some(status) = router.ended() {
        world.tally.wrong(format!("the router ended: {status}"));
    } else {
        nothing_in_flight(&world, &router).await;
        calm::check(&world, &seats, &router, options.seed).await;
    }
    let end = cooled_look(&world, &router, idle).await;
    let last = Metrics::read(router.admin).await.unwrap_or_default();
    let figures = Figures {
        options: *options,
        loaded,
        traffic,
        requests: after.sum("requests_total") - before.sum("requests_total"),
        cpu_seconds: busy.cpu_seconds - idle.cpu_seconds,
        idle,
        end,
        received: seats.iter().map(|seat| seat.received()).sum(),
        samples,
        metrics: last,
    };
    figures.check(&world.tally);
    for line in world.log.panics() {
        world.tally.wrong(format!("a panic: {line}"));
    }
    if router.ended().is_none()
        && let Err(what) = router.stop().await
    {
        world.tally.wrong(what);
    }
    report::print(&figures, &world);
    if world.tally.faults().0 == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Lets clients and engines loose; gives the samples taken meanwhile, and after how long the
/// clients were told to stop.
async fn storm(
    options: &Options,
    world: &Arc<World>,
    seats: &[Arc<Seat>],
    router: &Router,
    mut interrupts: watch::Receiver<u32>,
) -> (Vec<Sample>, Duration) {
    let start = Instant::now();
    let (all_stop, stop) = Stop::new();
    let (calm_down, calm) = Stop::new();
    let mut moods = JoinSet::new();
    for (n, seat) in seats.iter().enumerate() {
        let (seat, calm) = (Arc::clone(seat), calm.clone());
        let rng = StdRng::seed_from_u64(options.seed.wrapping_mul(31) + n as u64);
        moods.spawn(async move { seat.be_moody(rng, calm).await });
    }
    let mut clients = JoinSet::new();
    for number in 0..options.concurrency {
        let client = Client::new(Arc::clone(world), options.seed, number);
        clients.spawn(client.live(stop.clone()));
    }
    let samples = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&samples);
    let mut watcher = tokio::spawn(watch_router(router.pid, router.admin, start, move |it| {
        let mut samples = keep.lock().expect("no panic");
        samples.push(it);
        if samples.len() % 60 == 0 {
            eprintln!(
                "soak: {:.0} s, {:.0} MiB, {} descriptors, {} in flight",
                it.at.as_secs_f64(),
                it.process.rss_mib,
                it.process.descriptors,
                it.in_flight
            );
        }
    }));
    tokio::select! {
        () = sleep(options.traffic) => {}
        _ = interrupts.wait_for(|count| *count > 0) => eprintln!("soak: interrupted, ending early"),
        ended = &mut watcher => world.tally.wrong(ended.unwrap_or_else(|e| e.to_string())),
    }
    let loaded = start.elapsed();
    let _ = all_stop.send(true);
    let last = timeout(LAST_REQUESTS, async {
        while let Some(ended) = clients.join_next().await {
            if let Err(error) = ended {
                world.tally.wrong(format!("a client of the bench: {error}"));
            }
        }
    });
    if last.await.is_err() {
        let count = clients.len();
        world
            .tally
            .wrong(format!("{count} clients wait after {LAST_REQUESTS:?}"));
    }
    let _ = calm_down.send(true);
    while let Some(ended) = moods.join_next().await {
        if let Err(error) = ended {
            world
                .tally
                .wrong(format!("an engine of the bench: {error}"));
        }
    }
    watcher.abort();
    let samples = samples.lock().expect("no panic");
    (samples.clone(), loaded)
}

/// The router without traffic, but with everything in place that the first requests bring about.
async fn idle_look(router: &Router) -> Look {
    sleep(UNUSED).await;
    process::look(router.pid).unwrap_or_default()
}

async fn nothing_in_flight(world: &World, router: &Router) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match Metrics::read(router.admin).await.map(|it| it.in_flight()) {
            Ok((0.0, 0.0)) => return,
            found if Instant::now() > deadline => {
                return world.tally.wrong(format!(
                    "20 s after the traffic, requests and attempts in flight are {found:?}"
                ));
            }
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Waits until the router has no more descriptors open than it had before the traffic.
async fn cooled_look(world: &World, router: &Router, idle: Look) -> Look {
    let deadline = Instant::now() + COOLING;
    sleep(UNUSED).await;
    loop {
        let Some(now) = process::look(router.pid) else {
            return Look::default();
        };
        if now.descriptors <= idle.descriptors {
            return now;
        }
        if Instant::now() > deadline {
            world.tally.wrong(format!(
                "{COOLING:?} after the traffic {} descriptors are open, {} before it",
                now.descriptors, idle.descriptors
            ));
            return now;
        }
        sleep(Duration::from_millis(500)).await;
    }
}
