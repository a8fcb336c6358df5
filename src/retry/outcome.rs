//! How an attempt ended, and what that means: one table.

/// Whether an answer with this status may be asked for again after a backoff.
///
/// The list is closed: 408, 429, 500, 502, 503, 504. Neighbours of these (501, 505, 529) are
/// final, since asking again cannot change them.
pub fn is_retryable_status(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

/// The word for an engine that does not serve the model, in logs and metric labels.
pub const NOT_SERVED: &str = "model_not_found";

/// Why an engine gave no usable answer although the client still waits for one.
///
/// Every kind excludes the engine for the rest of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Refused, unreachable, no address for its name: nothing was sent.
    Connect,
    /// No connection within the connect timeout: nothing was sent.
    ConnectTimeout,
    /// Reset or closed before the response head was complete.
    Closed,
    /// What came is not an HTTP response.
    Malformed,
    /// No byte of an answer within the first-byte timeout.
    FirstByteTimeout,
    /// The head came and the connection ended before the first body byte.
    ClosedAfterHead,
}

impl Failure {
    /// Every kind, for tables and metrics.
    pub const ALL: [Self; 6] = [
        Self::Connect,
        Self::ConnectTimeout,
        Self::Closed,
        Self::Malformed,
        Self::FirstByteTimeout,
        Self::ClosedAfterHead,
    ];

    /// Whether there was no connection.
    pub fn is_connect(self) -> bool {
        matches!(self, Self::Connect | Self::ConnectTimeout)
    }

    /// Whether the engine may have received the request, so that sending it again repeats it.
    pub fn may_have_been_delivered(self) -> bool {
        !self.is_connect()
    }

    /// Whether time ran out, which the client is told with 504 instead of 502.
    pub fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::FirstByteTimeout)
    }

    /// The word for logs and metric labels.
    pub fn label(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Closed => "closed",
            Self::Malformed => "malformed",
            Self::FirstByteTimeout => "first_byte_timeout",
            Self::ClosedAfterHead => "closed_after_head",
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The engine answered with this status.
    Status(u16),
    /// The engine gave no answer, and nothing has gone to the client.
    Failed(Failure),
    /// The engine denied a model that it was only thought to serve.
    NotServed,
    /// The answer broke off after its first body byte had gone to the client.
    Cut,
    /// The client left.
    ClientGone,
}

impl Outcome {
    /// Whether it excludes the engine for the rest of the request.
    pub fn excludes(self) -> bool {
        match self {
            Self::Failed(_) | Self::NotServed => true,
            Self::Status(_) | Self::Cut | Self::ClientGone => false,
        }
    }
}

/// Why a request was sent again, for logs and metric labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryReason {
    /// A retryable status.
    Status(u16),
    /// A transport failure.
    Failed(Failure),
    /// The engine does not serve the model.
    NotServed,
}

impl RetryReason {
    /// The word for logs and metric labels: the status itself, or the kind of failure.
    pub fn label(self) -> &'static str {
        match self {
            Self::Status(408) => "408",
            Self::Status(429) => "429",
            Self::Status(500) => "500",
            Self::Status(502) => "502",
            Self::Status(503) => "503",
            Self::Status(504) => "504",
            Self::Status(_) => "status",
            Self::Failed(failure) => failure.label(),
            Self::NotServed => NOT_SERVED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_statuses_are_retryable_and_no_other() {
        let retryable: Vec<u16> = (100..=999).filter(|s| is_retryable_status(*s)).collect();
        assert_eq!(retryable, [408, 429, 500, 502, 503, 504]);
    }

    #[test]
    fn only_a_failed_connect_proves_that_nothing_was_delivered() {
        let safe: Vec<_> = Failure::ALL
            .into_iter()
            .filter(|f| !f.may_have_been_delivered())
            .collect();
        assert_eq!(safe, [Failure::Connect, Failure::ConnectTimeout]);
    }

    #[test]
    fn timeouts_are_told_from_broken_connections() {
        let timeouts: Vec<_> = Failure::ALL
            .into_iter()
            .filter(|f| f.is_timeout())
            .collect();
        assert_eq!(
            timeouts,
            [Failure::ConnectTimeout, Failure::FirstByteTimeout]
        );
    }

    #[test]
    fn labels_are_distinct() {
        let mut labels: Vec<_> = Failure::ALL
            .into_iter()
            .map(|f| RetryReason::Failed(f).label())
            .chain([408, 429, 500, 502, 503, 504].map(|s| RetryReason::Status(s).label()))
            .chain([RetryReason::NotServed.label()])
            .collect();
        let before = labels.len();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), before);
    }
}
