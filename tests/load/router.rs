//! The real router, in the test's own runtime, on a port of its own.

use std::fmt::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use vllm_pingora::config::Settings;
use vllm_pingora::engines::Fleet;
use vllm_pingora::metrics::Metrics;
use vllm_pingora::server::{Drain, Listener, Parts};

/// A running router; it ends with the runtime.
pub(crate) struct Router {
    addr: SocketAddr,
    fleet: Arc<Fleet>,
    metrics: Metrics,
}

impl Router {
    /// Starts a router with these settings over engines that serve the model `m`.
    pub(crate) async fn start(
        settings: &str,
        engines: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let mut yaml = format!("{settings}engines:\n");
        for engine in engines {
            writeln!(yaml, "  - {{url: \"http://{engine}\", models: [m]}}").unwrap();
        }
        let settings = Settings::from_yaml(&yaml).unwrap_or_else(|error| panic!("{error}"));
        let drain = Drain::default();
        let parts = Parts::new(&settings, &drain).unwrap();
        parts.upkeep.round().await;
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let router = Self {
            addr: socket.local_addr().unwrap(),
            fleet: Arc::clone(&parts.admin.fleet),
            metrics: parts.admin.metrics.clone(),
        };
        let mut listener = Listener::new("public", socket, parts.edge, drain, None);
        tokio::spawn(async move { listener.serve().await });
        router
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The sum over all series `vllm_pingora_NAME` that carry all of these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let text = String::from_utf8(self.metrics.expose(&self.fleet)).unwrap();
        let labels: Vec<_> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
        text.lines()
            .filter_map(|line| {
                let rest = line.strip_prefix("vllm_pingora_")?.strip_prefix(name)?;
                let fits = rest.starts_with(['{', ' '])
                    && labels.iter().all(|label| rest.contains(label.as_str()));
                let (_, value) = rest.rsplit_once(' ')?;
                fits.then(|| value.parse::<u64>().unwrap())
            })
            .sum()
    }

    /// Waits until no request is in flight: one is counted a little after its last byte.
    pub(crate) async fn idle(&self) {
        while self.sum("requests_in_flight", &[]) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
