//! An answer as a client received it, whichever protocol it came by.

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Whether the connection can carry another request.
    pub keeps: bool,
    /// As much of the body as came.
    pub body: Vec<u8>,
    /// How it ended.
    pub end: End,
}

/// How an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As its framing said.
    Complete,
    /// With the connection, where the framing says nothing else.
    WithConnection,
    /// Before its framing said so.
    Cut,
    /// The client went away.
    Left,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The connection ended before the first byte.
    Closed(String),
    /// What came is not HTTP.
    Garbage(String),
}
