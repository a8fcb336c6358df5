//! Pingora's proxy around our hooks, with connections to engines of our own making.
//!
//! A proxy whose connector is not Pingora's is only to be had as the application of one of
//! Pingora's services, which shows it to us along with each connection it accepts. Our listeners
//! accept by themselves, so the service is run for one connection, which is our own and carries
//! nothing.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::IntoRawFd as _;
use std::sync::Arc;
use std::thread;

use pingora_core::apps::HttpServerOptions;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{Fds, ListenFds};
use pingora_core::services::Service as _;
use pingora_proxy::{HttpProxy, ProxyServiceBuilder};
use tokio::runtime;
use tokio::sync::{mpsc, watch};

use crate::proxy::{EngineConnections, Router};

/// What requests are handed to.
pub type Proxy = HttpProxy<Router, EngineConnections>;

/// Makes it.
///
/// # Errors
/// There is no loopback interface, or a thread cannot be started.
pub(super) fn proxy(conf: ServerConf, router: Router) -> io::Result<Arc<Proxy>> {
    let (show, mut shown) = mpsc::channel(1);
    let mut options = HttpServerOptions::default();
    // Every connection is shown to us.
    options.force_custom = true;
    let mut service = ProxyServiceBuilder::new(&Arc::new(conf), router)
        .custom(
            EngineConnections,
            Arc::new(move |proxy, _connection, _shutdown| {
                // Who else connects to this port is shown in vain.
                let _ = show.try_send(proxy);
                Box::pin(std::future::ready(None))
            }),
        )
        .server_options(options)
        .build();
    let (socket, address) = listen()?;
    service.add_tcp(&address.to_string());
    let fds = listen_fds(socket, address);
    // A thread of its own, since this one may have a runtime already.
    let run = move || {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let (_never, shutdown) = watch::channel(false);
            let _ours = TcpStream::connect(address)?;
            tokio::select! {
                proxy = shown.recv() => proxy.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe)),
                () = service.start_service(Some(fds), shutdown, 1) => Err(io::ErrorKind::NotConnected.into()),
            }
        })
    };
    let thread = thread::Builder::new().name("assembly".into()).spawn(run)?;
    let broken = |_| {
        Err(io::Error::other(
            "the thread that makes the proxy has panicked",
        ))
    };
    thread.join().unwrap_or_else(broken)
}

fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let loopback: [SocketAddr; 2] = [
        (Ipv4Addr::LOCALHOST, 0).into(),
        (Ipv6Addr::LOCALHOST, 0).into(),
    ];
    let socket = TcpListener::bind(&loopback[..])?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Has Pingora take over a listening socket.
fn listen_fds(socket: TcpListener, address: SocketAddr) -> ListenFds {
    let mut fds = Fds::new();
    fds.add(address.to_string(), socket.into_raw_fd());
    Arc::new(fds.into())
}
