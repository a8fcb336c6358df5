//! The simulated engines, and the moods they are in.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::time::sleep;
use vllm_pingora::simulator::{Control, RunningSimulator, Simulator, SimulatorConfig};

use super::clients::Stop;

/// How many engines there are.
pub const ENGINES: usize = 5;

/// One engine's place: a port, and who listens there now.
#[derive(Debug)]
pub struct Seat {
    config: SimulatorConfig,
    running: Mutex<Option<RunningSimulator>>,
    /// Who listens here, and who did.
    served: Mutex<Served>,
}

/// The engines of one seat, one after the other.
#[derive(Debug, Default)]
struct Served {
    /// What those received that are long gone.
    received: u64,
    /// The last ones; a connection of an engine that was stopped may end a little later.
    controls: VecDeque<Control>,
}

impl Seat {
    /// Starts engine number `n`; the first one serves one model more.
    pub async fn start(n: usize, rng: &mut StdRng) -> Self {
        let models = if n == 0 { vec!["m", "solo"] } else { vec!["m"] };
        let seat = Self {
            config: SimulatorConfig {
                port: free_port(rng),
                models: models.into_iter().map(str::to_owned).collect(),
                // One closes idle connections sooner than the router does.
                keep_alive: Duration::from_millis(if n == 1 { 150 } else { 5_000 }),
                max_model_len: 4 << 20,
                ..SimulatorConfig::default()
            },
            running: Mutex::new(None),
            served: Mutex::default(),
        };
        seat.open().await;
        seat.change(&calm());
        seat
    }

    /// Its URL, and its models as the router's flag takes them.
    pub fn as_flag(&self) -> (String, &'static str) {
        let url = format!("http://127.0.0.1:{}", self.config.port);
        let solo = self.config.models.len() > 1;
        (url, if solo { "m|solo" } else { "m" })
    }

    /// How many requests were received here.
    pub fn received(&self) -> u64 {
        let served = self.served.lock().expect("no panic");
        let last = served.controls.iter().map(|it| it.counts().received);
        served.received + last.sum::<u64>()
    }

    /// Changes its mood all the time, until the traffic stops; then it is calm.
    pub async fn be_moody(&self, mut rng: StdRng, stop: Stop) {
        while !stop.is_set() {
            if rng.random_bool(0.06) {
                self.close();
                sleep(millis(&mut rng, 100, 2_000)).await;
                self.open().await;
            }
            self.change(&mood(&mut rng));
            let lasts = millis(&mut rng, 300, 3_000);
            tokio::select! {
                () = sleep(lasts) => {}
                () = stop.wait() => {}
            }
        }
        self.change(&calm());
    }

    fn change(&self, mood: &Value) {
        let running = self.running.lock().expect("no panic");
        let running = running.as_ref().expect("it runs");
        running.control().change(mood).expect("a mood is valid");
    }

    fn close(&self) {
        self.running.lock().expect("no panic").take();
    }

    fn serve(&self, control: Control) {
        let mut served = self.served.lock().expect("no panic");
        served.controls.push_back(control);
        if served.controls.len() > 3
            && let Some(gone) = served.controls.pop_front()
        {
            served.received += gone.counts().received;
        }
    }

    async fn open(&self) {
        let simulator = loop {
            match Simulator::bind(self.config.clone()).await {
                Ok(simulator) => break simulator,
                // The one before has not let go of the port yet.
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        self.serve(simulator.control());
        *self.running.lock().expect("no panic") = Some(simulator.spawn());
    }
}

/// A port that no connection takes as its own end while an engine is away: one below those that
/// the system gives out.
fn free_port(rng: &mut StdRng) -> u16 {
    loop {
        let port = rng.random_range(20_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn millis(rng: &mut StdRng, least: u64, most: u64) -> Duration {
    Duration::from_millis(rng.random_range(least..most))
}

/// No faults.
fn calm() -> Value {
    json!({
        "script": "", "fail_share": 0, "reset_share": 0, "hang_share": 0, "paused": false,
        "ttft_ms": 20, "ttft_jitter": 1, "tokens_per_second": 500, "tokens": "4-64",
        "max_num_seqs": 256, "max_num_queued_reqs": null, "retry_after": null,
    })
}

/// A mood: mostly calm, else one kind of trouble.
fn mood(rng: &mut StdRng) -> Value {
    let mut mood = calm();
    let mut set = |key: &str, value: Value| mood[key] = value;
    match rng.random_range(0..100) {
        0..35 => {}
        35..50 => {
            set("fail_share", json!(rng.random_range(0.2..1.0)));
            set(
                "fail_status",
                json!([503, 500, 429][rng.random_range(0..3)]),
            );
            if rng.random_bool(0.3) {
                set("retry_after", json!("1"));
            }
        }
        50..64 => {
            let at = ["before-head", "after-head", "1", "2", "8"][rng.random_range(0..5)];
            set("reset_at", json!(at));
            set("reset_share", json!(rng.random_range(0.1..0.9)));
        }
        64..70 => set("hang_share", json!(rng.random_range(0.05..0.4))),
        70..84 => set("script", json!(script(rng))),
        84..89 => set("paused", json!(true)),
        89..94 => {
            set("max_num_seqs", json!(rng.random_range(1..4)));
            set("max_num_queued_reqs", json!(rng.random_range(0..4)));
        }
        _ => set("tokens_per_second", json!(40)),
    }
    mood
}

/// Good answers among all the ways one can break.
fn script(rng: &mut StdRng) -> String {
    const STEPS: [&str; 18] = [
        "503",
        "500",
        "429",
        "502",
        "504",
        "hang",
        "first-event-error",
        "reset-before-head",
        "reset-after-head",
        "reset-after-3",
        "close-before-head",
        "close-after-head",
        "close-after-1",
        "close-after-9",
        "stall-before-head",
        "stall-after-head",
        "stall-after-4",
        "error-after-2",
    ];
    let steps = (0..rng.random_range(3..12)).map(|_| {
        if rng.random_bool(0.5) {
            "200"
        } else {
            STEPS[rng.random_range(0..STEPS.len())]
        }
    });
    steps.collect::<Vec<_>>().join(",")
}
