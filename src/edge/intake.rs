//! Takes a request body in, read by read, and sees that it takes no more than it may.

use pingora_core::{Error, ErrorType, Result};
use tokio::time::{Instant, timeout};

use super::buffered::Share;
use super::upload_time::UploadTime;

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
        // What has come already is read in any case.
        let Ok(read) = timeout(self.time.left(), read).await else {
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
