//! The smallest proxy that can be made of Pingora: each engine in turn, and nothing else.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::server::Server;
use pingora_core::server::configuration::ServerConf;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

/// Unused connections to engines that are kept, as many as the router keeps.
const POOL_SIZE: usize = 4096;

struct InTurn {
    engines: Vec<SocketAddr>,
    next: AtomicUsize,
}

#[async_trait]
impl ProxyHttp for InTurn {
    type CTX = ();

    fn new_ctx(&self) -> Self::CTX {}

    async fn upstream_peer(&self, _: &mut Session, (): &mut ()) -> Result<Box<HttpPeer>> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let engine = self.engines[next % self.engines.len()];
        Ok(Box::new(HttpPeer::new(engine, false, String::new())))
    }
}

/// Is that proxy, until it is told to stop. The arguments are where to listen, and the engines.
pub fn serve(mut arguments: impl Iterator<Item = String>) -> ! {
    let listen = arguments.next().expect("an address");
    let engines = arguments.map(|text| text.parse().expect("an address"));
    let proxy = InTurn {
        engines: engines.collect(),
        next: AtomicUsize::new(0),
    };
    let conf = ServerConf {
        threads: 1,
        upstream_keepalive_pool_size: POOL_SIZE,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    };
    let mut server = Server::new_with_opt_and_conf(None, conf);
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, proxy);
    service.add_tcp(&listen);
    server.add_service(service);
    server.run_forever()
}
