//! The bytes of a connection, and its end by either side.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep_until};

use super::serving::{Flow, Over, Serving};
use crate::support::wire::{Close, printable};

impl Serving {
    /// Waits for bytes and takes them.
    pub(super) async fn fill(&mut self) -> Flow<()> {
        let before = self.buffer.len();
        while self.buffer.len() == before {
            self.readable().await?;
            self.take()?;
        }
        Ok(())
    }

    pub(super) async fn readable(&mut self) -> Flow<()> {
        let ready = self.stream.readable().await;
        ready.map_err(|_| self.peer_closed(Close::Reset))
    }

    /// Takes what bytes are there, if any.
    pub(super) fn take(&mut self) -> Flow<()> {
        const PIECE: usize = 64 * 1024;
        let before = self.buffer.len();
        self.buffer.resize(before + PIECE, 0);
        let read = self.stream.try_read(&mut self.buffer[before..]);
        let got = *read.as_ref().unwrap_or(&0);
        self.buffer.truncate(before + got);
        match read {
            Ok(0) => {
                let cut = before > 0 && !self.answering;
                self.shared
                    .write(|log| log.connections[self.index].cut_request |= cut);
                Err(self.peer_closed(Close::Fin))
            }
            Ok(_) => {
                let arrived = &self.buffer[before..];
                self.shared.write(|log| {
                    let connection = &mut log.connections[self.index];
                    connection.bytes_received += got as u64;
                    if !self.forget {
                        connection.received.extend_from_slice(arrived);
                    }
                });
                if self.answering {
                    self.out_of_turn(got);
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(_) => Err(self.peer_closed(Close::Reset)),
        }
    }

    /// Notes that `bytes` came before the previous request was answered; once per connection.
    pub(super) fn out_of_turn(&mut self, bytes: usize) {
        if bytes == 0 || std::mem::replace(&mut self.out_of_turn, true) {
            return;
        }
        let start = self.buffer.len() - bytes;
        let shown = printable(&self.buffer[start..]);
        let error = format!(
            "connection {}: bytes after request {} before its answer: {shown:?}",
            self.index,
            self.requests - 1,
        );
        self.shared.write(|log| log.errors.push(error));
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Flow<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.stream.try_write(rest) {
                Ok(sent) => {
                    self.note_sent(sent);
                    rest = &rest[sent..];
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::select! {
                    biased;
                    ready = self.stream.writable() => drop(ready),
                    ready = self.stream.readable(), if self.may_buffer() => {
                        drop(ready);
                        self.take()?;
                    }
                },
                Err(_) => return Err(self.peer_closed(Close::Reset)),
            }
        }
        Ok(())
    }

    /// Waits, and notices meanwhile if the peer ends the connection.
    pub(super) async fn watch_until(&mut self, end: Instant) -> Flow<()> {
        let mut end = std::pin::pin!(sleep_until(end));
        loop {
            tokio::select! {
                biased;
                () = &mut end => return Ok(()),
                ready = self.stream.readable(), if self.may_buffer() => {
                    drop(ready);
                    self.take()?;
                }
            }
        }
    }

    /// Bytes out of turn are kept for their turn, up to a bound.
    pub(super) fn may_buffer(&self) -> bool {
        self.buffer.len() < 1 << 20
    }

    pub(super) fn note_sent(&self, bytes: usize) {
        self.shared
            .write(|log| log.connections[self.index].bytes_sent += bytes as u64);
    }

    pub(super) fn peer_closed(&self, how: Close) -> Over {
        self.shared.write(|log| {
            let closed = &mut log.connections[self.index].peer_close;
            closed.get_or_insert((how, Instant::now()));
        });
        Over
    }

    /// Ends the engine's side in good order.
    pub(super) async fn shut_down(&mut self) {
        let _ = self.stream.shutdown().await;
        self.engine_closed(Close::Fin);
    }

    /// Makes the coming close of the socket a reset.
    pub(super) fn reset(&self) -> Over {
        self.stream.set_zero_linger().unwrap();
        self.engine_closed(Close::Reset);
        Over
    }

    pub(super) fn engine_closed(&self, how: Close) {
        self.shared.write(|log| {
            let closed = &mut log.connections[self.index].engine_close;
            closed.get_or_insert((how, Instant::now()));
        });
    }
}
