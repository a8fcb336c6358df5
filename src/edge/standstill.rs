//! A client that takes nothing of its answer: noticed after a while, however much still waits.
//!
//! Only a write that waits is timed, and whatever the client takes begins its time anew. A write
//! that is done at once, as most are, costs nothing here, and an engine that is silent has nothing
//! that could wait.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use pingora_core::protocols::SocketDigest;
use pingora_core::{Error, ErrorType, Result};
use tokio::time::{Instant, Sleep, sleep};

/// How long a client has taken nothing of what waits for it.
#[derive(Debug)]
pub(super) struct Standstill {
    /// `None` is for ever.
    limit: Option<Duration>,
    /// The client's socket, where all that goes over it is one answer.
    socket: Option<Arc<SocketDigest>>,
    /// There while something waits.
    waiting: Option<Waiting>,
}

/// How often in the time of the limit it is looked whether the client's machine has taken more.
const LOOKS: u32 = 10;

#[derive(Debug)]
struct Waiting {
    next_look: Pin<Box<Sleep>>,
    taken: Taken,
}

/// What the client's machine had taken in all, and since when.
#[derive(Debug)]
struct Taken {
    bytes: u64,
    since: Instant,
}

impl Taken {
    /// It is so much now. How long until the next look; `None` once nothing more was taken for as
    /// long as `limit`.
    fn look(&mut self, bytes: u64, now: Instant, limit: Duration) -> Option<Duration> {
        if self.bytes != bytes {
            *self = Self { bytes, since: now };
        }
        let left = limit.saturating_sub(now.duration_since(self.since));
        (!left.is_zero()).then(|| left.min(limit / LOOKS))
    }
}

impl Standstill {
    pub(super) fn new(limit: Option<Duration>, socket: Option<Arc<SocketDigest>>) -> Self {
        Self {
            limit,
            socket,
            waiting: None,
        }
    }

    /// Holds from the next wait on.
    pub(super) fn set_limit(&mut self, limit: Option<Duration>) {
        self.limit = limit;
    }

    /// The client has taken something, or nothing waits.
    pub(super) fn moved(&mut self) {
        self.waiting = None;
    }

    /// To be called while a write waits; ready, now and ever after, once that took too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.limit else {
            return Poll::Pending;
        };
        let socket = self.socket.as_deref();
        let waiting = self.waiting.get_or_insert_with(|| Waiting {
            next_look: Box::pin(sleep(limit / LOOKS)),
            taken: Taken {
                bytes: acknowledged(socket),
                since: Instant::now(),
            },
        });
        loop {
            ready!(waiting.next_look.as_mut().poll(cx));
            // A large buffer of the system's is not written to again before a good part of it is
            // free, which a slow client may well take longer for.
            let (bytes, now) = (acknowledged(socket), Instant::now());
            match waiting.taken.look(bytes, now, limit) {
                Some(wait) => waiting.next_look.as_mut().reset(now + wait),
                None => return Poll::Ready(()),
            }
        }
    }
}

/// How many bytes the other end has acknowledged.
fn acknowledged(socket: Option<&SocketDigest>) -> u64 {
    let info = socket.and_then(SocketDigest::tcp_info);
    info.map_or(0, |info| info.tcpi_bytes_acked)
}

/// Waits for a write that is woken by nothing but what the client takes, as one that waits for its
/// HTTP/2 window is.
///
/// # Errors
/// That of `write`, or the client took nothing for as long as `limit`.
pub(super) async fn unless_stalled<T>(
    limit: Option<Duration>,
    write: impl Future<Output = Result<T>>,
) -> Result<T> {
    if limit.is_none() {
        return write.await;
    }
    let mut write = pin!(write);
    let mut standstill = Standstill::new(limit, None);
    let mut notice: Option<Arc<Notice>> = None;
    std::future::poll_fn(|cx| {
        if notice.is_none() {
            // Most are done here.
            if let Poll::Ready(written) = write.as_mut().poll(cx) {
                return Poll::Ready(written);
            }
        }
        let notice = match &mut notice {
            Some(notice) if notice.task.will_wake(cx.waker()) => notice,
            other => other.insert(Notice::new(cx.waker())),
        };
        if notice.woken.swap(false, Ordering::AcqRel) {
            standstill.moved();
        }
        // The task also wakes for other reasons, so the write gets a waker of its own.
        let waker = Waker::from(Arc::clone(notice));
        if let Poll::Ready(written) = write.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Poll::Ready(written);
        }
        standstill.poll(cx).map(|()| {
            let what = "the client takes nothing of its answer";
            Error::e_explain(ErrorType::WriteTimedout, what).map_err(Error::into_down)
        })
    })
    .await
}

/// Remembers that a write was woken.
#[derive(Debug)]
struct Notice {
    woken: AtomicBool,
    task: Waker,
}

impl Notice {
    fn new(task: &Waker) -> Arc<Self> {
        Arc::new(Self {
            woken: AtomicBool::new(false),
            task: task.clone(),
        })
    }
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.task.wake_by_ref();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(300);

    /// When a client is given up of whom this was told at these seconds.
    fn given_up(told: &[(u64, u64)]) -> u64 {
        let begun = Instant::now();
        let mut taken = Taken {
            bytes: 0,
            since: begun,
        };
        let mut at = LIMIT / LOOKS;
        loop {
            let by_now = told.iter().rfind(|(second, _)| *second <= at.as_secs());
            let bytes = by_now.map_or(0, |(_, bytes)| *bytes);
            match taken.look(bytes, begun + at, LIMIT) {
                Some(wait) => at += wait,
                None => return at.as_secs(),
            }
        }
    }

    #[test]
    fn what_was_on_its_way_does_not_buy_the_whole_limit_again() {
        assert_eq!(given_up(&[]), 300);
        // Acknowledged right after the wait began, and seen at the first look.
        assert_eq!(given_up(&[(0, 5)]), 330);
        assert_eq!(given_up(&[(31, 5)]), 360);
        // Whoever takes something now and then is never given up before.
        assert_eq!(given_up(&[(299, 1), (590, 2), (880, 3)]), 1200);
    }
}
