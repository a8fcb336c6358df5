//! A client's connection, from accept to close.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::BytesMut;
use pingora_core::apps::{HttpServerApp, ServerApp};
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::server::ShutdownWatch;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::alarm::Alarm;
use super::buffered::{Buffered, Share};
use super::client_wire::ClientWire;
use super::closing::{LINGER, LINGER_BRIEFLY, asks_for_head, linger, to_wire};
use super::exchange::{Client, Exchange, Patience, Served};
use super::flushed::Flushed;
use super::h1::H1;
use super::h2::H2;
use super::intake::Intake;
use super::quota::Quota;
use super::scratch::append;
use super::session::{ClientSession, Kept};
use super::upload_time::UploadTime;
use super::wishes::asks_for_websocket;
use crate::api_error::ApiError;

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

/// The application behind a public listener: reads requests and hands them to a proxy of Pingora's.
pub struct Edge<P> {
    proxy: Arc<P>,
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
    P: HttpServerApp + Send + Sync + 'static,
{
    /// Serves requests through `proxy`. Once `closing` is true, answers close their connection.
    pub fn new(
        proxy: Arc<P>,
        options: EdgeOptions,
        closing: ShutdownWatch,
        on_refusal: OnRefusal,
    ) -> Self {
        Self {
            proxy,
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

    /// Serves one request whose head has been read, and returns what it came on, and whether the
    /// response was sent in full.
    pub(super) async fn serve(
        &self,
        wire: ClientWire,
        client: &Client,
        shutdown: &ShutdownWatch,
    ) -> Option<(ClientWire, bool)> {
        let options = self.options.load_full();
        let exchange = Arc::new(Exchange::new(
            client.clone(),
            options.patience,
            options.hold_head,
        ));
        let time = UploadTime::new(options.body_timeout, options.body_min_rate);
        let intake = Intake::new(time, Share::new(self.buffered(), options.max_buffered));
        let send_timeout = match wire {
            // The connection knows when its client takes nothing.
            ClientWire::H1(_) => None,
            ClientWire::H2(_) => options.send_timeout,
        };
        let mut kept = Kept::new(wire, intake);
        let _served = Served(Arc::clone(&exchange));
        loop {
            let (shared, closing) = (Arc::clone(&exchange), self.closing.clone());
            let wrapped = ClientSession::new(kept, shared, closing, send_timeout);
            let wrapped = ServerSession::new_custom(Box::new(wrapped));
            Arc::clone(&exchange)
                .scope(self.proxy.process_new_http(wrapped, shutdown))
                .await;
            kept = exchange.take_back()?;
            if !exchange.goes_on() {
                return Some((kept.wire, kept.complete));
            }
            // An attempt was refused, in words that were read to their end, and Pingora takes that
            // for an answer.
        }
    }

    /// Serves HTTP/1 requests one after the other until the connection ends.
    async fn serve_h1(&self, mut h1: Box<H1>, client: Client, shutdown: &ShutdownWatch) {
        let mut idle = Alarm::default();
        loop {
            if h1.ahead().is_empty() {
                let more = h1.read_ahead();
                if !self.await_more(more, &mut idle, shutdown).await {
                    return;
                }
            }
            match self.read_head(&mut h1).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refusal) => {
                    let refusal = (&refusal, asks_for_head(h1.ahead()));
                    let Some(socket) = h1.into_socket().await else {
                        return;
                    };
                    return self.refuse(socket, refusal, client.address, LINGER).await;
                }
            }
            let leaves_http = asks_for_websocket(h1.request());
            let served = self.serve(ClientWire::H1(h1), &client, shutdown).await;
            let Some((ClientWire::H1(served), true)) = served else {
                return;
            };
            h1 = served;
            if !h1.has_ended() || leaves_http {
                // What comes behind is the rest of the body, or another protocol.
                if let Some(socket) = h1.into_socket().await {
                    linger(socket, LINGER).await;
                }
                return;
            }
            if !h1.stays() {
                h1.shutdown().await;
                return;
            }
            h1.rest();
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

    /// Reads a request head within its time; `false` when none will come.
    async fn read_head(&self, h1: &mut H1) -> Result<bool, ApiError> {
        let (limit, patience) = {
            let options = self.options.load();
            (options.header_timeout, options.send_timeout)
        };
        match timeout(limit, h1.next(patience)).await {
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
    async fn await_more(
        &self,
        read: impl Future<Output = std::io::Result<usize>>,
        idle: &mut Alarm,
        shutdown: &ShutdownWatch,
    ) -> bool {
        let mut shutdown = shutdown.clone();
        let limit = Instant::now() + self.options.load().client_keepalive;
        tokio::select! {
            biased;
            read = read => matches!(read, Ok(n) if n > 0),
            () = idle.at(limit) => false,
            _ = shutdown.wait_for(|down| *down) => false,
        }
    }
}

fn client_address(stream: &Stream) -> Option<SocketAddr> {
    let digest = stream.get_socket_digest()?;
    digest.peer_addr()?.as_inet().copied()
}

#[async_trait]
impl<P> ServerApp for Edge<P>
where
    P: HttpServerApp + Send + Sync + 'static,
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
        let first = append(&mut stream, &mut early);
        if !self
            .await_more(first, &mut Alarm::default(), shutdown)
            .await
        {
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
        // It is large, and handed on many times.
        let h1 = Box::new(H1::new(stream, early));
        self.serve_h1(h1, Client::new(address), shutdown).await;
        None
    }

    async fn cleanup(&self) {
        self.proxy.http_cleanup().await;
    }
}
