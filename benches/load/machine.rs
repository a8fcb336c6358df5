//! Where and when something was measured.

use std::process::Command;

fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success()).then(|| text.trim().to_owned())
}

/// Today.
pub fn date() -> String {
    said("date", &["+%F"]).unwrap_or_default()
}

/// The commit that was built, as far as it is one.
pub fn commit() -> String {
    let commit = said(
        "git",
        &["describe", "--always", "--dirty=, changed", "--exclude=*"],
    );
    commit.unwrap_or_else(|| "unknown".to_owned())
}

/// The processor and how many cores there are.
pub fn processor() -> String {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = all.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| {
        rest.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let all = all.lines().filter(|line| line.starts_with("processor"));
    let cores = all.count().max(cores);
    format!("{model}, {cores} cores, load average {load} at the end")
}

/// The command that asked for it.
pub fn command() -> String {
    let mut args = std::env::args();
    let program = args.next().unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    // Cargo adds a hash.
    let name = name.rsplit_once('-').map_or(name, |(name, _)| name);
    let args: Vec<_> = args.filter(|arg| arg != "--bench").collect();
    format!("cargo bench --locked --bench {name} -- {}", args.join(" "))
        .trim_end()
        .trim_end_matches(" --")
        .to_owned()
}
