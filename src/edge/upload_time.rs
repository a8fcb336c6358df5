//! How long a client may take over its request body: no long silence, and a least rate in all.
//!
//! Pure arithmetic. Only time in which the client is waited for is ever told to it, so what the
//! router does meanwhile is on nobody's account.

use std::num::NonZeroU32;
use std::time::Duration;

/// What one upload has taken of its time so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadTime {
    /// The longest silence; also what every body may take beyond what its bytes have earned it, and
    /// the most of that it may put by.
    silence: Duration,
    /// Bytes per second; `None` is no least rate.
    min_rate: Option<NonZeroU32>,
    waited: Duration,
    bytes: u64,
    /// What was earned beyond what may be put by: a burst is no leave to drip for hours.
    forfeited: Duration,
}

impl UploadTime {
    pub(super) fn new(silence: Duration, min_rate: Option<NonZeroU32>) -> Self {
        Self {
            silence,
            min_rate,
            waited: Duration::ZERO,
            bytes: 0,
            forfeited: Duration::ZERO,
        }
    }

    /// How long the next bytes may take; nothing is left for a client that is too slow in all.
    pub(super) fn left(&self) -> Duration {
        match self.min_rate {
            Some(rate) => {
                let in_all = self.silence.saturating_add(time_for(self.bytes, rate));
                let used = self.waited.saturating_add(self.forfeited);
                self.silence.min(in_all.saturating_sub(used))
            }
            None => self.silence,
        }
    }

    /// The client was waited for so long, and so many bytes came of it.
    pub(super) fn spend(&mut self, waited: Duration, bytes: usize) {
        self.waited = self.waited.saturating_add(waited);
        self.bytes = self.bytes.saturating_add(bytes as u64);
        if let Some(rate) = self.min_rate {
            let used = self.waited.saturating_add(self.forfeited);
            let put_by = time_for(self.bytes, rate).saturating_sub(used);
            let beyond = put_by.saturating_sub(self.silence);
            self.forfeited = self.forfeited.saturating_add(beyond);
        }
    }
}

/// How long so many bytes take at this rate.
fn time_for(bytes: u64, rate: NonZeroU32) -> Duration {
    let rate = u64::from(rate.get());
    let rest = bytes % rate * 1_000_000_000 / rate;
    Duration::from_secs(bytes / rate) + Duration::from_nanos(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(60);

    fn at_least(rate: u32) -> UploadTime {
        UploadTime::new(SILENCE, NonZeroU32::new(rate))
    }

    /// When a client that sends a piece each `gap` is given up, if within a day.
    fn given_up(mut time: UploadTime, gap: Duration, piece: usize) -> Option<Duration> {
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(86_400) {
            if gap > time.left() {
                return Some(at + time.left());
            }
            time.spend(gap, piece);
            at += gap;
        }
        None
    }

    #[test]
    fn without_a_rate_only_silence_counts() {
        let mut time = at_least(0);
        for _ in 0..1000 {
            time.spend(SILENCE, 1);
            assert_eq!(time.left(), SILENCE);
        }
    }

    #[test]
    fn a_drip_is_given_up_and_twice_the_rate_is_not() {
        let second = Duration::from_secs(1);
        assert_eq!(given_up(at_least(512), second, 1024), None);
        assert_eq!(given_up(at_least(512), second, 512), None);
        // Half of the time goes by unearned, until the silence every body is allowed is used up.
        let half = given_up(at_least(512), second, 256).unwrap();
        assert!(
            half > SILENCE + SILENCE / 2 && half <= 2 * SILENCE,
            "{half:?}"
        );
        let byte_a_minute = given_up(at_least(512), SILENCE, 1).unwrap();
        assert!(byte_a_minute < SILENCE + second, "{byte_a_minute:?}");
    }

    #[test]
    fn what_came_fast_may_be_followed_by_pauses_but_none_too_long() {
        let mut time = at_least(1000);
        time.spend(Duration::ZERO, 50_000);
        assert_eq!(time.left(), SILENCE);
        time.spend(Duration::from_secs(80), 0);
        assert_eq!(time.left(), Duration::from_secs(30));
        time.spend(Duration::from_secs(31), 0);
        assert_eq!(time.left(), Duration::ZERO);
        // It came in time after all: what is there is always read.
        time.spend(Duration::ZERO, 11_000);
        assert_eq!(time.left(), Duration::from_secs(10));
    }

    #[test]
    fn a_burst_is_worth_one_silence_however_large_it_is() {
        let second = Duration::from_secs(1);
        for burst in [512 * 60, 1 << 30, usize::MAX] {
            let mut time = at_least(512);
            time.spend(Duration::ZERO, burst);
            let drip = given_up(time, second, 1).unwrap();
            assert!(drip <= 2 * SILENCE + second, "{burst}: {drip:?}");
            assert!(drip >= 2 * SILENCE, "{burst}: {drip:?}");
        }
        // Several are worth no more than one; what comes in between still counts.
        let mut time = at_least(1000);
        for _ in 0..10 {
            time.spend(Duration::ZERO, 10_000_000);
        }
        time.spend(2 * SILENCE, 5000);
        assert_eq!(time.left(), Duration::from_secs(5));
    }

    #[test]
    fn an_upload_at_the_rate_in_all_its_parts_is_never_given_up() {
        // Fast, with pauses as long as may be, each followed by what it costs.
        let mut time = at_least(512);
        for _ in 0..1000 {
            time.spend(Duration::ZERO, 100 << 20);
            assert_eq!(time.left(), SILENCE);
            time.spend(SILENCE, 512 * 60);
            assert_eq!(time.left(), SILENCE);
        }
        // In large pieces, each after as long as it is worth.
        assert_eq!(given_up(at_least(512), SILENCE, 512 * 60), None);
    }

    #[test]
    fn parts_of_a_second_are_earned_and_nothing_overflows() {
        let rate = |rate| NonZeroU32::new(rate).unwrap();
        assert_eq!(time_for(1, rate(1000)), Duration::from_millis(1));
        assert_eq!(time_for(5, rate(2)), Duration::from_millis(2500));
        assert_eq!(time_for(u64::MAX, rate(1)), Duration::from_secs(u64::MAX));
        assert!(time_for(u64::MAX - 1, rate(u32::MAX)) > SILENCE);
        let mut time = UploadTime::new(Duration::MAX, NonZeroU32::new(1));
        time.spend(Duration::MAX, usize::MAX);
        time.spend(Duration::MAX, usize::MAX);
        assert_eq!(time.left(), Duration::ZERO);
    }
}
