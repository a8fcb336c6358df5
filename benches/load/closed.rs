//! Clients that ask again as soon as they are answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::client::Client;
use super::prompt;

/// A client whose connection failed tries again after this.
const PAUSE: Duration = Duration::from_millis(10);

/// What the clients of a crowd ask.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Clients at a time.
    pub clients: usize,
    /// Bytes of each prompt.
    pub prompt: usize,
    /// Whether a stream is asked for, and of how many events.
    pub events: Option<u64>,
    /// How long after the one before it a client begins.
    pub stagger: Duration,
}

/// A running crowd; it ends when dropped.
#[derive(Debug)]
pub struct Crowd {
    seen: Arc<Seen>,
    _clients: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    answers: AtomicU64,
    events: AtomicU64,
    pieces: AtomicU64,
    wrong: AtomicU64,
    waits: Mutex<Waits>,
}

#[derive(Clone, Debug, Default)]
struct Waits {
    whole: Vec<u64>,
    first: Vec<u64>,
}

/// What was seen in some time.
#[derive(Clone, Debug, Default)]
pub struct Window {
    pub seconds: f64,
    /// Answers that ended, the wrong ones among them.
    pub answers: u64,
    /// Events of streams.
    pub events: u64,
    /// Reads that brought events.
    pub pieces: u64,
    /// No answer, another status than 200, or not all of it.
    pub wrong: u64,
    /// Nanoseconds from a request to its whole answer, and to the first piece of it.
    pub whole: Vec<u64>,
    pub first: Vec<u64>,
}

impl Crowd {
    /// Lets one loose.
    pub fn start(to: SocketAddr, question: Question) -> Self {
        let seen = Arc::new(Seen::default());
        let mut clients = JoinSet::new();
        for number in 0..question.clients {
            let request = prompt::chat(to, number, question.prompt, question.events.is_some());
            let seen = Arc::clone(&seen);
            clients.spawn(async move {
                sleep(question.stagger.mul_f64(number as f64)).await;
                let mut client = Client::new(to);
                loop {
                    if !seen.ask(&mut client, &request, question.events).await {
                        client = Client::new(to);
                        sleep(PAUSE).await;
                    }
                }
            });
        }
        Self {
            seen,
            _clients: clients,
        }
    }

    /// Looks on for some time.
    pub async fn watch(&self, time: Duration) -> Window {
        self.seen.take();
        let start = Instant::now();
        sleep(time).await;
        Window {
            seconds: start.elapsed().as_secs_f64(),
            ..self.seen.take()
        }
    }
}

impl Seen {
    /// Asks once; false where the connection is of no more use.
    async fn ask(&self, client: &mut Client, request: &[u8], events: Option<u64>) -> bool {
        let start = Instant::now();
        let (mut came, mut is_first) = (0, true);
        let status = client.begin(request).await;
        let ended = loop {
            match client.more().await {
                Ok(Some(piece)) => {
                    if std::mem::take(&mut is_first) {
                        self.waits().first.push(nanos(start.elapsed()));
                    }
                    came += piece.events;
                    self.pieces.fetch_add(1, Ordering::Relaxed);
                    self.events.fetch_add(piece.events, Ordering::Relaxed);
                }
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let right = ended && matches!(status, Ok(200)) && came == events.unwrap_or(0);
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
        self.waits().whole.push(nanos(start.elapsed()));
        ended && status.is_ok()
    }

    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().expect("no panic")
    }

    fn take(&self) -> Window {
        let waits = std::mem::take(&mut *self.waits());
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        Window {
            seconds: 0.0,
            answers: take(&self.answers),
            events: take(&self.events),
            pieces: take(&self.pieces),
            wrong: take(&self.wrong),
            whole: waits.whole,
            first: waits.first,
        }
    }
}

/// Whole nanoseconds.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("nobody waits so long")
}
