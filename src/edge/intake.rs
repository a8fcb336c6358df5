//! Takes a request body in, read by read, and sees that it takes no more than it may.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use pingora_core::{Error, ErrorType, Result};
use tokio::time::{Instant, timeout};

use super::buffered::Share;
use super::upload_time::UploadTime;

/// How often others have a turn before a time that is over is believed.
const TURNS: usize = 3;

/// Waits for `read` for so long. What has come already is read in any case, also by those who have
/// to bring it here: where the router itself was held up, time is over before they had their turn.
async fn within<T>(limit: Duration, read: impl Future<Output = T>) -> Option<T> {
    let mut read = pin!(read);
    if let Ok(read) = timeout(limit, &mut read).await {
        return Some(read);
    }
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
        if let Poll::Ready(read) = futures::poll!(&mut read) {
            return Some(read);
        }
    }
    None
}

/// What the upload of one request has taken, whatever its framing.
#[derive(Debug)]
pub(super) struct Intake {
    time: UploadTime,
    share: Share,
}

impl Intake {
    pub(super) fn new(time: UploadTime, share: Share) -> Self {
        Self { time, share }
    }

    /// Waits for `read` as long as the client may take; `size` says how many bytes it brought.
    ///
    /// # Errors
    /// That of `read`, or the client is too slow, or there is no room for what it sends.
    pub(super) async fn read<T>(
        &mut self,
        read: impl Future<Output = Result<T>>,
        size: impl FnOnce(&T) -> usize,
    ) -> Result<T> {
        let begun = Instant::now();
        let Some(read) = within(self.time.left(), read).await else {
            return Error::e_explain(ErrorType::ReadTimedout, "reading a request body");
        };
        let read = read?;
        let bytes = size(&read);
        self.time.spend(begun.elapsed(), bytes);
        self.share.add(bytes)?;
        Ok(read)
    }

    /// Takes in so many bytes that have come already.
    ///
    /// # Errors
    /// There is no room for them.
    pub(super) fn take_in(&mut self, bytes: usize) -> Result<()> {
        self.share.add(bytes)
    }

    /// Whether a body of this length would have room now.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn foresee(&self, bytes: usize) -> Result<()> {
        self.share.foresee(bytes)
    }

    /// The body has been let go.
    pub(super) fn let_go(&mut self) {
        self.share.give_back();
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    /// What is read within the limit of a client that sends something once this has gone by.
    async fn read_after(gone_by: Duration) -> Option<u8> {
        let (send, mut receive) = mpsc::channel(1);
        // It comes by another task, as over HTTP/2, which finds its time over as well.
        tokio::spawn(async move {
            sleep(gone_by).await;
            tokio::task::yield_now().await;
            let _ = send.send(7).await;
            std::future::pending::<()>().await;
        });
        within(LIMIT, receive.recv()).await.flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn what_came_while_the_router_was_held_up_is_no_silence() {
        let begun = Instant::now();
        assert_eq!(read_after(LIMIT).await, Some(7));
        assert_eq!(begun.elapsed(), LIMIT);
        assert_eq!(read_after(LIMIT / 2).await, Some(7));
        assert_eq!(read_after(LIMIT + Duration::from_millis(1)).await, None);
    }
}
