//! Many open streams on which next to nothing happens, and what they take of the proxy's memory.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::load::child::Running;
use crate::load::client::Client;
use crate::load::closed::Question;
use crate::load::engine::Engines;
use crate::load::prompt;

/// Events that pass on each stream between two looks.
const EVENTS: u64 = 50;
/// How long opening all, or passing events on all, may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Until a process has come to rest.
const REST: Duration = Duration::from_millis(300);

/// What was found.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Bytes with all streams open, with tokens passed on each, and with as many more; less those
    /// of the process after its first answer.
    pub memory: [f64; 3],
    /// Streams that did not open or did not pass all events.
    pub wrong: usize,
}

/// Opens them, as many at a time as there are clients in the question.
pub async fn run(
    to: SocketAddr,
    question: Question,
    engines: &Engines,
    proxy: &Running,
    streams: usize,
) -> Held {
    sleep(REST).await;
    let before = proxy.memory() as f64;
    let events = Arc::new(AtomicU64::new(0));
    let mut open = JoinSet::new();
    let deadline = Instant::now() + PATIENCE;
    for number in 0..streams {
        let request = prompt::chat(to, number, question.prompt, true);
        let counted = Arc::clone(&events);
        open.spawn(async move {
            let mut client = Client::new(to);
            if !matches!(client.begin(&request).await, Ok(200)) {
                return;
            }
            while let Ok(Some(piece)) = client.more().await {
                counted.fetch_add(piece.events, Ordering::Relaxed);
            }
        });
        let opening = || number as u64 - events.load(Ordering::Relaxed).min(number as u64);
        while opening() > question.clients as u64 && Instant::now() < deadline {
            sleep(Duration::from_millis(1)).await;
        }
    }
    let came = async |count: u64| {
        let enough = async {
            while events.load(Ordering::Relaxed) < count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(PATIENCE, enough).await;
        sleep(REST).await;
        events.load(Ordering::Relaxed)
    };
    let more = |bytes: u64| bytes as f64 - before;
    let opened = came(streams as u64).await;
    let open = more(proxy.memory());
    engines.say(EVENTS);
    came(opened + opened * EVENTS).await;
    let passed = more(proxy.memory());
    engines.say(EVENTS);
    let all = came(opened + 2 * opened * EVENTS).await;
    let again = more(proxy.memory());
    engines.end();
    let lost = streams as u64 - all / (2 * EVENTS + 1);
    Held {
        memory: [open, passed, again],
        wrong: lost as usize,
    }
}
