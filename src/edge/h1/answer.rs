//! Writes the answer to a request.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_LENGTH;
use pingora_core::protocols::http::HttpTask;
use pingora_core::{Error, ErrorType, Result};
use pingora_http::ResponseHeader;
use smallvec::SmallVec;

use super::reading::Reading;
use super::writing::{Writing, put_head};
use super::{H1, of_client};

impl H1 {
    /// Writes what has come of a response, and returns whether that was its end.
    ///
    /// # Errors
    /// The client cannot be written to; or the failure that `tasks` bring, once what is in front of
    /// it has been sent.
    pub(in crate::edge) async fn respond(&mut self, tasks: Vec<HttpTask>) -> Result<bool> {
        let mut data = SmallVec::<[Bytes; 2]>::new();
        let (mut end, mut failure) = (false, None);
        for task in tasks {
            match task {
                HttpTask::Header(head, ends) => {
                    self.put_head(head)?;
                    end = ends;
                }
                HttpTask::Body(piece, ends) | HttpTask::UpgradedBody(piece, ends) => {
                    data.extend(piece.filter(|piece| !piece.is_empty()));
                    end = ends;
                }
                // Trailers are not passed on.
                HttpTask::Trailer(_) | HttpTask::Done => end = true,
                HttpTask::Failed(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let waits_for_body = data.is_empty() && failure.is_none() && self.will_have_a_body();
        self.put_body(&data).await?;
        if let Some(error) = failure {
            self.flush().await?;
            return Err(error);
        }
        if end {
            self.put_end().await?;
        } else if waits_for_body {
            // It goes out with it, or when no more comes for now.
            return Ok(false);
        }
        self.flush().await?;
        Ok(end || self.writing.has_ended())
    }

    /// Writes a response head. One that is interim may be followed by another.
    ///
    /// # Errors
    /// The client cannot be written to.
    pub(in crate::edge) async fn write_head(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        let waits = !head.status.is_informational() && head.headers.contains_key(CONTENT_LENGTH);
        self.put_head(head)?;
        if waits && !self.writing.has_ended() {
            return Ok(());
        }
        self.flush().await
    }

    /// Writes a part of the body, its last where `end` says so.
    ///
    /// # Errors
    /// The client cannot be written to.
    pub(in crate::edge) async fn write_body(&mut self, data: Bytes, end: bool) -> Result<()> {
        self.put_body(&[data]).await?;
        if end {
            self.put_end().await?;
        }
        self.flush().await
    }

    /// The response has ended, if it has not yet.
    ///
    /// # Errors
    /// The client cannot be written to.
    pub(in crate::edge) async fn finish(&mut self) -> Result<()> {
        self.put_end().await?;
        self.flush().await
    }

    /// The last response head that was written.
    pub(in crate::edge) fn written(&self) -> Option<&ResponseHeader> {
        self.written.as_deref()
    }

    /// Bytes of the response's body that were written.
    pub(in crate::edge) fn body_bytes_sent(&self) -> usize {
        self.sent
    }

    /// Whether the head that was written says how long the body behind it is, and it is not empty.
    fn will_have_a_body(&self) -> bool {
        matches!(self.writing, Writing::Length(1..)) && self.sent == 0
    }

    fn put_head(&mut self, head: Box<ResponseHeader>) -> Result<()> {
        let is_over = |written: &ResponseHeader| !written.status.is_informational();
        if self.upgraded || self.written().is_some_and(is_over) {
            log::warn!("a second response to one request was held back");
            return Ok(());
        }
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if switches || !head.status.is_informational() {
            self.writing = Writing::of(&head, &self.request().method);
            // What comes behind an answer is the rest of the body, if that was not read.
            self.stays &= self.has_ended() && self.writing != Writing::UntilClose;
        }
        put_head(&mut self.wire.unsent, &head, self.stays).map_err(Error::into_down)?;
        if switches {
            self.upgraded = self.offers_upgrade();
            if self.upgraded {
                self.reading = Reading::Tunnel;
            }
        }
        self.written = Some(head);
        Ok(())
    }

    /// Writes these pieces, as one chunk where there are chunks; what the head does not allow for
    /// is left out.
    async fn put_body(&mut self, pieces: &[Bytes]) -> Result<()> {
        let mut left = self.writing.take(pieces.iter().map(Bytes::len).sum());
        if left == 0 {
            return Ok(());
        }
        let in_chunks = self.writing == Writing::Chunked;
        self.sent += left;
        let written = async {
            self.wire.make_room(left);
            if in_chunks {
                self.wire.put_chunk_size(left);
            }
            for piece in pieces {
                let part = piece.get(..left.min(piece.len())).unwrap_or_default();
                left -= part.len();
                self.wire.write(part).await?;
            }
            if in_chunks {
                self.wire.write(b"\r\n").await?;
            }
            Ok(())
        };
        written
            .await
            .map_err(|error| of_client(error, ErrorType::WriteError, WRITING))
    }

    async fn put_end(&mut self) -> Result<()> {
        if self.upgraded {
            // The client has nobody to talk to any more.
            self.reading = Reading::Ended;
        }
        if self.writing == Writing::Unknown {
            return Ok(());
        }
        if self.writing.end().map_err(Error::into_down)? {
            let written = self.wire.write(b"0\r\n\r\n").await;
            written.map_err(|error| of_client(error, ErrorType::WriteError, WRITING))?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<()> {
        let flushed = self.wire.flush().await;
        flushed.map_err(|error| of_client(error, ErrorType::WriteError, WRITING))
    }
}

const WRITING: &str = "writing a response";
