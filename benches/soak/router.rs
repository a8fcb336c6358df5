//! The router under test: the built program, as a child process.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The key clients must present.
pub const KEY: &str = "soak-key";
/// The longest body the router accepts.
pub const MAX_BODY: usize = 4 << 20;
/// How long a head, or a silence in an upload, may take.
pub const CLIENT_LIMIT: Duration = Duration::from_secs(3);
/// How long an unused connection of a client is kept.
pub const CLIENT_KEEPALIVE: Duration = Duration::from_secs(10);
/// How many log lines are remembered.
const REMEMBERED: usize = 20_000;

/// A running router; it is killed when dropped.
#[derive(Debug)]
pub struct Router {
    child: Child,
    /// Its process.
    pub pid: u32,
    /// Where clients connect.
    pub public: SocketAddr,
    /// Where its metrics are.
    pub admin: SocketAddr,
    /// What it says.
    pub log: Arc<Log>,
}

/// What the router says on its standard error.
#[derive(Debug, Default)]
pub struct Log(Mutex<Said>);

#[derive(Debug, Default)]
struct Said {
    lines: VecDeque<String>,
    panics: Vec<String>,
    errors: u64,
    error_samples: Vec<String>,
}

impl Router {
    /// Starts a router over `engines`, each with its models, and waits until it listens.
    pub async fn start(engines: &[(String, &str)]) -> Self {
        let list = |part: fn(&(String, &str)) -> String| {
            let parts: Vec<String> = engines.iter().map(part).collect();
            parts.join(",")
        };
        let limit = CLIENT_LIMIT.as_millis().to_string();
        let flags = [
            ("host", "127.0.0.1".to_owned()),
            ("port", "0".to_owned()),
            ("admin-port", "0".to_owned()),
            ("h2c", "true".to_owned()),
            ("static-backends", list(|engine| engine.0.clone())),
            ("static-models", list(|engine| engine.1.to_owned())),
            ("static-aliases", "nick:m".to_owned()),
            ("enable-retries", "true".to_owned()),
            ("max-retries", "5".to_owned()),
            ("initial-backoff-ms", "20".to_owned()),
            ("max-backoff-ms", "200".to_owned()),
            ("connect-timeout-ms", "1000".to_owned()),
            ("first-byte-timeout-ms", "1000".to_owned()),
            ("stream-idle-timeout-ms", "1000".to_owned()),
            ("header-timeout-ms", limit.clone()),
            ("body-timeout-ms", limit),
            (
                "client-keepalive-ms",
                CLIENT_KEEPALIVE.as_millis().to_string(),
            ),
            ("max-request-body-bytes", MAX_BODY.to_string()),
            ("api-key", KEY.to_owned()),
            ("grace-period-ms", "5000".to_owned()),
        ];
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .args(flags.map(|(name, value)| format!("--{name}={value}")))
            .env_clear()
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the router starts");
        let log = Arc::new(Log::default());
        let (tell, listening) = oneshot::channel();
        let stderr = child.stderr.take().expect("piped");
        tokio::spawn(listen_to(stderr, Arc::clone(&log), tell));
        let Ok(Ok((public, admin))) = timeout(Duration::from_secs(20), listening).await else {
            panic!("the router does not listen: {:?}", log.last(20));
        };
        Self {
            pid: child.id().expect("it runs"),
            child,
            public,
            admin,
            log,
        }
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks it to stop and waits for the end.
    pub async fn stop(mut self) -> Result<(), String> {
        let pid = Pid::from_raw(i32::try_from(self.pid).expect("a pid"));
        kill(pid, Signal::SIGTERM).map_err(|error| format!("no TERM signal: {error}"))?;
        match timeout(Duration::from_secs(15), self.child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(ended) => Err(format!("after TERM the router ended with {ended:?}")),
            Err(_) => Err("the router does not stop within 15 s of TERM".to_owned()),
        }
    }
}

/// Takes note of every line, and tells the addresses when they are said.
async fn listen_to(
    stderr: ChildStderr,
    log: Arc<Log>,
    tell: oneshot::Sender<(SocketAddr, SocketAddr)>,
) {
    let mut tell = Some(tell);
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Some(addresses) = addresses(&line)
            && let Some(tell) = tell.take()
        {
            let _ = tell.send(addresses);
        }
        log.note(line);
    }
}

/// The public and the admin address, from the line that tells them.
fn addresses(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let (_, rest) = line.split_once(" listening on ")?;
    let (public, rest) = rest.split_once(", admin on ")?;
    let (admin, _) = rest.split_once(',')?;
    Some((public.parse().ok()?, admin.parse().ok()?))
}

impl Log {
    fn note(&self, line: String) {
        let mut said = self.0.lock().expect("no panic");
        if line.contains("panicked") {
            said.panics.push(line.clone());
        }
        if line.contains(" ERROR ") {
            said.errors += 1;
            if said.error_samples.len() < 5 {
                said.error_samples.push(line.clone());
            }
        }
        if said.lines.len() == REMEMBERED {
            said.lines.pop_front();
        }
        said.lines.push_back(line);
    }

    /// The last lines.
    pub fn last(&self, most: usize) -> Vec<String> {
        let said = self.0.lock().expect("no panic");
        let skipped = said.lines.len().saturating_sub(most);
        said.lines.iter().skip(skipped).cloned().collect()
    }

    /// The lines that hold `word`.
    pub fn about(&self, word: &str) -> Vec<String> {
        let said = self.0.lock().expect("no panic");
        let lines = said.lines.iter().filter(|line| line.contains(word));
        lines.cloned().collect()
    }

    /// Lines of panics.
    pub fn panics(&self) -> Vec<String> {
        self.0.lock().expect("no panic").panics.clone()
    }

    /// How many lines were errors, and the first of them.
    pub fn errors(&self) -> (u64, Vec<String>) {
        let said = self.0.lock().expect("no panic");
        (said.errors, said.error_samples.clone())
    }
}
