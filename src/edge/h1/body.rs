//! Reads the body of a request, and watches for the client that leaves behind it.

use bytes::Bytes;
use pingora_core::{Error, ErrorType, Result};

use super::reading::Reading;
use super::{H1, of_client};
use crate::edge::intake::Intake;
use crate::edge::saved_body::room_for;

impl H1 {
    /// Reads on in the body as far as `intake` lets it: all of one whose length is declared, what
    /// has come of one in chunks. `None` is its end.
    ///
    /// # Errors
    /// The client has closed too early, its connection has failed, or what it sends is malformed;
    /// and those of `intake`. The connection is of no use for a further request.
    pub(in crate::edge) async fn read_body(
        &mut self,
        intake: &mut Intake,
    ) -> Result<Option<Bytes>> {
        let data = match self.reading {
            Reading::Length(length) => self.collect(length, intake).await.map(Some),
            Reading::Chunked(_) => {
                let size = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
                intake.read(self.next_chunks(), size).await
            }
            Reading::Tunnel => self.tunnelled().await,
            Reading::Ended => Ok(None),
            Reading::Broken => Err(malformed()),
        };
        if data.is_err() {
            // Where the body ends is unknown, so no further request can be told from it.
            self.stays = false;
        }
        data
    }

    /// Whether the request has been read to its end.
    pub(in crate::edge) fn has_ended(&self) -> bool {
        self.reading.has_ended()
    }

    /// Reads what is left of the body, and drops it.
    pub(in crate::edge) async fn drain(&mut self) -> Result<()> {
        loop {
            match &mut self.reading {
                Reading::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX);
                    let here = here.min(self.wire.ahead.len());
                    *left -= here as u64;
                    if *left == 0 {
                        self.reading = Reading::Ended;
                    }
                    drop(self.wire.take(here));
                    if !self.has_ended() {
                        self.more().await?;
                    }
                }
                Reading::Chunked(_) => drop(self.next_chunks().await?),
                Reading::Tunnel => drop(self.tunnelled().await?),
                Reading::Ended => return Ok(()),
                Reading::Broken => return Err(malformed()),
            }
        }
    }

    /// Reads on in the body, and behind it waits for the client to leave.
    ///
    /// # Errors
    /// It has left; those of a body that cannot be read.
    pub(in crate::edge) async fn body_or_departure(
        &mut self,
        no_body_expected: bool,
    ) -> Result<Option<Bytes>> {
        if !no_body_expected && !self.has_ended() {
            return match self.reading {
                Reading::Tunnel => self.tunnelled().await,
                // The body goes to no engine before it is whole, so nobody asks for its parts.
                _ => self.drain().await.map(|()| None),
            };
        }
        let closed = self.wire.closed().await;
        self.stays = false;
        let what = "waiting for the end of a response";
        Err(match closed {
            Ok(()) => Error::explain(ErrorType::ConnectionClosed, what),
            Err(error) => of_client(error, ErrorType::ReadError, what),
        })
    }

    /// Bytes of the body that were read.
    pub(in crate::edge) fn body_bytes_read(&self) -> usize {
        self.read
    }

    /// Reads a body of known length to where it is kept.
    async fn collect(&mut self, length: u64, intake: &mut Intake) -> Result<Bytes> {
        let length = usize::try_from(length).map_err(|_| malformed())?;
        let here = self.wire.take(length);
        self.reading = Reading::Length((length - here.len()) as u64);
        intake.take_in(here.len())?;
        self.read += here.len();
        if here.len() == length {
            self.reading = Reading::Ended;
            return Ok(here.freeze());
        }
        let mut body = room_for(length);
        body.extend_from_slice(&here);
        drop(here);
        while body.len() < length {
            let left = length - body.len();
            let read = async {
                let read = self.wire.fill(&mut body, left).await;
                read.map_err(|error| of_client(error, ErrorType::ReadError, READING))
            };
            let read = intake.read(read, |bytes| *bytes).await?;
            if read == 0 {
                return Err(closed());
            }
            self.read += read;
            self.reading = Reading::Length((length - body.len()) as u64);
        }
        self.reading = Reading::Ended;
        Ok(body.freeze())
    }

    /// What the next chunks carry. It may be dropped at any time, and nothing is lost.
    async fn next_chunks(&mut self) -> Result<Option<Bytes>> {
        loop {
            let decoded = self.reading.decode(&mut self.wire.ahead);
            let data = decoded.map_err(|_| malformed())?;
            if !data.is_empty() {
                self.read += data.len();
                return Ok(Some(data.freeze()));
            }
            if self.has_ended() {
                return Ok(None);
            }
            self.more().await?;
        }
    }

    /// What the client says in another protocol.
    async fn tunnelled(&mut self) -> Result<Option<Bytes>> {
        if self.wire.ahead.is_empty() {
            let read = self.wire.read_ahead().await;
            let read = read.map_err(|error| of_client(error, ErrorType::ReadError, READING))?;
            if read == 0 {
                self.reading = Reading::Ended;
                return Ok(None);
            }
        }
        let data = self.wire.take(usize::MAX).freeze();
        self.read += data.len();
        Ok(Some(data))
    }

    /// Waits for more of what the client sends.
    async fn more(&mut self) -> Result<()> {
        let read = self.wire.read_ahead().await;
        match read.map_err(|error| of_client(error, ErrorType::ReadError, READING))? {
            0 => Err(closed()),
            _ => Ok(()),
        }
    }
}

const READING: &str = "reading a request body";

fn closed() -> Box<Error> {
    let what = "the client closed before the end of its request body";
    Error::explain(ErrorType::ConnectionClosed, what)
}

fn malformed() -> Box<Error> {
    Error::explain(ErrorType::InvalidHTTPHeader, "a malformed chunk")
}
