//! Engines in a file that may change.

use std::path::Path;

use super::Found;
use crate::config::engine_list;
use crate::watched_file::WatchedFile;

/// Reads the file whenever it has changed, for ever.
pub(super) async fn run(path: &Path, tell: impl Fn(Found)) {
    let mut file = WatchedFile::new(path);
    loop {
        match file.changed().await {
            Ok(text) => match engine_list(path, &text) {
                Ok(engines) => {
                    log::info!("{}: {} engines", path.display(), engines.len());
                    tell(Found::all(engines));
                }
                Err(mistakes) => {
                    for mistake in mistakes.lines() {
                        log::error!("{mistake}");
                    }
                    log::warn!("{}: what was known before stays", path.display());
                }
            },
            Err(why) => {
                log::error!(
                    "{}: cannot be read, what was known before stays: {why}",
                    path.display()
                );
            }
        }
    }
}
