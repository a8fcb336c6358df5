//! Accepts connections and hands each to an application.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::l4::stream::Stream as L4Stream;
use pingora_core::protocols::{GetSocketDigest as _, SocketDigest, Stream};
use pingora_core::server::{ListenFds, ShutdownWatch};
use pingora_core::services::Service;
use tokio::net::TcpStream;

use super::Drain;
use crate::keep_alive::{Peer, keep_alive};

/// The pause after a failed accept, most often for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket, bound before anything starts, and the application behind it.
#[derive(Debug)]
pub struct Listener<A> {
    name: &'static str,
    socket: Option<TcpListener>,
    app: Arc<A>,
    drain: Drain,
    threads: Option<usize>,
}

impl<A: ServerApp + Send + Sync + 'static> Listener<A> {
    /// Serves `app` on `socket`, which must be non-blocking, until `drain` begins.
    pub fn new(
        name: &'static str,
        socket: TcpListener,
        app: Arc<A>,
        drain: Drain,
        threads: Option<usize>,
    ) -> Self {
        Self {
            name,
            socket: Some(socket),
            app,
            drain,
            threads,
        }
    }

    /// Accepts until draining begins; connections go on by themselves.
    pub async fn serve(&mut self) {
        let socket = self.socket.take().map(tokio::net::TcpListener::from_std);
        let socket = match socket {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => return log::error!("{}: cannot accept: {error}", self.name),
            None => return,
        };
        let mut stop = self.drain.watch();
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, client)) => self.spawn(stream, client),
                Err(error) => {
                    log::error!("{}: a connection could not be accepted: {error}", self.name);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(socket);
        self.app.cleanup().await;
    }

    fn spawn(&self, stream: TcpStream, client: SocketAddr) {
        let (app, open, stop) = (
            Arc::clone(&self.app),
            self.drain.enter(),
            self.drain.watch(),
        );
        let stream = into_stream(stream, client);
        tokio::spawn(async move {
            let mut next = Some(stream);
            while let Some(stream) = next {
                next = app.process_new(stream, &stop).await;
            }
            drop(open);
        });
    }
}

/// The connection as Pingora knows it, with the addresses of its ends.
fn into_stream(stream: TcpStream, client: SocketAddr) -> Stream {
    keep_alive(&stream, Peer::Client, client);
    let digest = SocketDigest::from_raw_fd(stream.as_raw_fd());
    // Set here so that nobody asks the system later; it cannot be set already.
    let _ = digest.peer_addr.set(Some(client.into()));
    let mut stream = L4Stream::from(stream);
    if let Err(error) = stream.set_nodelay() {
        log::debug!("{client}: {error}");
    }
    stream.set_socket_digest(digest);
    Box::new(stream)
}

#[async_trait]
impl<A: ServerApp + Send + Sync + 'static> Service for Listener<A> {
    async fn start_service(
        &mut self,
        _fds: Option<ListenFds>,
        _shutdown: ShutdownWatch,
        _listeners: usize,
    ) {
        self.serve().await;
    }

    fn name(&self) -> &str {
        self.name
    }

    fn threads(&self) -> Option<usize> {
        self.threads
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use crate::keep_alive::tests::{CLIENTS, settings};

    #[tokio::test]
    async fn a_client_that_vanishes_is_noticed_by_its_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, client) = listener.accept().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let same_socket = accepted.try_clone().unwrap();
        let _stream = into_stream(TcpStream::from_std(accepted).unwrap(), client);
        assert_eq!(settings(&same_socket), Ok(CLIENTS));
    }
}
