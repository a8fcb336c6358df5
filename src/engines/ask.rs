//! Asks an engine something on the router's own behalf, off the path of requests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, HOST};
use pingora_core::connectors::http::v1::Connector;
use pingora_core::protocols::http::v1::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;

use super::Engine;

/// The largest answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why an engine gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its name has no address.
    #[error("its name could not be resolved")]
    NoAddress,
    /// No whole answer in time.
    #[error("it did not answer within {0:?}")]
    Timeout(Duration),
    /// The connection failed or broke.
    #[error("{0}")]
    Broken(#[from] Box<pingora_core::Error>),
    /// The answer is larger than any honest one.
    #[error("its answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
}

/// Sends `GET` requests to engines, each on a connection of its own.
pub struct Asker {
    connector: Connector,
    limit: Duration,
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Asker {
    /// Asks with `limit` for each whole answer, connecting included.
    pub fn new(limit: Duration) -> Self {
        Self {
            connector: Connector::new(None),
            limit,
        }
    }

    /// The status and body of `GET path` below the engine's prefix; `authorization` is the whole
    /// value of that header.
    ///
    /// # Errors
    /// There was no whole answer.
    pub async fn get(
        &self,
        engine: &Engine,
        path: &str,
        authorization: Option<&[u8]>,
    ) -> Result<(u16, Bytes), AskError> {
        let ask = self.ask(engine, path, authorization);
        match tokio::time::timeout(self.limit, ask).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::Timeout(self.limit)),
        }
    }

    async fn ask(
        &self,
        engine: &Engine,
        path: &str,
        authorization: Option<&[u8]>,
    ) -> Result<(u16, Bytes), AskError> {
        let mut session = self.connect(engine).await?;
        let target = format!("{}{path}", engine.url().prefix());
        let mut request = RequestHeader::build("GET", target.as_bytes(), Some(3))?;
        request.insert_header(HOST, engine.url().authority())?;
        request.insert_header(http::header::CONNECTION, "close")?;
        if let Some(value) = authorization {
            request.insert_header(AUTHORIZATION, value)?;
        }
        session.write_request_header(Box::new(request)).await?;
        session.read_response().await?;
        while session
            .get_status()
            .is_some_and(|status| status.is_informational())
        {
            session.read_response().await?;
        }
        let status = session.get_status().map_or(0, |status| status.as_u16());
        let mut body = BytesMut::new();
        while let Some(data) = session.read_body_bytes().await? {
            body.extend_from_slice(&data);
            if body.len() > MAX_ANSWER {
                return Err(AskError::TooLarge);
            }
        }
        Ok((status, body.freeze()))
    }

    /// Connects to the first of the engine's addresses that accepts.
    async fn connect(&self, engine: &Engine) -> Result<HttpSession, AskError> {
        let mut last = AskError::NoAddress;
        for address in engine.addresses_to_try() {
            let peer = HttpPeer::new(address, false, String::new());
            match self.connector.get_http_session(&peer).await {
                Ok((session, _)) => return Ok(session),
                Err(error) => last = error.into(),
            }
        }
        Err(last)
    }
}
