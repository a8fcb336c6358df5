//! When an engine is out, and how that is found out.

use std::time::Duration;

use super::keys::Key;
use super::keys::{
    EJECT_AFTER, EJECT_LONGEST_PAUSE_MS, EJECT_PAUSE_MS, HEALTH_CHECK_FALL,
    HEALTH_CHECK_INTERVAL_MS, HEALTH_CHECK_PATH, HEALTH_CHECK_RISE, HEALTH_CHECK_TIMEOUT_MS,
    MOST_ENGINES_OUT, SLOW_START_MS, STATIC_BACKEND_HEALTH_CHECK_FALL,
    STATIC_BACKEND_HEALTH_CHECK_INTERVAL, STATIC_BACKEND_HEALTH_CHECK_TIMEOUT_SECONDS,
    STATIC_BACKEND_HEALTH_CHECKS,
};
use super::reader::Reader;
use crate::engines::{HealthLimits, InferenceProbe, Probe};

/// Reads when an engine is out; `is_probed` says whether engines are probed, `is_tried` whether
/// they are made to work.
pub(super) fn limits(reader: &mut Reader<'_>, is_probed: bool, is_tried: bool) -> HealthLimits {
    let inference_fall = small(reader.whole(&STATIC_BACKEND_HEALTH_CHECK_FALL));
    let limits = HealthLimits {
        failures: small(reader.whole(&EJECT_AFTER)),
        first_pause: reader.millis(&EJECT_PAUSE_MS),
        longest_pause: reader.millis(&EJECT_LONGEST_PAUSE_MS),
        is_probed,
        rise: small(reader.whole(&HEALTH_CHECK_RISE)),
        fall: small(reader.whole(&HEALTH_CHECK_FALL)),
        inference_fall: is_tried.then_some(inference_fall),
        slow_start: reader.millis(&SLOW_START_MS),
        most_out: reader.share(&MOST_ENGINES_OUT),
    };
    if limits.longest_pause < limits.first_pause {
        let place = reader.given(&EJECT_LONGEST_PAUSE_MS).place;
        let what = format!(
            "{} is shorter than {} ({})",
            limits.longest_pause.as_millis(),
            EJECT_PAUSE_MS.name,
            limits.first_pause.as_millis(),
        );
        reader.mistake(&place, what);
    }
    limits
}

/// Reads how engines are probed; `None` is not at all.
pub(super) fn probe(reader: &mut Reader<'_>) -> Option<Probe> {
    let interval = reader.millis_or_off(&HEALTH_CHECK_INTERVAL_MS);
    let timeout = reader.millis(&HEALTH_CHECK_TIMEOUT_MS);
    let (place, path) = reader.text(&HEALTH_CHECK_PATH)?;
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if !path.starts_with('/') || !path.bytes().all(is_plain) {
        let what = format!("{path} is not a path; it must start with / and hold no blanks");
        reader.mistake(&place, what);
    }
    Some(Probe {
        path,
        interval: interval?,
        timeout,
    })
}

/// Reads how engines are made to work; `None` is not at all.
pub(super) fn inference_probe(reader: &mut Reader<'_>) -> Option<InferenceProbe> {
    let mut seconds = |key: &Key| Duration::from_secs(reader.whole(key));
    let probe = InferenceProbe {
        interval: seconds(&STATIC_BACKEND_HEALTH_CHECK_INTERVAL),
        timeout: seconds(&STATIC_BACKEND_HEALTH_CHECK_TIMEOUT_SECONDS),
    };
    reader
        .switch(&STATIC_BACKEND_HEALTH_CHECKS)
        .then_some(probe)
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
