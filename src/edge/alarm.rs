//! A time that is waited for again and again, and nearly always put off before it has come.
//!
//! A timer of its own for each wait would be registered and taken back for each event of a stream.
//! This one stays where it is while the time is only put off, and looks again when it goes off.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits for this time. It may be dropped and called again at any time.
    pub(super) async fn at(&mut self, time: Instant) {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(time)));
        if sleep.deadline() > time {
            sleep.as_mut().reset(time);
        }
        sleep.as_mut().await;
        while sleep.deadline() < time {
            sleep.as_mut().reset(time);
            sleep.as_mut().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn it_goes_off_at_the_last_time_it_was_set_to() {
        let begun = Instant::now();
        let mut alarm = Alarm::default();
        // Put off, brought forward, and put off again, each before it has come.
        for seconds in [10, 20, 5, 30] {
            let waits = alarm.at(begun + seconds * SECOND);
            assert!(timeout(SECOND, waits).await.is_err());
        }
        alarm.at(begun + 30 * SECOND).await;
        assert_eq!(begun.elapsed(), 30 * SECOND);
        // It has come, and so has every time before it.
        alarm.at(begun + 7 * SECOND).await;
        assert_eq!(begun.elapsed(), 30 * SECOND);
        alarm.at(begun + 31 * SECOND).await;
        assert_eq!(begun.elapsed(), 31 * SECOND);
    }
}
