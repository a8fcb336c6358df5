//! HTTP/2 with prior knowledge: Pingora accepts the streams, each is served as a request.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Method;
use pingora_core::Result;
use pingora_core::apps::{HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use pingora_http::ResponseHeader;
use tokio::time::timeout;

use super::client_wire::ClientWire;
use super::closing::fields;
use super::connection::Edge;
use super::exchange::Client;
use super::flushed::Flushes;
use super::head::METHODS;
use crate::api_error::ApiError;
use crate::logging::Failure;

/// How long a response that was cut may take to leave for the client before its stream is reset,
/// which takes the rest away from it.
const RESET_AT_LATEST: Duration = Duration::from_secs(5);

/// The HTTP/2 side of an [`Edge`]: Pingora accepts the streams, each is served as a request.
pub(super) struct H2<P> {
    edge: Arc<Edge<P>>,
    client: Client,
    flushes: Flushes,
    options: HttpServerOptions,
}

impl<P> H2<P> {
    /// A connection of `client`, on a socket with these flushes, that may be without a stream for
    /// this long.
    pub(super) fn new(
        edge: Arc<Edge<P>>,
        client: Client,
        flushes: Flushes,
        keepalive: Duration,
    ) -> Self {
        let mut options = HttpServerOptions::default();
        options.h2c = true;
        options.h2_idle_timeout = Some(keepalive);
        Self {
            edge,
            client,
            flushes,
            options,
        }
    }

    /// Waits until all that was written to a stream has left. Its last frame may have done so
    /// already, and then nothing is flushed any more; so an empty one is sent behind it. A flush may
    /// be about to end that knows of neither; so it is done twice.
    async fn has_left(&self, session: &mut ServerSession) {
        let ServerSession::H2(stream) = session else {
            return;
        };
        let left = async {
            for _ in 0..2 {
                let seen = self.flushes.count();
                if stream.write_body(Bytes::new(), false).await.is_err() {
                    return;
                }
                self.flushes.more_than(seen).await;
            }
        };
        let _ = timeout(RESET_AT_LATEST, left).await;
    }
}

impl<P> H2<P>
where
    P: HttpServerApp + Send + Sync + 'static,
{
    async fn refuse_connect(&self, mut session: ServerSession) -> Result<()> {
        let refusal = ApiError::method_not_allowed("CONNECT", METHODS);
        let id = self.edge.refused(&refusal, self.client.address);
        let body = refusal.body();
        let mut head = ResponseHeader::build(refusal.status(), Some(4))?;
        for (name, value) in fields(&refusal, &id, body.len()) {
            head.insert_header(name, value)?;
        }
        session.write_response_header(Box::new(head)).await?;
        session.write_response_body(body, true).await
    }
}

#[async_trait]
impl<P> HttpServerApp for H2<P>
where
    P: HttpServerApp + Send + Sync + 'static,
{
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if session.req_header().method == Method::CONNECT {
            // Pingora's proxy would answer this in a shape of its own, and tell nobody.
            if let Err(error) = self.refuse_connect(session).await {
                log::debug!("a refusal could not be sent: {}", Failure(&error));
            }
            return None;
        }
        // It is timed by the wrapper.
        session.set_read_timeout(None);
        let stream = ClientWire::H2(Box::new(session));
        let served = self.edge.serve(stream, &self.client, shutdown).await;
        if let Some((ClientWire::H2(mut stream), false)) = served {
            self.has_left(&mut stream).await;
            stream.shutdown().await;
        }
        None
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}
