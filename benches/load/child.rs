//! A proxy as a child process: started on a core of its own, watched, and stopped with all its
//! descendants.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tokio::time::{Instant, sleep};

/// The cores this process may use.
pub fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).expect("an affinity");
    let all = 0..CpuSet::count();
    all.filter(|core| set.is_set(*core).unwrap_or(false))
        .collect()
}

/// Keeps the calling thread, and what it starts from now on, on one core.
pub fn stay_on(core: usize) {
    let mut set = CpuSet::new();
    set.set(core).expect("a core");
    sched_setaffinity(Pid::from_raw(0), &set).expect("a core there is");
}

/// Allows this process, and its children, as many descriptors as the system does.
pub fn raise_descriptors() {
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// A port nobody uses now.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?
        .local_addr()?
        .port())
}

/// A child with its descendants, which are its process group; they end when it is dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    group: Pid,
    log: PathBuf,
    /// When it was started.
    pub since: Instant,
}

impl Running {
    /// Starts a command on `core`, with this file for what it says, and stays on `home` itself.
    pub fn start(mut command: Command, core: usize, home: usize, log: &Path) -> io::Result<Self> {
        let file = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .process_group(0);
        stay_on(core);
        let since = Instant::now();
        let child = command.spawn();
        stay_on(home);
        let child = child?;
        Ok(Self {
            group: Pid::from_raw(i32::try_from(child.id()).expect("a pid")),
            child,
            log: log.to_owned(),
            since,
        })
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it said.
    pub fn last_words(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let from = bytes.len().saturating_sub(2000);
        String::from_utf8_lossy(&bytes[from..]).into_owned()
    }

    /// The processes of its group.
    fn members(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(|pid| group_of(*pid) == Some(self.group.as_raw()))
            .map(Pid::from_raw)
            .collect()
    }

    /// Processor time of all of them, user and system. This is what `/proc/PID/stat` tells, but in
    /// nanoseconds rather than in hundredths of a second.
    pub fn cpu(&self) -> Duration {
        let of = |pid: Pid| {
            let clock = ClockId::pid_cpu_clock_id(pid).ok()?;
            clock_gettime(clock).ok().map(Duration::from)
        };
        self.members().into_iter().filter_map(of).sum()
    }

    /// Memory of all of them in bytes: what is resident, pages that several share counted once.
    pub fn memory(&self) -> u64 {
        let of = |pid: Pid| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        1024 * self.members().into_iter().filter_map(of).sum::<u64>()
    }

    /// Asks it to stop and waits for the end; gives up after this time and kills it.
    pub async fn stop(mut self, patience: Duration) {
        let _ = nix::sys::signal::kill(self.group, Signal::SIGTERM);
        let deadline = Instant::now() + patience;
        while self.is_running() && Instant::now() < deadline {
            sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = killpg(self.group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// The process group of a process.
fn group_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; state, parent and group follow it.
    let fields = stat.rsplit_once(')')?.1;
    fields.split_whitespace().nth(2)?.parse().ok()
}
