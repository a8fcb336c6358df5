//! Processes that are signalled: a configuration that is read again, and a binary that is replaced
//! under load.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::support::*;

/// A router in a process of its own, which ends with this.
struct Process {
    child: Child,
    /// What it logs, read all the time: a pipe that nobody reads would stop it.
    lines: mpsc::UnboundedReceiver<String>,
}

/// A folder of the test's own, which goes with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("vllm-pingora-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    fn write(&self, engine: &ScriptedEngine, model: &str) -> PathBuf {
        let file = self.0.join("router.yaml");
        let (url, socket) = (engine.url(), self.0.join("upgrade.sock"));
        let text = format!(
            "host: 127.0.0.1\nport: 0\nadmin_port: 0\nthreads: 1\nenable_retries: true\n\
             upgrade_sock: {}\nengines: [{{url: \"{url}\", models: [{model}]}}]\n",
            socket.display()
        );
        std::fs::write(&file, text).expect("a file");
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Process {
    fn start(file: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .arg("-c")
            .arg(file)
            .args(more)
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the router starts");
        let mut logged = BufReader::new(child.stderr.take().unwrap()).lines();
        let (heard, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok(Some(line)) = logged.next_line().await {
                let _ = heard.send(line);
            }
        });
        Self { child, lines }
    }

    /// Reads its log until a line holds `text`.
    async fn says(&mut self, text: &str) -> String {
        let found = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(text) {
                    return line;
                }
            }
            panic!("it ended without {text:?}");
        };
        within(PATIENCE * 3, || format!("no line holds {text:?}"), found).await
    }

    async fn listens(&mut self) -> SocketAddr {
        let line = self.says("listening on ").await;
        let after = line.split("listening on ").nth(1).unwrap();
        after.split(',').next().unwrap().parse().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().expect("it runs")).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    async fn exit_code(mut self) -> Option<i32> {
        let ended = async { self.child.wait().await.unwrap().code() };
        within(PATIENCE * 3, || "it goes on".to_owned(), ended).await
    }
}

#[tokio::test]
async fn a_hangup_reads_the_file_again() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let folder = Folder::new("hangup");
    let mut router = Process::start(&folder.write(&engine, "old"), &[]);
    let addr = router.listens().await;
    let ask = async |model: &str| {
        let body = format!(r#"{{"model":"{model}"}}"#);
        let request = post("/v1/completions").body(body);
        Client::connect(addr).await.ask(&request).await.status
    };
    assert_eq!((ask("old").await, ask("new").await), (200, 404));
    folder.write(&engine, "new");
    router.signal(Signal::SIGHUP);
    router.says("configuration reloaded").await;
    assert_eq!(ask("new").await, 200);
    std::fs::write(folder.0.join("router.yaml"), "port: many").unwrap();
    router.signal(Signal::SIGHUP);
    router.says("router.yaml:1: port: many").await;
    router.says("configuration not reloaded").await;
    assert_eq!(ask("new").await, 200);
    router.signal(Signal::SIGTERM);
    assert_eq!(router.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_watched_file_is_read_again_when_it_has_changed() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let folder = Folder::new("watch");
    let mut router = Process::start(&folder.write(&engine, "old"), &["--watch"]);
    let addr = router.listens().await;
    folder.write(&engine, "new");
    router.says("configuration reloaded").await;
    let request = post("/v1/completions").body(r#"{"model":"new"}"#);
    assert_eq!(Client::connect(addr).await.ask(&request).await.status, 200);
    router.signal(Signal::SIGTERM);
    assert_eq!(router.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_new_process_takes_the_listeners_over_and_no_request_fails() {
    const CLIENTS: usize = 8;
    let engine = ScriptedEngine::start(ok("ok")).await;
    let folder = Folder::new("upgrade");
    let file = folder.write(&engine, "m");
    let mut old = Process::start(&file, &[]);
    let addr = old.listens().await;
    let over = Arc::new(AtomicBool::new(false));
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let over = Arc::clone(&over);
        asking.spawn(async move {
            let mut answered = 0;
            let mut client = Client::connect(addr).await;
            while !over.load(Ordering::Relaxed) {
                let response = client.ask(&req_n()).await;
                assert_eq!((response.status, response.text()), (200, "ok"));
                answered += 1;
                if response.headers.get("connection") == Some("close") {
                    client = Client::connect(addr).await;
                }
            }
            answered
        });
    }
    let mut new = Process::start(&file, &["--upgrade"]);
    new.says("waiting for listeners").await;
    old.signal(Signal::SIGQUIT);
    assert_eq!(new.listens().await, addr);
    assert_eq!(old.exit_code().await, Some(0));
    // Only the new one is left to answer these.
    let delivered = engine.deliveries().len();
    engine.wait_for_deliveries(delivered + 20).await;
    over.store(true, Ordering::Relaxed);
    let answered: usize = asking.join_all().await.into_iter().sum();
    let forwarded = engine.deliveries_to("/v1/chat/completions");
    assert_eq!(answered, forwarded.len());
    new.signal(Signal::SIGTERM);
    assert_eq!(new.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_process_that_nobody_relieves_goes_on() {
    let engine = ScriptedEngine::start(ok("ok")).await;
    let folder = Folder::new("nobody");
    let mut router = Process::start(&folder.write(&engine, "m"), &[]);
    let addr = router.listens().await;
    router.signal(Signal::SIGQUIT);
    router.says("the listeners are not handed over").await;
    assert_eq!(Client::connect(addr).await.ask(&req_n()).await.text(), "ok");
    router.signal(Signal::SIGTERM);
    assert_eq!(router.exit_code().await, Some(0));
}
