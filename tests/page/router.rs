//! The real router over simulated engines, in a runtime of its own that can end before the test.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use vllm_pingora::config::Settings;
use vllm_pingora::engines::{Condition, Fleet};
use vllm_pingora::server::{Drain, Listener, Parts};
use vllm_pingora::simulator::{RunningSimulator, Simulator, SimulatorConfig};

use crate::http::send;

/// Far more requests than it takes for an engine to be out, or back.
const MANY: usize = 10_000;

/// A running router.
pub(crate) struct Router {
    runtime: Runtime,
    engines: Vec<RunningSimulator>,
    fleet: Arc<Fleet>,
    public: SocketAddr,
    admin: SocketAddr,
}

impl Router {
    /// Starts a router with these settings over so many engines that serve the model `m`.
    pub(crate) fn start(settings: &str, engines: usize) -> Self {
        let runtime = Runtime::new().unwrap();
        let guard = runtime.enter();
        let simulated = (0..engines).map(|_| {
            let simulator = runtime.block_on(Simulator::bind(SimulatorConfig::default()));
            simulator.unwrap().spawn()
        });
        let engines: Vec<_> = simulated.collect();
        let mut yaml = format!("{settings}engines:\n");
        for engine in &engines {
            let address = engine.local_addr();
            writeln!(yaml, "  - {{url: \"http://{address}\", models: [m]}}").unwrap();
        }
        let settings = Settings::from_yaml(&yaml).unwrap_or_else(|error| panic!("{error}"));
        let drain = Drain::default();
        let parts = Parts::new(&settings, &drain).unwrap();
        runtime.block_on(parts.upkeep.round());
        let fleet = Arc::clone(&parts.admin.fleet);
        let (public, public_address) = bind();
        let (admin, admin_address) = bind();
        let mut public = Listener::new("public", public, parts.edge, drain, None);
        let app = Arc::new(parts.admin);
        let mut admin = Listener::new("admin", admin, app, Drain::default(), None);
        runtime.spawn(async move { public.serve().await });
        runtime.spawn(async move { admin.serve().await });
        drop(guard);
        Self {
            runtime,
            engines,
            fleet,
            public: public_address,
            admin: admin_address,
        }
    }

    /// Where the page is.
    pub(crate) fn page(&self) -> String {
        format!("http://{}/", self.admin)
    }

    /// What an engine is called.
    pub(crate) fn engine(&self, place: usize) -> String {
        format!("http://{}", self.engines[place].local_addr())
    }

    /// Changes how an engine behaves.
    pub(crate) fn change(&self, place: usize, change: &Value) {
        self.engines[place].control().change(change).unwrap();
    }

    /// Asks so many times, with this request id.
    pub(crate) fn ask(&self, times: usize, id: &str) {
        for _ in 0..times {
            self.post("m", id);
        }
    }

    /// Asks so many times for a model there may not be.
    pub(crate) fn ask_for(&self, model: &str, times: usize) {
        for _ in 0..times {
            self.post(model, "other");
        }
    }

    /// Asks until an engine is out.
    pub(crate) fn ask_until_out(&self, place: usize) {
        self.ask_until(|condition| condition != Condition::Up, place);
    }

    /// Asks until an engine is back.
    pub(crate) fn ask_until_back(&self, place: usize) {
        self.ask_until(|condition| condition == Condition::Up, place);
    }

    fn ask_until(&self, reached: impl Fn(Condition) -> bool, place: usize) {
        let engine = &self.fleet.engines()[place];
        for _ in 0..MANY {
            if reached(engine.condition().0) {
                return;
            }
            self.post("m", "until");
        }
        panic!("{} is {:?} still", engine.label(), engine.condition());
    }

    fn post(&self, model: &str, id: &str) {
        let body = json!({"model": model, "prompt": "hello"}).to_string();
        let fields = format!("X-Request-Id: {id}\r\n");
        send(self.public, "POST", "/v1/completions", &fields, &body).unwrap();
    }

    /// Ends it at once, as the end of its process would.
    pub(crate) fn stop(self) {
        self.runtime.shutdown_background();
    }
}

fn bind() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
