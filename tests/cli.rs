//! The built command: what it prints where, and the status it exits with.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use vllm_pingora::config::keys::KEYS;

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/router.yaml");

/// How a run of the command ended.
struct Run {
    status: i32,
    out: String,
    err: String,
}

fn run(args: &[&str]) -> Run {
    run_in(&[], args)
}

/// Runs with these variables and no others.
fn run_in(env: &[(&str, &str)], args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"));
    let output = command
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .unwrap();
    Run {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A file of this test's own, gone at its end.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let name = format!("vllm-pingora-cli-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).unwrap();
        Self(path)
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

#[test]
fn every_shipped_file_passes_the_check() {
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/conf")).unwrap() {
        let path = entry.unwrap().path();
        // What is there for Prometheus, Grafana and Kubernetes is for them to read.
        let name = path.file_name().unwrap().to_str().unwrap();
        let others = ["prometheus", "grafana", "kubernetes"];
        if others.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let Run { status, out, err } = run(&["-c", path.to_str().unwrap(), "--check"]);
        assert_eq!(
            (status, out.as_str(), err.as_str()),
            (0, "ok\n", ""),
            "{}",
            path.display()
        );
    }
}

#[test]
fn a_command_line_of_the_production_stack_router_passes_the_check() {
    let line = "--port 8000 --service-discovery static \
        --static-backends http://localhost:9001,http://localhost:9002 \
        --static-models facebook/opt-125m,facebook/opt-125m --routing-logic roundrobin \
        --enable-retries --max-retries 5 --initial-backoff-ms 100 --max-backoff-ms 60000 \
        --backoff-multiplier 2.0 --jitter-factor 0.1";
    let args: Vec<_> = line.split_whitespace().chain(["--check"]).collect();
    let Run { status, out, err } = run(&args);
    assert_eq!((status, out.as_str(), err.as_str()), (0, "ok\n", ""));
}

#[test]
fn mistakes_go_to_stderr_and_exit_with_2() {
    let file = File::new("bad.yaml", "enable_retries: true\nmax_retries: 1\n");
    for check in [&["--check"][..], &["--print-config"], &[]] {
        let args = [
            "-c",
            file.path(),
            "--port",
            "-1",
            "--static-backends",
            "a:1",
        ];
        let args: Vec<_> = args.into_iter().chain(check.iter().copied()).collect();
        let Run { status, out, err } = run_in(&[("VLLM_PINGORA_THREADS", "all")], &args);
        assert_eq!((status, out.as_str()), (2, ""));
        let path = file.path();
        let expected = format!(
            "--static-backends: a:1 has no scheme; give http://a:1\n\
             --port: -1 is not accepted; it must be between 0 and 65535\n\
             VLLM_PINGORA_THREADS: all is not a whole number\n\
             {path}:2: max_retries: 1 is not accepted; it counts all attempts, the first included, \
             and must be between 2 and 4294967295\n",
        );
        assert_eq!(err, expected);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let Run { status, err, .. } = run(&["-c", "/does/not/exist.yaml", "--check"]);
    assert_eq!(status, 2);
    assert_eq!(
        err,
        "/does/not/exist.yaml: cannot be read: No such file or directory (os error 2)\n"
    );
    let file = File::new("latin1.yaml", b"host: \xe4\n");
    let Run { status, err, .. } = run(&["--config", file.path(), "--check"]);
    assert_eq!(status, 2);
    assert!(
        err.starts_with(file.path()) && err.contains("UTF-8"),
        "{err}"
    );
}

#[test]
fn unknown_flags_exit_with_2() {
    for args in [
        &["--max-retry", "3"][..],
        &["serve"],
        &["--check=yes"],
        &["--port"],
    ] {
        let Run { status, out, err } = run(args);
        assert_eq!((status, out.as_str()), (2, ""), "{args:?}");
        assert!(err.starts_with("error: "), "{err}");
    }
}

#[test]
fn the_last_of_two_equal_flags_counts() {
    let Run { status, out, .. } = run(&[
        "-c",
        EXAMPLE,
        "--port",
        "1",
        "--port",
        "2",
        "--print-config",
    ]);
    assert_eq!(status, 0);
    assert!(out.contains("\nport: 2\n"), "{out}");
}

#[test]
fn the_printed_configuration_can_be_given_back() {
    let flags = [
        "-c",
        EXAMPLE,
        "--enable-retries",
        "--max-retries=3",
        "--print-config",
    ];
    let first = run_in(&[("VLLM_PINGORA_LOG_LEVEL", "debug")], &flags);
    assert_eq!((first.status, first.err.as_str()), (0, ""));
    assert!(first.out.contains("\nmax_retries: 3\n") && first.out.contains("\nlog_level: debug\n"));
    let file = File::new("printed.yaml", &first.out);
    let second = run(&["-c", file.path(), "--print-config"]);
    assert_eq!((second.status, second.out), (0, first.out));
}

#[test]
fn secrets_are_not_printed() {
    let keys = File::new("keys", "hunter2-file\n");
    let env = [("VLLM_API_KEY", "hunter2-env")];
    let args = [
        "-c",
        EXAMPLE,
        "--api-key",
        "hunter2-flag",
        "--api-key-file",
        keys.path(),
    ];
    let args: Vec<_> = args.into_iter().chain(["--print-config"]).collect();
    let Run { status, out, err } = run_in(&env, &args);
    assert_eq!((status, err.as_str()), (0, ""));
    assert!(!out.contains("hunter2"), "{out}");
    assert!(out.contains("\napi_keys:\n- '***'\n- '***'\n"), "{out}");
    assert!(out.contains("\nengine_api_key: '***'\n"), "{out}");
}

#[test]
fn warnings_go_to_stderr_and_do_not_fail_the_check() {
    let Run { status, out, err } = run(&["-c", EXAMPLE, "--max-retries", "3", "--check"]);
    assert_eq!((status, out.as_str()), (0, "ok\n"));
    assert_eq!(
        err,
        "warning: retries are off, so max_retries will be ignored; --enable-retries turns them on\n",
    );
}

#[test]
fn the_help_lists_every_flag_under_its_heading_with_its_default() {
    let Run { status, out, .. } = run(&["--help"]);
    assert_eq!(status, 0);
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    for key in KEYS.iter().filter(|key| key.is_typed()) {
        assert!(words.contains(&format!("--{}", key.flag())), "{}", key.name);
        assert!(
            out.contains(&format!("\n{}:\n", key.group.heading())),
            "{}",
            key.name
        );
        let default = if key.default == "null" {
            "none"
        } else {
            key.default
        };
        assert!(
            words.contains(&format!("{} [default: {default}]", key.help)),
            "{}",
            key.name
        );
    }
    assert!(!out.contains("failover-reroute"));
}

#[test]
fn the_version_is_that_of_the_package() {
    let Run { status, out, .. } = run(&["--version"]);
    assert_eq!(
        (status, out),
        (0, format!("vllm-pingora {}\n", env!("CARGO_PKG_VERSION")))
    );
}

#[test]
fn a_port_in_use_is_named_and_nothing_serves() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let free = |flag| [flag, "0"];
    for (flag, other, keys) in [
        ("--port", "--admin-port", "host, port"),
        ("--admin-port", "--port", "admin_host, admin_port"),
    ] {
        let args = [
            &[
                "--host",
                "127.0.0.1",
                "--static-backends",
                "http://127.0.0.1:9",
            ][..],
            &["--static-models", "m", flag, &port],
            &free(other),
        ];
        let begun = std::time::Instant::now();
        let Run { status, err, .. } = run(&args.concat());
        assert_eq!(status, 1, "{err}");
        assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
        let last = err.lines().last().unwrap_or_default();
        let expected = format!("{keys}: cannot listen on 127.0.0.1:{port}: ");
        assert!(last.starts_with(&expected), "{err}");
    }
}

/// Answers one request on a port of its own.
fn engine() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = |mut stream: TcpStream| {
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        while !head.next().unwrap().unwrap().is_empty() {}
        let answer = "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\ns3cret-answer";
        stream.write_all(answer.as_bytes()).unwrap();
        // Until the router closes.
        let _ = stream.read_to_end(&mut vec![]);
    };
    // It is probed, too.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    url
}

/// A router of its own process, once it listens; its ports are the system's choice.
struct Running {
    process: Child,
    log: BufReader<ChildStderr>,
    told: String,
}

impl Running {
    fn start(args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .args(["--host", "127.0.0.1", "--port", "0", "--admin-port", "0"])
            .args(args)
            .env_clear()
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut running = Self {
            process,
            log,
            told: String::new(),
        };
        running.read_until("listening on ");
        running
    }

    /// Reads the log until it holds `text`.
    fn read_until(&mut self, text: &str) {
        while !self.told.contains(text) {
            let read = self.log.read_line(&mut self.told).unwrap();
            assert_ne!(read, 0, "{}", self.told);
        }
    }

    /// The address that follows `name` in the line that tells where it listens.
    fn address(&self, name: &str) -> &str {
        let rest = self.told.split_once(name).unwrap().1;
        rest.split([',', '\n']).next().unwrap()
    }
}

#[test]
fn a_stream_of_events_does_not_hold_up_the_exit() {
    let mut router = Running::start(
        &[
            "--static-backends",
            "http://127.0.0.1:9",
            "--static-models",
            "m",
        ],
        &[],
    );
    let mut reader = TcpStream::connect(router.address("admin on ").trim()).unwrap();
    reader
        .write_all(b"GET /status/events HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut lines = BufReader::new(reader).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("event: status")));
    let begun = std::time::Instant::now();
    let pid = Pid::from_raw(router.process.id().try_into().unwrap());
    kill(pid, Signal::SIGTERM).unwrap();
    assert_eq!(router.process.wait().unwrap().code(), Some(0));
    // A grace period is thirty seconds.
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    // And the stream has ended with the process, one way or the other.
    lines.take_while(Result::is_ok).for_each(drop);
}

#[test]
fn neither_keys_nor_prompts_are_logged_at_any_level() {
    for own_key in [&[][..], &[("VLLM_API_KEY", "s3cret-engine")]] {
        let backend = engine();
        let mut router = Running::start(
            &[
                "--static-backends",
                &backend,
                "--static-models",
                "m",
                "--enable-retries",
                "--log-level",
                "trace",
            ],
            own_key,
        );
        let body = r#"{"model":"m","prompt":"s3cret-prompt"}"#;
        let request = format!(
            "POST /v1/completions?q=s3cret-query HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Authorization: Bearer s3cret-client\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut client = TcpStream::connect(router.address("listening on ")).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("s3cret-answer"), "{answer}");
        router.read_until(" method=POST ");
        router.process.kill().unwrap();
        router.process.wait().unwrap();
        router.log.read_to_string(&mut router.told).unwrap();
        assert!(!router.told.contains("s3cret"), "{}", router.told);
    }
}

#[test]
fn the_demo_shows_that_every_client_got_its_answer() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo.sh");
    let output = Command::new("bash")
        .args([script, env!("CARGO_BIN_EXE_vllm-pingora")])
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{out}{err}");
    for told in [
        "B:closed, ",
        "closed_after_head/200, ",
        "retryable_status/500, ",
        "All 8 clients got their own answer",
    ] {
        assert!(out.contains(told), "{told} is missing:\n{out}{err}");
    }
}
