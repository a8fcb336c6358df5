//! A connect that does not keep us from seeing the client leave.
//!
//! While Pingora opens a connection no hook of ours runs, so nobody looks at the client. Hence a
//! connect that takes its time is interrupted: Pingora is told to ask for a peer again, and there
//! the connect goes on beside the watch over the client. Once it has ended, Pingora asks anew and
//! is given what has come of it. A connect as quick as most is not touched.

use std::pin::Pin;
use std::time::Duration;

use pingora_core::protocols::l4::stream::Stream;
use pingora_core::{Error, ErrorType, Result};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long a connect may take without the client being looked at.
const UNWATCHED: Duration = Duration::from_millis(250);

const GOES_ON: ErrorType = ErrorType::new("ConnectGoesOn");

type Connecting = Pin<Box<dyn Future<Output = Result<Stream>> + Send>>;

/// One connect; `None` before it has begun and after its end has been told.
#[derive(Default)]
pub(super) struct Dial(Mutex<Option<Connecting>>);

impl Dial {
    /// Whether this error says that the connect is not over.
    pub(super) fn goes_on(error: &Error) -> bool {
        error.etype == GOES_ON
    }

    /// What comes of the connect, if that is soon; `begin` begins one that has not begun.
    pub(super) async fn outcome<F>(&self, begin: impl FnOnce() -> F) -> Result<Stream>
    where
        F: Future<Output = Result<Stream>> + Send + 'static,
    {
        let mut connect = self.0.lock().await;
        let connecting = connect.get_or_insert_with(|| Box::pin(begin()));
        match timeout(UNWATCHED, connecting).await {
            Ok(outcome) => {
                *connect = None;
                outcome
            }
            Err(_) => Error::err_up(GOES_ON),
        }
    }

    /// Waits for the end of a connect that goes on, and keeps what comes of it.
    pub(super) async fn finish(&self) {
        let mut connect = self.0.lock().await;
        if let Some(connecting) = connect.as_mut() {
            let outcome = connecting.await;
            *connect = Some(Box::pin(std::future::ready(outcome)));
        }
    }

    /// Closes the connection that came of it and was not asked for: Pingora has had another from
    /// its pool meanwhile.
    pub(super) fn let_go(&self) {
        if let Ok(mut connect) = self.0.try_lock() {
            *connect = None;
        }
    }
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dial")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: ErrorType = ErrorType::ConnectRefused;

    async fn slow() -> Result<Stream> {
        tokio::time::sleep(4 * UNWATCHED).await;
        Error::err_up(REFUSED)
    }

    async fn quick() -> Result<Stream> {
        Error::err_up(ErrorType::ConnectError)
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_connect_goes_on_and_its_outcome_is_told_once() {
        let dial = Dial::default();
        assert!(Dial::goes_on(&dial.outcome(slow).await.unwrap_err()));
        dial.finish().await;
        assert_eq!(dial.outcome(quick).await.unwrap_err().etype, REFUSED);
        let anew = dial.outcome(quick).await.unwrap_err();
        assert_eq!(anew.etype, ErrorType::ConnectError);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_let_go_is_not_kept() {
        let dial = Dial::default();
        assert!(Dial::goes_on(&dial.outcome(slow).await.unwrap_err()));
        dial.finish().await;
        dial.let_go();
        let anew = dial.outcome(quick).await.unwrap_err();
        assert_eq!(anew.etype, ErrorType::ConnectError);
    }
}
