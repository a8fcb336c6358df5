//! Sends spans on a thread of its own: no request waits for it, and it outlives all of them.

use std::thread::{self, JoinHandle};

use tokio::runtime;
use tokio::sync::watch;

use super::ServeError;
use crate::traces::Outlet;

/// The thread that sends spans.
#[derive(Debug)]
pub(super) struct Exporting {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Exporting {
    /// Starts it.
    ///
    /// # Errors
    /// There is no way to the collector, or no thread to be had.
    pub(super) fn start(outlet: Outlet) -> Result<Self, ServeError> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::Exporting)?;
        let exporter = {
            let _inside = runtime.enter();
            outlet.open()?
        };
        let (stop, stopped) = watch::channel(false);
        let work = move || {
            runtime.block_on(exporter.run(stopped));
            // A lookup of the collector's name may hang, and nobody needs its end.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("traces".to_owned());
        let thread = thread.spawn(work).map_err(ServeError::Exporting)?;
        Ok(Self { stop, thread })
    }

    /// Sends what is left, which takes seconds at most.
    pub(super) fn finish(self) {
        self.stop.send_replace(true);
        if self.thread.join().is_err() {
            log::error!("traces: the thread that sends them has panicked");
        }
    }
}
