//! Asks an engine something on the router's own behalf, off the path of requests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use pingora_core::connectors::http::v1::Connector;
use pingora_core::protocols::http::v1::client::HttpSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_http::RequestHeader;
use tokio::time::{Instant, timeout_at};

use super::Engine;
use crate::logging;
use crate::retry::Failure;

/// The largest answer that is read.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Why an engine gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Its name has no address.
    #[error("its name could not be resolved")]
    NoAddress,
    /// None of its addresses took the connection.
    #[error("it could not be connected to: {0}")]
    Refused(Box<pingora_core::Error>),
    /// No connection in time.
    #[error("it took no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// No whole answer in time.
    #[error("it did not answer within {0:?}")]
    Timeout(Duration),
    /// The connection broke, or what came over it is no HTTP.
    #[error("its answer broke off or is no HTTP: {}", logging::Failure(.0))]
    Broken(#[from] Box<pingora_core::Error>),
    /// The answer is larger than any honest one.
    #[error("its answer is larger than {MAX_ANSWER} bytes")]
    TooLarge,
}

impl AskError {
    /// The kind of failure, where there was no connection.
    pub fn connect_failure(&self) -> Option<Failure> {
        match self {
            Self::NoAddress | Self::Refused(_) => Some(Failure::Connect),
            Self::ConnectTimeout(_) => Some(Failure::ConnectTimeout),
            Self::Timeout(_) | Self::Broken(_) | Self::TooLarge => None,
        }
    }
}

/// A request of the router's own.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Path and query, below the engine's prefix.
    pub target: &'a str,
    /// The whole value of `Authorization`.
    pub authorization: Option<&'a [u8]>,
    /// The whole value of `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// The body; empty for none.
    pub body: &'a [u8],
}

/// Sends requests to engines, each once and on a connection of its own.
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
        let question = Question {
            method: &Method::GET,
            target: path,
            authorization,
            content_type: None,
            body: &[],
        };
        self.send(engine, &question).await
    }

    /// The status and body of the answer to `question`. It is sent once: another address of the
    /// engine is tried only where the connect failed.
    ///
    /// # Errors
    /// There was no whole answer; the engine may have heard the question all the same.
    pub async fn send(
        &self,
        engine: &Engine,
        question: &Question<'_>,
    ) -> Result<(u16, Bytes), AskError> {
        let deadline = Instant::now() + self.limit;
        let session = timeout_at(deadline, self.connect(engine)).await;
        let session = session.map_err(|_| AskError::ConnectTimeout(self.limit))??;
        let answer = timeout_at(deadline, ask(session, engine, question)).await;
        answer.map_err(|_| AskError::Timeout(self.limit))?
    }

    /// Connects to the first of the engine's addresses that accepts.
    async fn connect(&self, engine: &Engine) -> Result<HttpSession, AskError> {
        let mut last = AskError::NoAddress;
        for address in engine.addresses_to_try() {
            let peer = HttpPeer::new(address, false, String::new());
            match self.connector.get_http_session(&peer).await {
                Ok((session, _)) => return Ok(session),
                Err(error) => last = AskError::Refused(error),
            }
        }
        Err(last)
    }
}

async fn ask(
    mut session: HttpSession,
    engine: &Engine,
    question: &Question<'_>,
) -> Result<(u16, Bytes), AskError> {
    let request = head(engine, question)?;
    session.write_request_header(Box::new(request)).await?;
    if !question.body.is_empty() {
        session.write_body(question.body).await?;
    }
    session.finish_body().await?;
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

fn head(engine: &Engine, question: &Question<'_>) -> Result<RequestHeader, AskError> {
    let target = format!("{}{}", engine.url().prefix(), question.target);
    let mut head = RequestHeader::build(question.method.as_str(), target.as_bytes(), Some(5))?;
    head.insert_header(HOST, engine.url().authority())?;
    head.insert_header(CONNECTION, "close")?;
    let values = [
        (AUTHORIZATION, question.authorization),
        (CONTENT_TYPE, question.content_type),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            head.insert_header(name, value)?;
        }
    }
    if question.method != Method::GET {
        head.insert_header(CONTENT_LENGTH, question.body.len())?;
    }
    Ok(head)
}
