//! How an engine reads requests: strictly, and telling what was wrong with them.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::{Instant, sleep, sleep_until};

use super::log::Delivery;
use super::serving::{Flow, Over, Serving};
use crate::support::wire::{self, BodyReader, BodySum, Framing, Headers};

pub(super) struct Head {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: String,
    pub(super) headers: Headers,
    pub(super) raw: Bytes,
    pub(super) framing: Framing,
    pub(super) at: Instant,
}

impl Serving {
    pub(super) async fn next_head(&mut self) -> Flow<Head> {
        let raw = loop {
            match wire::head_end(&self.buffer) {
                Ok(Some(end)) => break self.buffer.split_to(end).freeze(),
                Ok(None) => {}
                Err(error) => return Err(self.refuse(error).await),
            }
            let idle = self.shared.playback.lock().unwrap().script.idle_close;
            match (idle, self.last_response) {
                (Some(idle), Some(last)) if self.buffer.is_empty() => tokio::select! {
                    biased;
                    ready = self.stream.readable() => drop(ready),
                    () = sleep_until(last + idle) => {
                        self.shut_down().await;
                        return Err(Over);
                    }
                },
                _ => self.readable().await?,
            }
            self.take()?;
        };
        match parse_request(&raw) {
            Ok(head) => Ok(head),
            Err(error) => Err(self.refuse(error).await),
        }
    }

    /// Reads the body and records the delivery; returns its number too.
    pub(super) async fn read_body(
        &mut self,
        head: &Head,
        slowly: Option<(usize, Duration)>,
        routed: bool,
    ) -> Flow<(usize, Delivery)> {
        let mut reader = BodyReader::new(head.framing);
        let mut sum = BodySum::default();
        let mut body = BytesMut::new();
        // What a slow reader has got round to.
        let mut window = BytesMut::new();
        loop {
            let forget = self.forget;
            let source = if slowly.is_some() {
                &mut window
            } else {
                &mut self.buffer
            };
            let taken = reader.take(source, |piece| {
                sum.add(&piece);
                if !forget {
                    body.extend_from_slice(&piece);
                }
            });
            if let Err(error) = taken {
                return Err(self.refuse(error).await);
            }
            if reader.is_done() {
                break;
            }
            if let Some((_, gap)) = slowly {
                sleep(gap).await;
            }
            if (slowly.is_none() || self.buffer.is_empty())
                && let Err(over) = self.fill().await
            {
                self.shared
                    .write(|log| log.connections[self.index].cut_request = true);
                return Err(over);
            }
            if let Some((most, _)) = slowly {
                let read = self.buffer.split_to(most.min(self.buffer.len()));
                window.unsplit(read);
            }
        }
        if !window.is_empty() {
            window.unsplit(self.buffer.split());
            self.buffer = window;
        }
        let delivery = Delivery {
            method: head.method.clone(),
            target: head.target.clone(),
            version: head.version.clone(),
            headers: head.headers.clone(),
            head: head.raw.clone(),
            body: body.freeze(),
            body_len: sum.len(),
            body_hash: sum.hash(),
            framing: head.framing,
            chunk_sizes: reader.chunk_sizes,
            chunk_extensions: reader.extensions,
            trailers: reader.trailers,
            connection: self.index,
            nth: self.requests,
            head_at: head.at,
            at: Instant::now(),
            answered: false,
            routed,
        };
        self.requests += 1;
        let number = self.shared.write(|log| {
            log.deliveries.push(delivery.clone());
            log.deliveries.len() - 1
        });
        Ok((number, delivery))
    }

    /// Records what was wrong, and turns the peer away as a server would.
    pub(super) async fn refuse(&mut self, error: String) -> Over {
        let place = format!(
            "connection {}, request {}: {error}",
            self.index, self.requests
        );
        self.shared.write(|log| log.errors.push(place));
        let answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        if self.send(answer).await.is_ok() {
            self.shut_down().await;
        }
        Over
    }
}

fn parse_request(raw: &Bytes) -> Result<Head, String> {
    let (line, headers) = wire::parse_head(raw)?;
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = parts[..] else {
        return Err(format!("a malformed request line: {line:?}"));
    };
    let token = !method.is_empty() && method.bytes().all(wire::is_token);
    let visible = !target.is_empty() && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !token || !visible {
        return Err(format!("a malformed request line: {line:?}"));
    }
    if version == "HTTP/1.1" && headers.all("host").len() != 1 {
        return Err(format!("{} Host lines", headers.all("host").len()));
    }
    let framing = wire::framing(&headers)?.unwrap_or(Framing::Empty);
    if version == "HTTP/1.0" && framing == Framing::Chunked {
        return Err("a transfer coding in HTTP/1.0".into());
    }
    Ok(Head {
        method: method.to_owned(),
        target: target.to_owned(),
        version: version.to_owned(),
        framing,
        headers,
        raw: raw.clone(),
        at: Instant::now(),
    })
}
