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
    async fn a_quick_connect_is_told_at_once_and_not_interrupted() {
        let dial = Dial::default();
        let begun = tokio::time::Instant::now();
        let outcome = dial.outcome(quick).await.unwrap_err();
        assert_eq!(outcome.etype, ErrorType::ConnectError);
        assert!(!Dial::goes_on(&outcome));
        assert!(begun.elapsed().is_zero());
        // Nothing goes on.
        dial.finish().await;
        dial.let_go();
        assert_eq!(
            dial.outcome(slow_but_near).await.unwrap_err().etype,
            REFUSED
        );
    }

    async fn slow_but_near() -> Result<Stream> {
        tokio::time::sleep(UNWATCHED / 2).await;
        Error::err_up(REFUSED)
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_interrupts_no_connect() {
        let dial = Dial::default();
        let begun = tokio::time::Instant::now();
        assert!(Dial::goes_on(&dial.outcome(slow).await.unwrap_err()));
        // Whoever waits may stop and begin again, as one does that hears of something else.
        assert!(timeout(UNWATCHED, dial.finish()).await.is_err());
        let never = || async { unreachable!("it has begun") };
        assert!(Dial::goes_on(&dial.outcome(never).await.unwrap_err()));
        dial.finish().await;
        assert_eq!(begun.elapsed(), 4 * UNWATCHED);
        // What has come of it is kept for as long as nobody asks.
        dial.finish().await;
        let never = || async { unreachable!("it has ended") };
        assert_eq!(dial.outcome(never).await.unwrap_err().etype, REFUSED);
    }

    /// A connection from a connect that takes its time, and its other end.
    async fn connected(dial: &Dial) -> tokio::net::TcpStream {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connect = || async move {
            tokio::time::sleep(2 * UNWATCHED).await;
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            Ok(Stream::from(stream))
        };
        assert!(Dial::goes_on(&dial.outcome(connect).await.unwrap_err()));
        dial.finish().await;
        listener.accept().await.unwrap().0
    }

    async fn is_closed(mut other_end: tokio::net::TcpStream) {
        use tokio::io::AsyncReadExt as _;
        // Where it is not, the test is to fail; a paused clock would do so at once.
        tokio::time::resume();
        let mut byte = [0];
        let read = tokio::time::timeout(Duration::from_secs(10), other_end.read(&mut byte));
        assert_eq!(read.await.expect("it is open").unwrap(), 0);
        tokio::time::pause();
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_of_a_slow_connect_is_handed_over_or_closed() {
        let dial = Dial::default();
        let taken = connected(&dial).await;
        let stream = dial.outcome(quick).await.unwrap();
        dial.let_go();
        assert!(taken.try_read(&mut [0]).is_err(), "it is open");
        drop(stream);
        is_closed(taken).await;
        let let_go = connected(&dial).await;
        dial.let_go();
        is_closed(let_go).await;
        let forgotten = connected(&dial).await;
        drop(dial);
        is_closed(forgotten).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connect_that_goes_on_is_given_up_when_it_is_let_go() {
        let dial = Dial::default();
        let held = std::sync::Arc::new(());
        let holds = std::sync::Arc::clone(&held);
        let endless = || async move {
            std::future::pending::<()>().await;
            drop(holds);
            unreachable!()
        };
        assert!(Dial::goes_on(&dial.outcome(endless).await.unwrap_err()));
        assert_eq!(std::sync::Arc::strong_count(&held), 2);
        dial.let_go();
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
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
