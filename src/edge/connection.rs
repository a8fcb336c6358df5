//! A client's connection, from accept to close.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::BytesMut;
use pingora_core::apps::{HttpServerApp as _, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::server::ShutdownWatch;
use pingora_proxy::{HttpProxy, ProxyHttp};
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::buffered::{Buffered, Share};
use super::closing::{LINGER, LINGER_BRIEFLY, asks_for_head, linger, to_wire};
use super::collect::hide_body;
use super::exchange::{Client, Exchange, Patience};
use super::flushed::Flushed;
use super::h2::H2;
use super::head::{self, Head};
use super::intake::Intake;
use super::quota::Quota;
use super::scratch::append;
use super::session::ClientSession;
use super::stream::{ClientStream, Gate};
use super::upload_time::UploadTime;
use super::wishes::{asks_for_websocket, asks_to_close};
use crate::api_error::ApiError;
use crate::logging::Failure;

/// What an HTTP/2 client with prior knowledge sends first (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client's connection may do, and how requests on it are treated.
#[derive(Clone, Debug)]
pub struct EdgeOptions {
    /// From the first byte of a request head to its last.
    pub header_timeout: Duration,
    /// The longest silence while a request body is read.
    pub body_timeout: Duration,
    /// The least bytes per second of a request body, beside one such silence.
    pub body_min_rate: Option<NonZeroU32>,
    /// The longest time in which a client takes nothing of an answer; `None` is no limit.
    pub send_timeout: Option<Duration>,
    /// Most bytes of request bodies that are kept, of all clients together.
    pub max_buffered: Option<NonZeroUsize>,
    /// How long a connection may stay open without a request.
    pub client_keepalive: Duration,
    /// Most connections one client address may have open.
    pub max_per_client: Option<NonZeroUsize>,
    /// Whether HTTP/2 with prior knowledge is accepted.
    pub h2c: bool,
    /// Whether the response head waits for the first body byte, so that an engine that dies
    /// before it can still be replaced.
    pub hold_head: bool,
    /// How long engines may be silent.
    pub patience: Patience,
}

/// Is told of the requests that are refused before they have a session, and gives each the id it
/// is logged with.
pub type OnRefusal = Box<dyn Fn(&ApiError, Option<SocketAddr>) -> String + Send + Sync>;

/// The application behind a public listener: reads requests and hands them to Pingora's proxy.
pub struct Edge<P> {
    proxy: Arc<HttpProxy<P>>,
    quota: Arc<Quota>,
    buffered: Arc<Buffered>,
    options: ArcSwap<EdgeOptions>,
    /// Whether clients are to go elsewhere for their next request.
    closing: ShutdownWatch,
    on_refusal: OnRefusal,
}

impl<P> std::fmt::Debug for Edge<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<P> Edge<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    /// Serves requests through `proxy`. Once `closing` is true, answers close their connection.
    pub fn new(
        proxy: HttpProxy<P>,
        options: EdgeOptions,
        closing: ShutdownWatch,
        on_refusal: OnRefusal,
    ) -> Self {
        Self {
            proxy: Arc::new(proxy),
            quota: Arc::default(),
            buffered: Arc::default(),
            options: ArcSwap::from_pointee(options),
            closing,
            on_refusal,
        }
    }

    /// Treats clients like this from their next request on.
    pub fn set_options(&self, options: EdgeOptions) {
        self.options.store(Arc::new(options));
    }

    /// The count of the request bodies that are kept.
    pub fn buffered(&self) -> Arc<Buffered> {
        Arc::clone(&self.buffered)
    }

    /// Most bytes of them that are kept now, if there is a limit.
    pub fn max_buffered(&self) -> Option<NonZeroUsize> {
        self.options.load().max_buffered
    }

    /// Serves one request whose head has been read, and returns its session, and whether the
    /// response was sent in full.
    pub(super) async fn serve(
        &self,
        mut session: Box<ServerSession>,
        client: &Client,
        shutdown: &ShutdownWatch,
    ) -> Option<(Box<ServerSession>, bool)> {
        // Timed by the wrapper, on HTTP/2 too.
        session.set_read_timeout(None);
        let options = self.options.load_full();
        let exchange = Arc::new(Exchange::new(
            client.clone(),
            options.patience,
            options.hold_head,
        ));
        let time = UploadTime::new(options.body_timeout, options.body_min_rate);
        let intake = Intake::new(time, Share::new(self.buffered(), options.max_buffered));
        let send_timeout = options.send_timeout.filter(|_| client.gate.is_none());
        let (shared, closing) = (Arc::clone(&exchange), self.closing.clone());
        let wrapped = ClientSession::new(session, shared, closing, intake, send_timeout);
        let wrapped = ServerSession::new_custom(Box::new(wrapped));
        Arc::clone(&exchange)
            .scope(self.proxy.process_new_http(wrapped, shutdown))
            .await;
        exchange.take_back()
    }

    /// Serves HTTP/1 requests one after the other until the connection ends.
    async fn serve_h1(
        &self,
        stream: Stream,
        mut early: BytesMut,
        mut client: Client,
        shutdown: &ShutdownWatch,
    ) {
        let gate = Arc::new(Gate::new(stream, self.options.load().send_timeout));
        let mut stream: Stream = Box::new(ClientStream::new(Arc::clone(&gate)));
        client.gate = Some(Arc::clone(&gate));
        loop {
            if early.is_empty() && !self.await_request(&mut stream, &mut early, shutdown).await {
                return;
            }
            let head = match self.read_head(&mut stream, &mut early).await {
                Ok(Some(head)) => head,
                Ok(None) => return,
                Err(refusal) => {
                    let refusal = (&refusal, asks_for_head(&early));
                    return self.refuse(stream, refusal, client.address, LINGER).await;
                }
            };
            let rest = early.split_off(head.length);
            let head_only = asks_for_head(&early);
            gate.begin(head.body, rest, self.options.load().send_timeout);
            // It is large, and handed on many times.
            let mut session = Box::new(ServerSession::new_http1(stream));
            session.set_pipelined_prefix(std::mem::take(&mut early));
            let mut read = session.read_request().await.map(|_| ());
            if let (Ok(()), Some(length)) = (&read, gate.length_to_come()) {
                read = hide_body(&mut session, length);
            }
            if let Err(error) = read {
                log::debug!("a request head was refused: {}", Failure(&error));
                let refusal = ApiError::invalid_request("the request head is malformed");
                gate.open();
                if let Some(stream) = into_stream(session) {
                    let refusal = (&refusal, head_only);
                    self.refuse(stream, refusal, client.address, LINGER).await;
                }
                return;
            }
            let leaves_http = asks_for_websocket(session.req_header());
            if leaves_http || asks_to_close(session.req_header()) {
                // The answer says so, should an engine decline to leave HTTP.
                session.set_keepalive(None);
            }
            let Some((session, true)) = self.serve(session, &client, shutdown).await else {
                return;
            };
            if !gate.ended() || leaves_http {
                // What comes behind is the rest of the body, or another protocol.
                gate.open();
                if let Some(stream) = into_stream(session) {
                    linger(stream, LINGER).await;
                }
                return;
            }
            let Ok(Some(reusable)) = session.finish().await else {
                return;
            };
            (stream, _) = reusable.into_parts();
            early = gate.take_ahead();
        }
    }

    /// Answers a request that has no session, by a head only where that was asked for, and closes;
    /// the client is heard for this long.
    async fn refuse(
        &self,
        mut stream: Stream,
        (refusal, head_only): (&ApiError, bool),
        client: Option<SocketAddr>,
        longest: Duration,
    ) {
        let id = self.refused(refusal, client);
        let wire = to_wire(refusal, &id, head_only);
        if stream.write_all(&wire).await.is_ok() && stream.flush().await.is_ok() {
            linger(stream, longest).await;
        }
    }

    /// Tells of a request that is refused before it has a session, and gives its id.
    pub(super) fn refused(&self, refusal: &ApiError, client: Option<SocketAddr>) -> String {
        (self.on_refusal)(refusal, client)
    }

    /// Reads a request head within its time; `None` when none will come.
    async fn read_head(
        &self,
        stream: &mut Stream,
        early: &mut BytesMut,
    ) -> Result<Option<Head>, ApiError> {
        let limit = self.options.load().header_timeout;
        match timeout(limit, head::read(stream, early)).await {
            Ok(head) => head,
            Err(_) => Err(ApiError::request_timeout(
                "the request head did not arrive in time",
            )),
        }
    }

    /// Whether the connection opens with the preface of HTTP/2; reads as much as that takes.
    async fn is_h2(&self, stream: &mut Stream, early: &mut BytesMut) -> bool {
        let preface = async {
            while early.len() < H2_PREFACE.len() && H2_PREFACE.starts_with(early) {
                if append(stream, early).await.unwrap_or(0) == 0 {
                    break;
                }
            }
        };
        let limit = self.options.load().header_timeout;
        let _ = timeout(limit, preface).await;
        early.starts_with(H2_PREFACE)
    }

    /// Waits for the first byte of a request; `false` when none will come.
    async fn await_request(
        &self,
        stream: &mut Stream,
        early: &mut BytesMut,
        shutdown: &ShutdownWatch,
    ) -> bool {
        let mut shutdown = shutdown.clone();
        let limit = self.options.load().client_keepalive;
        tokio::select! {
            biased;
            read = timeout(limit, append(stream, early)) => {
                matches!(read, Ok(Ok(n)) if n > 0)
            }
            _ = shutdown.wait_for(|down| *down) => false,
        }
    }
}

fn into_stream(session: Box<ServerSession>) -> Option<Stream> {
    match *session {
        ServerSession::H1(session) => Some(session.into_inner()),
        _ => None,
    }
}

fn client_address(stream: &Stream) -> Option<SocketAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().copied()
}

#[async_trait]
impl<P> ServerApp for Edge<P>
where
    P: ProxyHttp + Send + Sync + 'static,
    P::CTX: Send + Sync,
{
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let address = client_address(&stream);
        let options = self.options.load_full();
        let _counted = match address {
            Some(address) => {
                let limit = options.max_per_client;
                let Some(counted) = self.quota.enter(address.ip(), limit) else {
                    let limit = limit.map_or(0, NonZeroUsize::get);
                    let refusal = ApiError::too_many_connections(limit);
                    // It is not counted, so it must not last.
                    self.refuse(stream, (&refusal, false), Some(address), LINGER_BRIEFLY)
                        .await;
                    return None;
                };
                Some(counted)
            }
            None => None,
        };
        let mut early = BytesMut::new();
        if !self.await_request(&mut stream, &mut early, shutdown).await {
            return None;
        }
        if options.h2c && self.is_h2(&mut stream, &mut early).await {
            // Pingora reads the preface itself.
            let mut stream = stream.into_any().downcast::<L4Stream>().ok()?;
            stream.rewind(&early);
            let stream = Flushed::new(stream);
            let (client, flushes) = (Client::new(address), stream.flushes());
            let h2 = H2::new(Arc::clone(self), client, flushes, options.client_keepalive);
            return Arc::new(h2).process_new(Box::new(stream), shutdown).await;
        }
        let client = Client::new(address);
        self.serve_h1(stream, early, client, shutdown).await;
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}
