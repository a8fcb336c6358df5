//! The end of waiting: turns a scenario that would hang into a panic that says what was missing.
//!
//! Measured on the real clock by a thread of its own, because a paused tokio clock jumps over any
//! tokio timeout as soon as the test waits for a socket.

use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// How long a wait may last, on the real clock, before it is taken for a hang.
pub const PATIENCE: Duration = Duration::from_secs(10);

struct Watch {
    deadline: Instant,
    expired: oneshot::Sender<()>,
}

static WATCHES: LazyLock<mpsc::Sender<Watch>> = LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || watch_over(&receiver));
    sender
});

fn watch_over(arriving: &mpsc::Receiver<Watch>) {
    const TICK: Duration = Duration::from_millis(20);
    let mut watches: Vec<Watch> = Vec::new();
    loop {
        let arrived = if watches.is_empty() {
            arriving.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            arriving.recv_timeout(TICK)
        };
        match arrived {
            Ok(watch) => watches.push(watch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        for watch in watches.extract_if(.., |w| w.expired.is_closed() || w.deadline <= now) {
            // An error means that the wait has ended in the meantime.
            let _ = watch.expired.send(());
        }
    }
}

/// Awaits `work`; panics with `complaint` if it takes longer than `patience` of real time.
#[track_caller]
pub fn within<T>(
    patience: Duration,
    complaint: impl FnOnce() -> String,
    work: impl Future<Output = T>,
) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let (expired, expiry) = oneshot::channel();
        let watch = Watch {
            deadline: Instant::now() + patience,
            expired,
        };
        let mut work = std::pin::pin!(work);
        // Most waits are over at once and need no watching.
        if let Some(done) = ready_now(work.as_mut()).await {
            return done;
        }
        WATCHES
            .send(watch)
            .expect("the watching thread lives as long as the process");
        tokio::select! {
            biased;
            done = work => done,
            _ = expiry => panic!("{} (gave up after {patience:?}, waited for at {caller})", complaint()),
        }
    }
}

/// Polls once: the output if it is there already.
async fn ready_now<F: Future>(mut work: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|context| match work.as_mut().poll(context) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}
