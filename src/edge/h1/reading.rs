//! How far the body of a request has been read.

use bytes::{Buf as _, BytesMut};

use crate::edge::chunks::{Chunks, Malformed};
use crate::edge::head::BodyFraming;

/// What is left of a request's body.
#[derive(Debug)]
pub(super) enum Reading {
    /// This much.
    Length(u64),
    /// More chunks.
    Chunked(Chunks),
    /// Nothing; what comes is for the next request.
    Ended,
    /// It is malformed, so nothing behind it can be read.
    Broken,
    /// The connection has left HTTP: all that comes.
    Tunnel,
}

impl Reading {
    pub(super) fn new(framing: BodyFraming) -> Self {
        match framing {
            BodyFraming::Length(0) => Self::Ended,
            BodyFraming::Length(length) => Self::Length(length),
            BodyFraming::Chunked => Self::Chunked(Chunks::default()),
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(self, Self::Ended)
    }

    /// Takes what `ahead` has of the data of chunks; empty where it has none, or the body has ended.
    /// That it has is known only once its data was taken.
    ///
    /// # Errors
    /// It is no chunked body.
    pub(super) fn decode(&mut self, ahead: &mut BytesMut) -> Result<BytesMut, Malformed> {
        let mut data = BytesMut::new();
        let Self::Chunked(chunks) = self else {
            return Ok(data);
        };
        let taken = chunks.follow(ahead, |piece| data.extend_from_slice(piece));
        let ended = chunks.ended();
        match taken {
            Ok(taken) if taken == ahead.len() => *ahead = BytesMut::new(),
            Ok(taken) => ahead.advance(taken),
            Err(malformed) => {
                *self = Self::Broken;
                return Err(malformed);
            }
        }
        if ended && data.is_empty() {
            *self = Self::Ended;
        }
        Ok(data)
    }
}
