//! What the system says of the router's process.

use std::fs;

/// The clock ticks per second of `/proc/PID/stat`; Linux shows 100 to programs everywhere.
const TICKS_PER_SECOND: f64 = 100.0;

/// One look at a process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look {
    /// Resident memory.
    pub rss_mib: f64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: usize,
    /// Processor time, user and system, since its start.
    pub cpu_seconds: f64,
}

/// Looks at a process; `None` when it is not there.
pub fn look(pid: u32) -> Option<Look> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |key: &str| -> Option<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        line.split_whitespace().next()?.parse().ok()
    };
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows it starts with field 3.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    Some(Look {
        rss_mib: number("VmRSS:")? as f64 / 1024.0,
        threads: number("Threads:")?,
        descriptors: fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count(),
        cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
    })
}
