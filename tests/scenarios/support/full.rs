//! An address that takes no connection and refuses none: its queue of connections is full.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;

/// A listener that never accepts, with as many connections in its queue as fit.
pub struct Full {
    addr: SocketAddr,
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Full {
    #[expect(clippy::unused_async, reason = "needs a runtime all the same")]
    pub async fn listen() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap().into_std().unwrap();
        let addr = listener.local_addr().unwrap();
        let mut queued = vec![];
        while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(50)) {
            queued.push(stream);
            assert!(queued.len() < 1000, "the queue of connections has no end");
        }
        Self {
            addr,
            _listener: listener,
            _queued: queued,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}
