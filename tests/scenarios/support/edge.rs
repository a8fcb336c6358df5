//! The real router, in the test's own runtime, on ports of its own.

use std::collections::{BTreeMap, HashMap};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use vllm_pingora::config::{self, Inputs, Load, Settings};
use vllm_pingora::engines::Fleet;
use vllm_pingora::metrics::Metrics;
use vllm_pingora::server::{Drain, Listener, Parts, Reloader, Upkeep};

use super::{Client, PATIENCE, Request, Response, ScriptedEngine, within};

/// Between two looks at a condition that nothing wakes us for.
const POLL: Duration = Duration::from_millis(1);

/// A router to be started: settings as YAML lines, then engines.
pub struct EdgeBuilder {
    yaml: String,
    /// The entries of `engines`.
    engines: Vec<String>,
    /// Whether anything is written down of requests.
    books: bool,
}

/// A router with these settings (lines of YAML, without `engines`), over engines still to be
/// named.
pub fn edge(yaml: &str) -> EdgeBuilder {
    EdgeBuilder {
        yaml: yaml.to_owned(),
        engines: Vec::new(),
        books: true,
    }
}

/// The settings most scenarios use: retries on, no jitter, backoffs of 200, 400, 800, 1000 ms.
pub const RETRIES: &str = "\
enable_retries: true
initial_backoff_ms: 200
max_backoff_ms: 1000
backoff_multiplier: 2
jitter_factor: 0
";

/// No engine is ever out: for scenarios that count what each request meets by itself.
pub const NOBODY_OUT: &str = "eject_after: 0\n";

/// The standard settings with a budget of `n` attempts.
pub fn retries(n: u32) -> String {
    format!("{RETRIES}max_retries: {n}\n")
}

impl EdgeBuilder {
    /// Adds engines that serve the model `m`.
    pub fn engines<'a>(self, engines: impl IntoIterator<Item = &'a ScriptedEngine>) -> Self {
        engines
            .into_iter()
            .fold(self, |edge, engine| edge.engine(engine, &["m"]))
    }

    /// Adds an engine that serves these models; none means that it is asked.
    pub fn engine(self, engine: &ScriptedEngine, models: &[&str]) -> Self {
        self.url(&engine.url(), models)
    }

    /// Adds an engine by its URL; its id is its place, from 0.
    pub fn url(self, url: &str, models: &[&str]) -> Self {
        let place = self.engines.len();
        self.entry(&format!(
            "id: \"{place}\", url: \"{url}\", models: {models:?}"
        ))
    }

    /// Adds an engine that serves the model `m`, with more to be said of it: `id: a, weight: 3`.
    pub fn engine_with(self, engine: &ScriptedEngine, more: &str) -> Self {
        self.entry(&format!("url: \"{}\", models: [m], {more}", engine.url()))
    }

    /// Has nothing written down of requests.
    pub fn without_books(mut self) -> Self {
        self.books = false;
        self
    }

    fn entry(mut self, fields: &str) -> Self {
        self.engines.push(format!("  - {{{fields}}}\n"));
        self
    }

    fn text(&self) -> String {
        let engines = self.engines.concat();
        let key = if engines.is_empty() { "" } else { "engines:\n" };
        format!("{}\n{key}{engines}", self.yaml)
    }

    /// Starts the router and waits until it has looked up names and asked for models.
    pub async fn start(self) -> TestEdge {
        self.start_with(async |upkeep| upkeep.round().await).await
    }

    /// The same, and goes on with all that goes on behind requests: engines are found, names
    /// looked up again, models asked for again.
    pub async fn start_kept_up(self) -> TestEdge {
        self.start_with(async |upkeep| {
            let mut upkeep = upkeep.clone();
            let (ready, is_ready) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                upkeep.run(|| ready.send(()).expect("somebody waits")).await;
            });
            is_ready.await.expect("the upkeep goes on");
        })
        .await
    }

    async fn start_with(self, begin: impl AsyncFnOnce(&Upkeep)) -> TestEdge {
        let yaml = self.text();
        let settings = Settings::from_yaml(&yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"));
        capture_logs();
        walk_the_clock();
        let drain = Drain::default();
        let build = if self.books {
            Parts::new
        } else {
            Parts::without_books
        };
        let parts = build(&settings, &drain).expect("the router starts");
        begin(&parts.upkeep).await;
        let fleet = Arc::clone(&parts.admin.fleet);
        let metrics = parts.admin.metrics.clone();
        let file = Arc::new(Mutex::new(yaml));
        let reloader = Reloader::new(reading(&file), settings, parts.live);
        let (public, addr) = bind();
        let (admin, admin_addr) = bind();
        let mut public = Listener::new("public", public, parts.edge, drain.clone(), None);
        let admin_app = Arc::new(parts.admin);
        let admin_drain = Drain::default();
        let mut admin = Listener::new("admin", admin, admin_app, admin_drain.clone(), None);
        let served = tokio::spawn(async move { public.serve().await });
        tokio::spawn(async move { admin.serve().await });
        let (stop_traces, stopped) = watch::channel(false);
        let traces = parts.traces.map(|outlet| {
            let exporter = outlet.open().expect("a way to the collector");
            tokio::spawn(exporter.run(stopped))
        });
        TestEdge {
            addr,
            admin_addr,
            drain,
            admin_drain,
            fleet,
            metrics,
            upkeep: parts.upkeep,
            reloader,
            file,
            served,
            stop_traces,
            traces,
        }
    }
}

/// Reads the configuration from `file`.
fn reading(file: &Arc<Mutex<String>>) -> Load {
    let file = Arc::clone(file);
    Box::new(move || {
        let none = BTreeMap::new();
        let text = file.lock().expect("no panic").clone();
        config::load(Inputs {
            flags: &none,
            env: &none,
            file: Some((Path::new("router.yaml"), &text)),
        })
    })
}

/// Keeps a paused clock from jumping. It runs on whenever nothing is ready, and for a moment
/// nothing is while bytes are on their way through the kernel: it would jump to the next timeout at
/// once. With a timer every few milliseconds it walks there, which takes the time that bytes need.
fn walk_the_clock() {
    tokio::spawn(async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

fn bind() -> (TcpListener, SocketAddr) {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    socket.set_nonblocking(true).expect("non-blocking");
    let addr = socket.local_addr().expect("an address");
    (socket, addr)
}

/// A running router.
pub struct TestEdge {
    addr: SocketAddr,
    admin_addr: SocketAddr,
    drain: Drain,
    admin_drain: Drain,
    fleet: Arc<Fleet>,
    metrics: Metrics,
    upkeep: Upkeep,
    reloader: Reloader,
    /// The text of the configuration.
    file: Arc<Mutex<String>>,
    served: JoinHandle<()>,
    stop_traces: watch::Sender<bool>,
    traces: Option<JoinHandle<()>>,
}

impl TestEdge {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Sends one request on a connection of its own.
    pub async fn ask(&self, request: &Request) -> Response {
        Client::connect(self.addr).await.ask(request).await
    }

    /// `GET`s a path of the admin port.
    pub async fn admin(&self, path: &str) -> Response {
        Client::connect(self.admin_addr)
            .await
            .ask(&Request::new("GET", path))
            .await
    }

    /// The condition of the engine at this place, and why it is in it.
    pub async fn condition(&self, engine: usize) -> (String, String) {
        let engines = self.admin("/engines").await.json();
        let word = |field: &str| {
            let word = engines["engines"][engine][field].as_str();
            word.expect("a word").to_owned()
        };
        (word("condition"), word("reason"))
    }

    /// The whole exposition.
    pub fn exposition(&self) -> String {
        String::from_utf8(self.metrics.expose(&self.fleet)).expect("text")
    }

    /// The sum over all series of this name that carry all of these labels.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let wanted: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
        self.exposition()
            .lines()
            .filter(|line| {
                let rest = line.strip_prefix(name);
                rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
                    && wanted.iter().all(|label| line.contains(label.as_str()))
            })
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// Requests counted under this outcome.
    pub fn requests(&self, outcome: &str) -> f64 {
        self.metric("vllm_pingora_requests_total", &[("outcome", outcome)])
    }

    /// Attempts on this engine, however they ended.
    pub fn attempts_on(&self, engine: &ScriptedEngine) -> f64 {
        self.metric("vllm_pingora_attempts_total", &[("engine", &engine.url())])
    }

    /// Attempts that ended like this, on all engines.
    pub fn attempts_ended(&self, outcome: &str) -> f64 {
        self.metric("vllm_pingora_attempts_total", &[("outcome", outcome)])
    }

    /// Panics unless the waits between attempts have been these, in milliseconds, in any order
    /// and as exactly as a histogram tells them.
    #[track_caller]
    pub fn assert_backoffs(&self, expected: &[u32]) {
        let seconds = || expected.iter().map(|wait| f64::from(*wait) / 1e3);
        let name = |part| format!("vllm_pingora_backoff_seconds_{part}");
        let sum = self.metric(&name("sum"), &[]);
        assert!(
            (sum - seconds().sum::<f64>()).abs() < 1e-9,
            "{sum} s in all"
        );
        for bound in vllm_pingora::metrics::names::BACKOFF.buckets {
            let found = self.metric(&name("bucket"), &[("le", &bound.to_string())]);
            let within = seconds().filter(|wait| wait <= bound).count();
            assert_eq!(found, within as f64, "waits of up to {bound} s");
        }
        assert_eq!(self.metric(&name("count"), &[]), expected.len() as f64);
    }

    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The URLs of the engines there are now.
    pub fn engines(&self) -> Vec<String> {
        let engines = self.fleet.engines();
        engines
            .iter()
            .map(|engine| engine.url().to_string())
            .collect()
    }

    /// Waits until these are the engines there are, in any order, and it is known what they serve.
    pub async fn wait_for_engines<'a>(&self, urls: impl IntoIterator<Item = &'a str>) {
        let mut wanted: Vec<_> = urls.into_iter().map(ToOwned::to_owned).collect();
        wanted.sort_unstable();
        let mut changes = self.fleet.watch();
        let settled = async {
            loop {
                let mut engines = self.engines();
                engines.sort_unstable();
                let all = self.fleet.engines();
                if engines == wanted && all.iter().all(|e| self.fleet.is_heard(e.id())) {
                    return;
                }
                changes.changed().await.expect("the fleet is there");
            }
        };
        let complaint = || format!("{:?} are not {wanted:?}, or not heard", self.engines());
        within(PATIENCE, complaint, settled).await;
    }

    /// Changes the configuration to this one, as after a HUP signal; whether it is taken on.
    pub fn reload(&self, changed: &EdgeBuilder) -> bool {
        self.reload_text(&changed.text())
    }

    /// Changes the text of the configuration to this one; whether it is taken on.
    pub fn reload_text(&self, text: &str) -> bool {
        text.clone_into(&mut self.file.lock().expect("no panic"));
        self.reloader.reload()
    }

    /// Probes every engine once.
    pub async fn probe(&self) {
        self.upkeep.probe().await;
    }

    /// Makes every engine work once; `turn` says which of its models is asked for, from 0 on.
    pub async fn probe_inference(&self, turn: usize) {
        self.upkeep.probe_inference(turn).await;
    }

    /// Begins to do all that goes on behind requests, as often as the settings say.
    pub fn keep_up(&self) {
        let mut upkeep = self.upkeep.clone();
        tokio::spawn(async move { upkeep.run(|| {}).await });
    }

    /// Looks names up, asks engines for their models and reads their loads once more.
    pub async fn look_again(&self) {
        self.upkeep.round().await;
    }

    /// Waits until no request is in flight, and no attempt on any engine.
    pub async fn wait_until_idle(&self) {
        let idle = async {
            while self.metric("vllm_pingora_requests_in_flight", &[]) > 0.0
                || self.metric("vllm_pingora_engine_requests_in_flight", &[]) > 0.0
            {
                tokio::time::sleep(POLL).await;
            }
        };
        within(PATIENCE, || "requests are still in flight".to_owned(), idle).await;
    }

    /// Waits until `count` requests have been counted under this outcome.
    pub async fn wait_for_requests(&self, outcome: &str, count: u32) {
        let counted = async {
            while self.requests(outcome) < f64::from(count) {
                tokio::time::sleep(POLL).await;
            }
        };
        let complaint = || {
            format!(
                "{} of {count} are counted as {outcome}",
                self.requests(outcome)
            )
        };
        within(PATIENCE, complaint, counted).await;
    }

    /// The access-log line of the request that was sent with this `X-Request-Id`.
    pub async fn access_line(&self, request_id: &str) -> String {
        let line = async {
            loop {
                if let Some(line) = logged(request_id) {
                    break line;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        within(
            PATIENCE,
            || format!("{request_id} is not in the access log"),
            line,
        )
        .await
    }

    /// The clients' connections that are open.
    pub fn open(&self) -> usize {
        self.drain.open()
    }

    /// Leads the admin port to its end, as when another process has taken it over.
    pub fn drain_admin(&self) {
        self.admin_drain.begin();
    }

    /// The connections to the admin port that are open.
    pub fn admin_open(&self) -> usize {
        self.admin_drain.open()
    }

    /// Begins to drain, as after a TERM signal.
    pub fn drain(&self) -> &Drain {
        self.drain.begin();
        &self.drain
    }

    /// Sends the spans that are left, as at the end of the process.
    pub async fn end_traces(&mut self) {
        self.stop_traces.send_replace(true);
        let sending = self.traces.take().expect("there are traces");
        within(PATIENCE, || "spans are still sent".to_owned(), sending)
            .await
            .expect("no panic");
    }

    /// Announces the end, as after a TERM signal with a settle time.
    pub fn announce_the_end(&self) {
        self.drain.announce();
    }

    /// Waits until the listener has stopped.
    pub async fn stopped(self) {
        within(PATIENCE, || "the listener goes on".to_owned(), self.served)
            .await
            .expect("no panic");
    }
}

/// The waits between deliveries, in whole milliseconds, on the paused clock.
pub fn millis(gaps: &[Duration]) -> Vec<u128> {
    gaps.iter().map(Duration::as_millis).collect()
}

/// The access log by request id, and all lines of the router, its debugging included.
#[derive(Default)]
struct Lines {
    access: HashMap<String, String>,
    all: Vec<String>,
}

static LINES: OnceLock<Mutex<Lines>> = OnceLock::new();

/// Lines at every level, of this process as a whole; until dropped.
pub struct Trace {
    traced: Arc<Traced>,
    level_before: log::LevelFilter,
}

struct Traced {
    needles: Vec<String>,
    lines: Mutex<Vec<String>>,
}

static TRACED: Mutex<Option<Arc<Traced>>> = Mutex::new(None);

/// Begins to listen for log lines that hold one of `needles`. One test at a time does.
pub fn trace(needles: &[&str]) -> Trace {
    capture_logs();
    let traced = Arc::new(Traced {
        needles: needles.iter().map(|needle| (*needle).to_owned()).collect(),
        lines: Mutex::default(),
    });
    *TRACED.lock().expect("no panic") = Some(Arc::clone(&traced));
    let level_before = log::max_level();
    log::set_max_level(log::LevelFilter::Trace);
    Trace {
        traced,
        level_before,
    }
}

impl Trace {
    /// The lines so far that the product, set to log all it can, would write, and hold a needle.
    pub fn lines(&self) -> Vec<String> {
        self.traced.lines.lock().expect("no panic").clone()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        log::set_max_level(self.level_before);
        if let Ok(mut traced) = TRACED.lock() {
            *traced = None;
        }
    }
}

impl Traced {
    fn hear(&self, record: &log::Record<'_>, line: &str) {
        let written = vllm_pingora::logging::limit(record.target(), log::LevelFilter::Trace);
        let wanted = || self.needles.iter().any(|needle| line.contains(needle));
        if record.level() <= written && wanted() {
            let heard = format!("{} {} {line}", record.level(), record.target());
            self.lines.lock().expect("no panic").push(heard);
        }
    }
}

struct Capture;

impl log::Log for Capture {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target() == "access"
            || metadata.target().starts_with("vllm_pingora")
            || log::max_level() == log::LevelFilter::Trace
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let line = record.args().to_string();
        let traced = TRACED.lock().expect("no panic").clone();
        if let Some(traced) = traced {
            traced.hear(record, &line);
        }
        if record.target() != "access" && !record.target().starts_with("vllm_pingora") {
            return;
        }
        let Some(lines) = LINES.get() else { return };
        let mut lines = lines.lock().expect("no panic");
        let id = line
            .strip_prefix("id=")
            .filter(|_| record.target() == "access")
            .and_then(|rest| rest.split(' ').next());
        if let Some(id) = id {
            lines.access.insert(id.to_owned(), line.clone());
        }
        lines.all.push(line);
    }

    fn flush(&self) {}
}

fn capture_logs() {
    LINES.get_or_init(Mutex::default);
    if log::set_boxed_logger(Box::new(Capture)).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
}

fn logged(request_id: &str) -> Option<String> {
    LINES
        .get()?
        .lock()
        .expect("no panic")
        .access
        .get(request_id)
        .cloned()
}

/// All lines any router of this process has logged so far that contain `text`.
pub fn lines_with(text: &str) -> Vec<String> {
    let lines = LINES.get().expect("a router runs");
    let lines = lines.lock().expect("no panic");
    lines
        .all
        .iter()
        .filter(|line| line.contains(text))
        .cloned()
        .collect()
}
