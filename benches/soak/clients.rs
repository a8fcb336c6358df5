//! The clients: each does one thing after another, drawn from its own dice, until it is told to
//! stop.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::answer::NoAnswer;
use super::prompt::{Ask, Wish};
use super::router::{CLIENT_KEEPALIVE, Log};
use super::tally::Tally;
use super::wire::Line;
use super::{h2_client, hostile, leaving, ordinary};

/// The longest time one thing may take; far more than all attempts and waits together.
const TURN_LIMIT: Duration = Duration::from_secs(60);

/// The end of the traffic.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop, and what sets it.
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    /// Whether it is time.
    pub fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is time.
    pub async fn wait(&self) {
        let mut stop = self.0.clone();
        let _ = stop.wait_for(|stop| *stop).await;
    }
}

/// What all clients share.
#[derive(Debug)]
pub struct World {
    /// Where the router is.
    pub router: SocketAddr,
    /// What came of everything.
    pub tally: Tally,
    /// What the router says.
    pub log: Arc<Log>,
}

impl World {
    /// Takes note of a fault, with what the router's log says of that request.
    pub async fn wrong(&self, kind: &str, id: &str, what: &str) {
        sleep(Duration::from_millis(500)).await;
        let log = self.log.about(id).join("\n    ");
        self.tally.wrong(format!("{kind}: {what}\n    {log}"));
    }
}

/// One client.
#[derive(Debug)]
pub struct Client {
    /// What it shares with the others.
    pub world: Arc<World>,
    /// Its dice.
    pub rng: StdRng,
    /// A connection for the next request, and since when it is unused.
    kept: Option<(Line, Instant)>,
    number: usize,
    serial: u64,
    name: String,
}

type Turn<'c> = Pin<Box<dyn Future<Output = ()> + Send + 'c>>;
type Kind = (u32, &'static str, for<'c> fn(&'c mut Client) -> Turn<'c>);

macro_rules! kinds {
    ($($weight:literal $name:literal $turn:path;)*) => {
        [$(($weight, $name, {
            fn turn(client: &mut Client) -> Turn<'_> {
                Box::pin($turn(client, $name))
            }
            turn
        })),*]
    };
}

/// Everything a client may do, and how often.
const KINDS: [Kind; 25] = kinds! {
    150 "completion" ordinary::completion;
    60 "completion, chunked" ordinary::chunked;
    20 "large body" ordinary::large;
    20 "large body, chunked" ordinary::large_chunked;
    30 "long answer" ordinary::long_answer;
    15 "slow reader" ordinary::slow_reader;
    40 "pipelined" ordinary::pipelined;
    30 "HTTP/1.0" ordinary::http_1_0;
    30 "gzip, renamed" ordinary::gzip_renamed;
    10 "gzip, as it is" ordinary::gzip;
    20 "multipart" ordinary::multipart;
    10 "health" ordinary::health;
    10 "over the limit" hostile::over_limit;
    5 "over the limit, chunked" hostile::over_limit_chunked;
    20 "wrong key" hostile::wrong_key;
    20 "unknown model" hostile::unknown_model;
    20 "broken JSON" hostile::broken_json;
    30 "malformed head" hostile::malformed;
    3 "stalled head" hostile::stalled_head;
    3 "stalled upload" hostile::stalled_upload;
    40 "leaves in the upload" leaving::in_upload;
    60 "leaves while waiting" leaving::while_waiting;
    60 "leaves in mid-answer" leaving::in_answer;
    10 "half-closes" leaving::half_close;
    120 "HTTP/2" h2_client::streams;
};

impl Client {
    /// Client number `number` of a run.
    pub fn new(world: Arc<World>, seed: u64, number: usize) -> Self {
        let salt = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self {
            world,
            rng: StdRng::seed_from_u64(seed ^ salt),
            kept: None,
            number,
            serial: 0,
            name: format!("{seed:x}-{number}"),
        }
    }

    /// Does one thing after another.
    pub async fn live(mut self, stop: Stop) {
        let all: u32 = KINDS.iter().map(|kind| kind.0).sum();
        // Not all at once.
        self.think(1_000).await;
        while !stop.is_set() {
            let mut draw = self.rng.random_range(0..all);
            let kind = KINDS.iter().find(|kind| {
                let found = draw < kind.0;
                draw = draw.saturating_sub(kind.0);
                found
            });
            let (_, name, turn) = kind.expect("the draw is below the sum");
            let done = timeout(TURN_LIMIT, turn(&mut self)).await;
            if done.is_err() {
                self.kept = None;
                let id = self.last_id();
                self.world.wrong(name, &id, "no end within 60 s").await;
            }
            self.think(60).await;
        }
    }

    /// A request for a completion that is this client's next.
    pub fn ask(&mut self, wish: &Wish) -> Ask {
        Ask::new(self.next_id(), wish, &mut self.rng)
    }

    /// An ordinary request.
    pub fn ordinary(&mut self) -> Ask {
        let wish = Wish::ordinary(&mut self.rng);
        self.ask(&wish)
    }

    /// A request id that nobody else has.
    pub fn next_id(&mut self) -> String {
        self.serial += 1;
        self.last_id()
    }

    fn last_id(&self) -> String {
        format!("soak-{}-{}-{}-", self.name, self.number, self.serial)
    }

    /// A new connection; `None` when there is none, which is a fault.
    pub async fn connect(&mut self, kind: &'static str) -> Option<Line> {
        match Line::connect(self.world.router).await {
            Ok(line) => Some(line),
            Err(error) => {
                let what = format!("{kind}: no connection: {error}");
                self.world.tally.wrong(what);
                None
            }
        }
    }

    /// Keeps a connection for the next request.
    pub fn keep(&mut self, line: Line) {
        self.kept = Some((line, Instant::now()));
    }

    /// The kept connection, mostly, or a new one.
    pub async fn line(&mut self, kind: &'static str) -> Option<(Line, bool)> {
        match self.kept.take() {
            Some((line, since))
                if since.elapsed() < CLIENT_KEEPALIVE / 2
                    && self.rng.random_bool(0.8)
                    && !line.is_closed() =>
            {
                Some((line, true))
            }
            _ => self.connect(kind).await.map(|line| (line, false)),
        }
    }

    /// Does nothing for up to so many milliseconds.
    pub async fn think(&mut self, most: u64) {
        let long = Duration::from_millis(self.rng.random_range(0..most));
        sleep(long).await;
    }

    /// Counts a judged result, or takes note of the fault.
    pub async fn judged(&self, kind: &'static str, id: &str, result: Result<String, String>) {
        match result {
            Ok(result) => self.world.tally.count(kind, &result),
            Err(what) => {
                self.world.tally.count(kind, "WRONG");
                self.world.wrong(kind, id, &what).await;
            }
        }
    }

    /// Takes note of a request that was not answered.
    pub async fn unanswered(&self, kind: &'static str, id: &str, why: NoAnswer) {
        let what = match why {
            NoAnswer::Closed(why) => format!("no answer: {why}"),
            NoAnswer::Garbage(what) => format!("no HTTP: {what}"),
        };
        self.judged(kind, id, Err(what)).await;
    }
}
