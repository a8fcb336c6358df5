//! How often the log tells of lost spans.

use std::time::Duration;

use tokio::time::Instant;

/// The pause between two lines on them.
const PAUSE: Duration = Duration::from_secs(60);

/// Tells of the first loss at once, and of further ones together after each pause.
#[derive(Debug, Default)]
pub(super) struct Losses {
    untold: u64,
    told: Option<Instant>,
}

impl Losses {
    /// So many more are lost; how many to tell of now, if it is time.
    pub(super) fn add(&mut self, lost: u64, now: Instant) -> Option<u64> {
        self.untold += lost;
        let is_time = self.told.is_none_or(|told| now >= told + PAUSE);
        if self.untold == 0 || !is_time {
            return None;
        }
        self.told = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_loss_is_told_at_once_and_later_ones_together() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut losses = Losses::default();
        assert_eq!(losses.add(0, at(0)), None);
        assert_eq!(losses.add(5, at(1)), Some(5));
        assert_eq!(losses.add(1, at(2)), None);
        assert_eq!(losses.add(2, at(60)), None);
        assert_eq!(losses.add(0, at(61)), Some(3));
        assert_eq!(losses.add(0, at(200)), None);
        assert_eq!(losses.add(4, at(201)), Some(4));
    }
}
