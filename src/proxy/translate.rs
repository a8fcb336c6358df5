//! From Pingora's errors to how an attempt ended.

use pingora_core::{Error, ErrorSource, ErrorType};

use crate::edge::Silence;
use crate::retry::Failure;

/// How Pingora's proxy loop came to stop an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// A pooled connection was closed before a byte of an answer: not an attempt at all.
    Stale,
    /// The engine failed, and the client has seen nothing.
    Failed(Failure),
    /// The engine failed after a part of its answer had gone to the client.
    Cut,
    /// The client left.
    ClientGone,
    /// The client's request cannot be forwarded.
    BadRequest,
    /// A fault of ours.
    Internal,
}

/// What is known of the attempt beside the error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The connection came from the pool.
    pub(super) reused: bool,
    /// The engine's response head was read.
    pub(super) head_seen: bool,
    /// Something of the response has gone to the client.
    pub(super) committed: bool,
}

/// Reads an error of a connect.
pub(super) fn connect_failure(error: &Error) -> Failure {
    match error.etype {
        ErrorType::ConnectTimedout | ErrorType::TLSHandshakeTimedout => Failure::ConnectTimeout,
        _ => Failure::Connect,
    }
}

/// Reads an error that ended an attempt after its connect.
pub(super) fn ended(error: &Error, progress: Progress) -> Ended {
    match Silence::of(error) {
        Some(_) if progress.committed => return Ended::Cut,
        Some(_) => return Ended::Failed(Failure::FirstByteTimeout),
        None => {}
    }
    match error.esource {
        ErrorSource::Downstream if error.etype == ErrorType::InvalidHTTPHeader => Ended::BadRequest,
        ErrorSource::Downstream => Ended::ClientGone,
        ErrorSource::Internal => Ended::Internal,
        ErrorSource::Upstream | ErrorSource::Unset if progress.committed => Ended::Cut,
        ErrorSource::Upstream | ErrorSource::Unset => before_commitment(error, progress),
    }
}

fn before_commitment(error: &Error, progress: Progress) -> Ended {
    let broken = matches!(
        error.etype,
        ErrorType::ConnectionClosed | ErrorType::ReadError | ErrorType::WriteError
    );
    if progress.head_seen {
        Ended::Failed(Failure::ClosedAfterHead)
    } else if !broken {
        Ended::Failed(Failure::Malformed)
    } else if progress.reused && no_byte_was_read(error) {
        Ended::Stale
    } else {
        Ended::Failed(Failure::Closed)
    }
}

/// Whether the connection ended before the first byte of a response head. Pingora tells it in
/// the text of its error only.
fn no_byte_was_read(error: &Error) -> bool {
    let context = error
        .context
        .as_ref()
        .map_or("", |context| context.as_str());
    match context.split_once("bytes already read: ") {
        Some((_, count)) => count.trim() == "0",
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Progress = Progress {
        reused: false,
        head_seen: false,
        committed: false,
    };

    fn up(etype: ErrorType, context: &'static str) -> Box<Error> {
        let mut error = Error::explain(etype, context);
        error.as_up();
        error
    }

    #[test]
    fn only_a_reused_connection_without_a_byte_is_stale() {
        let reused = Progress {
            reused: true,
            ..FRESH
        };
        let closed = |read| up(ErrorType::ConnectionClosed, read);
        let none = "while reading response headers, bytes already read: 0";
        assert_eq!(ended(&closed(none), reused), Ended::Stale);
        assert_eq!(
            ended(&up(ErrorType::WriteError, "while writing"), reused),
            Ended::Stale
        );
        assert_eq!(ended(&closed(none), FRESH), Ended::Failed(Failure::Closed));
        let some = "while reading response headers, bytes already read: 12";
        assert_eq!(ended(&closed(some), reused), Ended::Failed(Failure::Closed));
        let after_head = Progress {
            head_seen: true,
            ..reused
        };
        assert_eq!(
            ended(&closed(none), after_head),
            Ended::Failed(Failure::ClosedAfterHead)
        );
    }

    #[test]
    fn what_is_no_response_is_malformed() {
        let garbage = up(ErrorType::InvalidHTTPHeader, "buf: garbage");
        assert_eq!(ended(&garbage, FRESH), Ended::Failed(Failure::Malformed));
    }

    #[test]
    fn an_error_after_commitment_is_a_cut_whatever_it_is() {
        let committed = Progress {
            head_seen: true,
            committed: true,
            ..FRESH
        };
        for etype in [
            ErrorType::ConnectionClosed,
            ErrorType::ReadError,
            ErrorType::H1Error,
        ] {
            assert_eq!(ended(&up(etype, ""), committed), Ended::Cut);
        }
    }

    #[test]
    fn the_clients_errors_are_nobody_elses() {
        let mut gone = Error::explain(ErrorType::ConnectionClosed, "");
        gone.as_down();
        assert_eq!(ended(&gone, FRESH), Ended::ClientGone);
        let mut bad = Error::explain(ErrorType::InvalidHTTPHeader, "");
        bad.as_down();
        assert_eq!(ended(&bad, FRESH), Ended::BadRequest);
    }

    #[test]
    fn connect_errors_are_told_apart_by_time() {
        assert_eq!(
            connect_failure(&up(ErrorType::ConnectTimedout, "")),
            Failure::ConnectTimeout
        );
        assert_eq!(
            connect_failure(&up(ErrorType::ConnectRefused, "")),
            Failure::Connect
        );
        assert_eq!(
            connect_failure(&up(ErrorType::SocketError, "")),
            Failure::Connect
        );
    }
}
