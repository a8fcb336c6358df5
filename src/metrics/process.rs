//! What the process takes of the machine, under the names all exporters use for it.
//!
//! Read from `/proc`, and left out where there is none.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};

use super::names::{self, Name};
use super::register::{Pulled, Value};

const NAMES: [Name; 7] = [
    names::CPU,
    names::RESIDENT,
    names::VIRTUAL,
    names::OPEN_FDS,
    names::MAX_FDS,
    names::THREADS,
    names::STARTED,
];

/// The series of a process that starts now.
pub(super) fn collector() -> prometheus::Result<Pulled> {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let started = started.map_or(0.0, |since| since.as_secs_f64());
    Pulled::new(&NAMES, move || read(started))
}

#[allow(clippy::cast_precision_loss)] // sizes and counts of one process
fn read(started: f64) -> Vec<Value> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let status = Status::read(&status);
    // The handle of the folder is open, too, while it is read.
    let open = fs::read_dir("/proc/self/fd").map(|files| files.count().saturating_sub(1));
    let most = getrlimit(Resource::RLIMIT_NOFILE);
    let values = [
        cpu_seconds(),
        status.resident.map(|bytes| bytes as f64),
        status.address_space.map(|bytes| bytes as f64),
        open.ok().map(|count| count as f64),
        most.ok().map(|(now, _)| now as f64),
        status.threads.map(|count| count as f64),
        Some(started),
    ];
    let values = NAMES.into_iter().zip(values);
    values
        .filter_map(|(name, value)| Some((name, Vec::new(), value?)))
        .collect()
}

#[allow(clippy::cast_precision_loss)] // some years of microseconds at most
fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let times = [usage.user_time(), usage.system_time()];
    let seconds = times.map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6);
    Some(seconds.iter().sum())
}

/// What `/proc/self/status` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Status {
    /// In bytes.
    resident: Option<u64>,
    /// In bytes.
    address_space: Option<u64>,
    threads: Option<u64>,
}

impl Status {
    fn read(text: &str) -> Self {
        let number = |key: &str| {
            let mut lines = text.lines();
            let rest = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            rest.split_ascii_whitespace().next()?.parse::<u64>().ok()
        };
        let bytes = |key: &str| number(key).map(|kib| kib * 1024);
        Self {
            resident: bytes("VmRSS"),
            address_space: bytes("VmSize"),
            threads: number("Threads"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_bytes() {
        let text =
            "Name:\tx\nVmPeak:\t 900 kB\nVmSize:\t     800 kB\nVmRSS:\t     300 kB\nThreads:\t5\n";
        let status = Status {
            resident: Some(300 * 1024),
            address_space: Some(800 * 1024),
            threads: Some(5),
        };
        assert_eq!(Status::read(text), status);
        assert_eq!(Status::read("VmRSS: many kB\nThreads"), Status::default());
    }

    #[test]
    fn this_process_has_used_all_of_it() {
        let values = read(1.0);
        assert_eq!(values.len(), NAMES.len());
        assert!(
            values.iter().all(|(_, _, value)| *value > 0.0),
            "{values:?}"
        );
    }
}
