//! Where log lines go, and what they look like.
//!
//! A line is made where it is logged, put into a queue, and written by a thread of its own: neither a
//! slow terminal nor a full disk holds a request up. What the queue cannot take is lost, counted, and
//! spoken of in the log.
//!
//! - `line`: what a line looks like;
//! - `failure`: what is shown of an error of Pingora's;
//! - `queue`: between those who log and the thread that writes;
//! - `destination`: the standard error, or a file that can be opened anew.

mod destination;
mod failure;
mod line;
mod queue;
mod timestamp;

use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use log::{LevelFilter, Log, Metadata, Record};

use crate::access_log;
use crate::config::{LogFormat, LogLevel};
use destination::{File, StandardError};
pub(crate) use failure::Failure;
use line::Lines;
use queue::Queue;

/// The target of our own lines, but for those of the access log.
const OWN: &str = "vllm_pingora";

/// How long the end of the process waits for what has been logged. A terminal that takes nothing must
/// not keep it alive.
const LAST_WAIT: Duration = Duration::from_secs(1);

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// What is logged of the lines of `target` when `level` is asked for.
///
/// The access log has a switch of its own. Lines of other crates are kept down to warnings at every
/// level: what Pingora tells of a request is in the access log, and its debugging prints whole heads,
/// keys included, and bodies.
pub fn limit(target: &str, level: LevelFilter) -> LevelFilter {
    if target == access_log::TARGET {
        LevelFilter::Info
    } else if target.split("::").next() == Some(OWN) {
        level
    } else {
        level.min(LevelFilter::Warn)
    }
}

/// What is logged, and where to.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The least severity, of all but the access log.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
    /// The file of the access log; `None` is the standard error, where all other lines are.
    pub access_file: Option<&'a Path>,
}

/// Starts logging. A second start, as in a test, keeps what the first has begun.
///
/// # Errors
/// The file cannot be opened, or no thread be started.
pub fn start(options: &Options<'_>) -> io::Result<()> {
    if LOGGER.get().is_some() {
        return Ok(());
    }
    let access = options.access_file.map(|path| {
        let say = |trouble: &str| log::warn!("access log: {trouble}");
        Queue::start("access-log", File::open(path)?, say)
    });
    let say = |trouble: &str| log::warn!("log: {trouble}");
    let logger = LOGGER.get_or_init({
        let general = Queue::start("log", StandardError::default(), say)?;
        let access = access.transpose()?;
        || Logger {
            level: AtomicUsize::new(options.level.0 as usize),
            format: options.format,
            general,
            access,
        }
    });
    if log::set_logger(logger).is_ok() {
        set_level(options.level);
        write_before_panics_end();
    }
    Ok(())
}

/// Changes the least severity that is logged.
pub fn set_level(level: LogLevel) {
    let Some(logger) = LOGGER.get() else {
        return;
    };
    logger.level.store(level.0 as usize, Ordering::Relaxed);
    // The access log is below no level.
    log::set_max_level(level.0.max(LevelFilter::Info));
}

/// Opens the file of the access log anew, under the same name: for those who have moved it away.
/// Lines that are logged from now on go to the new one. Where it cannot be opened, the old one is
/// kept, and the log says so.
pub fn reopen() {
    if let Some(access) = LOGGER.get().and_then(|logger| logger.access.as_ref()) {
        access.reopen();
    }
}

/// Waits until all that has been logged is written, for a second at most. To be called before the
/// process ends.
pub fn flush() {
    if let Some(logger) = LOGGER.get() {
        logger.flush();
    }
}

/// Lines that were lost because they came faster than they could be written.
pub fn dropped() -> u64 {
    LOGGER.get().map_or(0, |logger| {
        let access = logger.access.as_ref().map_or(0, Queue::lost);
        access + logger.general.lost()
    })
}

/// What led to a panic is in the log by the time its message is on the screen.
fn write_before_panics_end() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        flush();
        before(info);
    }));
}

#[derive(Debug)]
struct Logger {
    /// A [`LevelFilter`].
    level: AtomicUsize,
    format: LogFormat,
    general: Queue,
    /// Where the access log has a file.
    access: Option<Queue>,
}

thread_local! {
    static LINES: RefCell<Lines> = RefCell::default();
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let mut levels = LevelFilter::iter();
        let level = levels.nth(self.level.load(Ordering::Relaxed));
        metadata.level() <= limit(metadata.target(), level.unwrap_or(LevelFilter::Off))
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let is_access = record.target() == access_log::TARGET;
        let queue = self.access.as_ref().filter(|_| is_access);
        let queue = queue.unwrap_or(&self.general);
        let push = |lines: &mut Lines| {
            queue.push(
                lines
                    .make(self.format, record, SystemTime::now())
                    .as_bytes(),
            );
        };
        let pushed =
            LINES.try_with(|lines| lines.try_borrow_mut().map(|mut lines| push(&mut lines)));
        // A line logged while another one is made, or while the thread ends.
        if !matches!(pushed, Ok(Ok(()))) {
            push(&mut Lines::default());
        }
    }

    fn flush(&self) {
        if let Some(access) = &self.access {
            access.flush(LAST_WAIT);
        }
        self.general.flush(LAST_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_access_log_is_below_no_level_and_other_crates_are_kept_down() {
        for (target, level, limited) in [
            ("access", LevelFilter::Off, LevelFilter::Info),
            ("access", LevelFilter::Trace, LevelFilter::Info),
            (
                "vllm_pingora::proxy",
                LevelFilter::Trace,
                LevelFilter::Trace,
            ),
            ("vllm_pingora", LevelFilter::Error, LevelFilter::Error),
            ("vllm_pingora_other", LevelFilter::Trace, LevelFilter::Warn),
            (
                "pingora_core::server",
                LevelFilter::Trace,
                LevelFilter::Warn,
            ),
            (
                "pingora_core::server",
                LevelFilter::Error,
                LevelFilter::Error,
            ),
        ] {
            assert_eq!(limit(target, level), limited, "{target} {level}");
        }
    }
}
