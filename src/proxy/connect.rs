//! Connects to an engine, at whichever of its addresses accepts.

use std::io;
use std::net;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::connectors::http::custom::{Connection, Connector};
use pingora_core::connectors::l4::Connect;
use pingora_core::protocols::ALPN;
use pingora_core::protocols::l4::socket::SocketAddr;
use pingora_core::protocols::l4::stream::Stream;
use pingora_core::protocols::l4::virt::VirtualSocketStream;
use pingora_core::protocols::tls::CustomALPN;
use pingora_core::upstreams::peer::Peer as Upstream;
use pingora_core::{Error, ErrorType, Result};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::dial::Dial;
use super::engine_socket::EngineSocket;
use super::upload::UploadSocket;
use crate::engines::Engine;
use crate::keep_alive::{Peer, keep_alive};

/// Makes the connections to engines: Pingora speaks HTTP/1.1 on them and pools them as it does its
/// own.
#[derive(Debug)]
pub struct EngineConnections;

/// Not a protocol that is spoken: by it Pingora knows the peers whose connections are ours, and
/// asks for one where its pool has none.
const PROTOCOL: &[u8] = b"engine";

/// What a peer says for its connections to be ours.
pub(super) fn protocol() -> ALPN {
    ALPN::Custom(CustomALPN::new(PROTOCOL.to_vec()))
}

#[async_trait]
impl Connector for EngineConnections {
    // That is for other protocols than HTTP/1.1, so none is ever made.
    type Session = ();

    async fn get_http_session<P: Upstream + Send + Sync + 'static>(
        &self,
        peer: &P,
    ) -> Result<(Connection<()>, bool)> {
        let options = peer.get_peer_options();
        let Some(connector) = options.and_then(|options| options.custom_l4.as_ref()) else {
            return Err(Error::new_in(ErrorType::InternalError));
        };
        let stream = connector.connect(peer.address()).await?;
        let stream = Box::new(EngineSocket::new(stream));
        Ok((Connection::Stream(stream), false))
    }

    async fn reused_http_session<P: Upstream + Send + Sync + 'static>(
        &self,
        _peer: &P,
    ) -> Option<()> {
        None
    }

    async fn release_http_session<P: Upstream + Send + Sync + 'static>(
        &self,
        (): (),
        _peer: &P,
        _idle_timeout: Option<Duration>,
    ) {
    }
}

/// Opens a connection to one engine for one attempt.
///
/// Pingora's own connect knows one address and does not watch the client. This one tries each of
/// the engine's addresses within one limit, and lets the client be watched over by [`Dial`].
#[derive(Debug)]
pub(super) struct EngineConnector {
    way: Way,
    dial: Dial,
}

/// How an engine is connected to.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) engine: Arc<Engine>,
    /// Whether a large body will go over the connection.
    pub(super) upload: bool,
    /// For all addresses together.
    pub(super) limit: Duration,
}

impl EngineConnector {
    pub(super) fn new(way: Way) -> Self {
        let dial = Dial::default();
        Self { way, dial }
    }

    /// Waits for the end of a connect that goes on.
    pub(super) async fn finish(&self) {
        self.dial.finish().await;
    }

    /// Lets go of what came of it, where that is not used.
    pub(super) fn let_go(&self) {
        self.dial.let_go();
    }
}

impl Way {
    fn wrapped(&self, stream: TcpStream) -> Stream {
        if self.upload {
            let socket = Box::new(UploadSocket::new(stream));
            VirtualSocketStream::new(socket).into()
        } else {
            stream.into()
        }
    }

    /// Tries the addresses one after the other. Each gets an equal share of the time that is
    /// left, so that a silent one does not use up all of it.
    async fn first_that_accepts(self) -> Result<Stream> {
        let addresses = self.engine.addresses_to_try();
        let deadline = Instant::now() + self.limit;
        let mut last = Error::new_up(ErrorType::ConnectNoRoute);
        let mut refused = 0;
        for (nth, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - nth).unwrap_or(1);
            last = match timeout(share, open(*address)).await {
                Ok(Ok(stream)) => {
                    self.engine.connected(*address);
                    return Ok(self.wrapped(stream));
                }
                Ok(Err(cause)) => {
                    refused += usize::from(cause.kind() == io::ErrorKind::ConnectionRefused);
                    Error::because(ErrorType::ConnectError, "connecting", cause)
                }
                Err(_) => Error::new_up(ErrorType::ConnectTimedout),
            };
        }
        if refused > 0 && refused == addresses.len() {
            // Nobody listens, so its process is gone, and with it what it had cached. This is said
            // of every refusal: the request that was refused was just taken note of, too.
            self.engine.restarted();
        }
        Err(last)
    }
}

#[async_trait]
impl Connect for EngineConnector {
    async fn connect(&self, _address: &SocketAddr) -> Result<Stream> {
        let begin = || self.way.clone().first_that_accepts();
        self.dial.outcome(begin).await
    }
}

async fn open(address: net::SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    keep_alive(&stream, Peer::Engine, address);
    Ok(stream)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::keep_alive::tests::{ENGINES, settings};

    #[tokio::test]
    async fn an_engine_that_vanishes_is_noticed_by_its_socket() {
        let engine = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = open(engine.local_addr().unwrap()).await.unwrap();
        assert_eq!(settings(&stream), Ok(ENGINES));
    }
}
