//! The log of the built command: where its lines go, and that no request waits for them.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on should say so"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);

/// A router without an engine: it answers for itself.
struct Router {
    process: Child,
    log: BufReader<ChildStderr>,
    /// What it has logged before it said where it listens, and that.
    begin: String,
    public: SocketAddr,
    admin: SocketAddr,
}

impl Router {
    fn start(args: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .args(["--host", "127.0.0.1", "--port", "0", "--admin-port", "0"])
            .args(["--static-backends", "http://127.0.0.1:9"])
            .args(["--static-models", "m", "--health-check-interval-ms", "0"])
            .args(args)
            .env_clear()
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut begin = String::new();
        let (public, admin) = loop {
            assert_ne!(log.read_line(&mut begin).unwrap(), 0, "{begin}");
            if let Some((_, rest)) = begin.split_once("listening on ") {
                let (public, rest) = rest.split_once(", admin on ").unwrap();
                let (admin, _) = rest.split_once(',').unwrap();
                break (public.parse().unwrap(), admin.parse().unwrap());
            }
        };
        Self {
            process,
            log,
            begin,
            public,
            admin,
        }
    }

    fn terminate(&self) {
        let id = i32::try_from(self.process.id()).unwrap();
        kill(Pid::from_raw(id), Signal::SIGTERM).unwrap();
    }

    /// Ends it in good order, and gives all it has logged.
    fn end(mut self) -> String {
        self.terminate();
        let mut log = std::mem::take(&mut self.begin);
        self.log.read_to_string(&mut log).unwrap();
        assert!(self.process.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks for `path` so often on one connection, each time once the answer before has come.
fn ask(address: SocketAddr, path: &str, times: usize) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    let mut body = Vec::new();
    for _ in 0..times {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(answers.read_line(&mut line).unwrap(), 0, "closed");
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        body.resize(length, 0);
        answers.read_exact(&mut body).unwrap();
    }
    String::from_utf8(body).unwrap()
}

/// The lines that were dropped so far, once nothing is going on any more.
fn dropped(router: &Router) -> u64 {
    loop {
        let metrics = ask(router.admin, "/metrics", 1);
        let value = |series: &str| -> u64 {
            let mut values = metrics.lines().filter_map(|line| line.strip_prefix(series));
            values.next().unwrap().parse().unwrap()
        };
        if value("vllm_pingora_requests_in_flight ") == 0 {
            return value("vllm_pingora_log_lines_dropped_total ");
        }
    }
}

/// A file of this test's own, which is not there yet and gone at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str) -> Self {
        let name = format!("vllm-pingora-logging-{}-{name}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn access_lines(log: &str) -> usize {
    log.lines()
        .filter(|line| line.contains(" access id="))
        .count()
}

#[test]
fn a_terminal_that_is_stopped_holds_no_request_up_and_the_log_tells_what_it_missed() {
    let router = Router::start(&[]);
    // Lines as long as they get fill the pipe and the queue soonest; nobody reads the pipe.
    let path = format!("/{}", "x".repeat(1000));
    let begun = Instant::now();
    let mut asked = 0_u64;
    while dropped(&router) == 0 {
        ask(router.public, &path, 50);
        asked += 50;
        assert!(
            begun.elapsed() < LONG,
            "{asked} lines, and none was dropped"
        );
    }
    let lost = dropped(&router);
    assert!(asked > lost, "{asked} {lost}");
    // From here on somebody reads.
    let log = router.end();
    assert!(log.contains(" lines were lost: "), "nothing tells of it");
    assert_eq!(access_lines(&log) as u64 + lost, asked);
    let whole = |line: &&str| line.ends_with("completion_tokens=-");
    assert_eq!(log.lines().filter(whole).count(), access_lines(&log));
}

#[test]
fn a_terminal_that_is_stopped_does_not_keep_the_router_alive() {
    let mut router = Router::start(&[]);
    ask(router.public, &format!("/{}", "x".repeat(1000)), 200);
    let begun = Instant::now();
    router.terminate();
    while router.process.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < LONG, "it goes on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn the_access_log_has_a_file_of_its_own_whatever_the_level() {
    let file = File::new("file");
    fs::write(file.path(), "before\n").unwrap();
    let args = ["--access-log-file", file.path(), "--log-level", "warn"];
    // The first line has to be there to be read.
    let router = Router::start(&[&args[..2], &["--log-level", "info"]].concat());
    ask(router.public, "/health", 30);
    ask(router.public, "/nothing", 12);
    let log = router.end();
    // All of them, the last ones as well, and in the file only.
    let lines = fs::read_to_string(file.path()).unwrap();
    assert!(lines.starts_with("before\n"));
    assert_eq!(access_lines(&lines), 42, "{lines}");
    assert_eq!(access_lines(&log), 0, "{log}");
    assert!(log.trim_end().ends_with(" stopped"), "{log}");
}

#[test]
fn a_disk_that_is_full_costs_lines_and_no_request() {
    let router = Router::start(&["--access-log-file", "/dev/full"]);
    ask(router.public, "/health", 30);
    let begun = Instant::now();
    while dropped(&router) < 30 {
        assert!(begun.elapsed() < LONG, "{} are lost", dropped(&router));
    }
    // It goes on, and so does the count.
    ask(router.public, "/nothing", 12);
    while dropped(&router) < 42 {
        assert!(begun.elapsed() < LONG, "{} are lost", dropped(&router));
    }
    assert_eq!(dropped(&router), 42);
    let log = router.end();
    assert!(log.contains(" lines were lost: No space left"), "{log}");
    assert_eq!(access_lines(&log), 0, "{log}");
}

#[test]
fn lines_are_objects_where_asked_for_and_a_share_of_the_good_ones_may_do() {
    let file = File::new("json");
    let args = ["--access-log-file", file.path(), "--log-format", "json"];
    let router = Router::start(&[&args[..], &["--access-log-sample", "0"]].concat());
    ask(router.public, "/health", 30);
    ask(router.public, "/nothing", 12);
    router.end();
    let lines = fs::read_to_string(file.path()).unwrap();
    assert_eq!(lines.lines().count(), 12);
    for line in lines.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(object["target"], "access");
        assert_eq!(object["path"], "/nothing");
        assert_eq!(object["route"], "other");
        assert_eq!(object["status"], 404);
    }
}

#[test]
fn without_it_there_is_no_line() {
    let router = Router::start(&["--access-log=false"]);
    ask(router.public, "/nothing", 12);
    let log = router.end();
    assert_eq!(access_lines(&log), 0, "{log}");
}

#[test]
fn a_file_that_cannot_be_opened_stops_the_start() {
    let output = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
        .args(["--static-backends", "http://127.0.0.1:9"])
        .args(["--access-log-file", "/nowhere/at/all.log"])
        .env_clear()
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8(output.stderr).unwrap();
    let expected = "access_log_file: /nowhere/at/all.log: ";
    assert!(err.starts_with(expected), "{err}");
}

/// Not a test, but the process of one.
#[test]
#[ignore = "the process of another test"]
fn the_process_that_panics() {
    use vllm_pingora::config::{LogFormat, LogLevel};
    use vllm_pingora::logging::{Options, start};
    start(&Options {
        level: LogLevel(log::LevelFilter::Info),
        format: LogFormat::Text,
        access_file: None,
    })
    .unwrap();
    log::info!(target: "vllm_pingora", "what led to it");
    panic!("the panic itself");
}

#[test]
fn what_was_logged_before_a_panic_stands_before_it() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "the_process_that_panics",
            "--nocapture",
        ])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let err = String::from_utf8(output.stderr).unwrap();
    let (before, _) = err.split_once("the panic itself").unwrap();
    assert!(before.contains("what led to it"), "{err}");
}
