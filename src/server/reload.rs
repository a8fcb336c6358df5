//! Reads the configuration again while the router runs.

use std::sync::{Mutex, PoisonError};

use super::Live;
use crate::config::{ConfigErrors, Load, Settings};

/// Takes a changed configuration on, or stays with the one there is.
pub struct Reloader {
    load: Load,
    live: Live,
    /// What the router goes by.
    settings: Mutex<Settings>,
}

impl Reloader {
    /// Reads with `load`; `live` goes by `settings` now.
    pub fn new(load: Load, settings: Settings, live: Live) -> Self {
        Self {
            load,
            live,
            settings: Mutex::new(settings),
        }
    }

    /// Reads the configuration, and goes by it if nothing is wrong with it; else says what is, and
    /// changes nothing. Whether it is gone by.
    pub fn reload(&self) -> bool {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let adopted = (self.load)().and_then(|loaded| {
            let adopted = self.live.adopt(&loaded.settings);
            adopted
                .map_err(|_| ConfigErrors::of(UNSENDABLE_KEY.to_owned()))
                .map(|()| loaded)
        });
        self.live.metrics.reloaded(adopted.is_ok());
        match adopted {
            Ok(loaded) => {
                for warning in &loaded.warnings {
                    log::warn!("{warning}");
                }
                for key in needing_a_restart(&settings, &loaded.settings) {
                    log::warn!("{key}: a change takes effect with the next start only");
                }
                let engines = loaded.settings.engines.len();
                log::info!("configuration reloaded: engines={engines}");
                *settings = loaded.settings;
                true
            }
            Err(errors) => {
                for line in errors.lines() {
                    log::error!("{line}");
                }
                log::error!("configuration not reloaded: the one before stays in force");
                false
            }
        }
    }
}

impl std::fmt::Debug for Reloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reloader").finish_non_exhaustive()
    }
}

const UNSENDABLE_KEY: &str = "engine_api_key: it cannot be sent in a header";

/// The keys whose values differ and are looked at when the process starts only.
fn needing_a_restart(before: &Settings, now: &Settings) -> Vec<&'static str> {
    let traces = &before.traces;
    let changes = [
        ("host", before.host != now.host),
        ("port", before.port != now.port),
        ("admin_host", before.admin_host != now.admin_host),
        ("admin_port", before.admin_port != now.admin_port),
        ("threads", before.threads != now.threads),
        ("grace_period_ms", before.grace_period != now.grace_period),
        ("drain_settle_ms", before.drain_settle != now.drain_settle),
        ("upgrade_sock", before.upgrade_sock != now.upgrade_sock),
        ("access_log", before.access_log.on != now.access_log.on),
        (
            "access_log_sample",
            before.access_log.sample.to_bits() != now.access_log.sample.to_bits(),
        ),
        (
            "access_log_file",
            before.access_log.file != now.access_log.file,
        ),
        (
            "production_stack_metrics",
            before.production_stack_metrics != now.production_stack_metrics,
        ),
        ("log_level", before.log_level != now.log_level),
        ("log_format", before.log_format != now.log_format),
        ("otel_endpoint", traces.endpoint != now.traces.endpoint),
        ("otel_protocol", traces.protocol != now.traces.protocol),
        (
            "otel_service_name",
            traces.service_name != now.traces.service_name,
        ),
        ("otel_sampling_ratio", traces.ratio != now.traces.ratio),
    ];
    let differing = changes.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}
