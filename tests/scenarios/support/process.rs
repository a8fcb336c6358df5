//! The built router, in a process of its own.

use std::net::SocketAddr;
use std::process::{ExitStatus, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::{PATIENCE, ScriptedEngine, ms, within};

/// A router in a process of its own, which ends with this.
pub struct Process {
    child: Child,
    pub addr: SocketAddr,
    log: JoinHandle<Vec<String>>,
}

impl Process {
    /// One with a single thread over `engine`, which serves the model `m`; with these flags and
    /// these variables of the environment, and no others.
    pub async fn start(engine: &ScriptedEngine, flags: &[&str], env: &[(&str, &str)]) -> Self {
        let ports = "--host 127.0.0.1 --port 0 --admin-port 0";
        let quiet = "--threads 1 --health-check-interval-ms 0 --static-models m";
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-pingora"))
            .args(ports.split(' ').chain(quiet.split(' ')))
            .args(["--static-backends", &engine.url()])
            .args(flags)
            .env_clear()
            .envs(env.iter().copied())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the router starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let mut log = Vec::new();
        let listening = async {
            while let Some(line) = lines.next_line().await.expect("text") {
                let after = line.split("listening on ").nth(1);
                let addr = after.and_then(|rest| rest.split(',').next());
                let addr = addr.map(|addr| addr.parse().expect("an address"));
                log.push(line);
                if let Some(addr) = addr {
                    return addr;
                }
            }
            panic!("the router ended: {log:#?}");
        };
        let complaint = || "the router does not say where it listens".to_owned();
        let addr = within(PATIENCE, complaint, listening).await;
        // A pipe that nobody reads would stop the router.
        let log = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                log.push(line);
            }
            log
        });
        Self { child, addr, log }
    }

    /// Asks it to stop, as an init system would, and waits until it has; how it ended, and its log.
    pub async fn terminate(mut self) -> (ExitStatus, Vec<String>) {
        let pid = i32::try_from(self.id()).expect("a process id");
        kill(Pid::from_raw(pid), Signal::SIGTERM).expect("a running process");
        let ended = async { (self.child.wait().await, self.log.await) };
        let complaint = || "the router goes on".to_owned();
        let (status, log) = within(PATIENCE, complaint, ended).await;
        (status.expect("a status"), log.expect("no panic"))
    }

    fn id(&self) -> u32 {
        self.child.id().expect("a running process")
    }

    /// Resident memory, in bytes.
    pub fn memory(&self) -> usize {
        let process = self.id();
        let pages = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap();
        let pages: usize = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    /// The most resident memory there has been, in bytes.
    pub fn peak_memory(&self) -> usize {
        let process = self.id();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<usize>().unwrap() * 1024
    }

    /// How many files and sockets it has open.
    pub fn descriptors(&self) -> usize {
        let process = self.id();
        let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        open.count()
    }

    /// Time of the processor used so far, in hundredths of a second.
    pub fn ticks(&self) -> u64 {
        let process = self.id();
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        // The fields after the name, which may hold blanks.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
        fields[12..14]
            .iter()
            .map(|t| t.parse::<u64>().unwrap())
            .sum()
    }

    /// Waits until no more memory than this is in use.
    pub async fn wait_for_memory_below(&self, most: usize) {
        let below = async {
            while self.memory() > most {
                tokio::time::sleep(ms(5)).await;
            }
        };
        let complaint = || format!("{} of {most} bytes are in use", self.memory());
        within(PATIENCE, complaint, below).await;
    }
}
