//! The router's own figures, read from its admin port.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// One exposition.
#[derive(Clone, Debug, Default)]
pub struct Metrics(String);

impl Metrics {
    /// Asks for the figures.
    pub async fn read(admin: SocketAddr) -> io::Result<Self> {
        let ask = async {
            let mut stream = TcpStream::connect(admin).await?;
            let request = "GET /metrics HTTP/1.1\r\nhost: router\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok(Self(text))
        };
        timeout(Duration::from_secs(10), ask)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// The series of this name: labels, value.
    fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix("vllm_pingora_")?.strip_prefix(name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            (labels.is_empty() || labels.starts_with('{')).then_some(())?;
            Some((labels, value.parse().ok()?))
        })
    }

    /// The sum of all series of this name.
    pub fn sum(&self, name: &str) -> f64 {
        self.series(name).map(|(_, value)| value).sum()
    }

    /// The sums of this name by one label.
    pub fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let mut sums = BTreeMap::new();
        for (labels, value) in self.series(name) {
            let found = labels.split_once(&format!("{label}=\""));
            let word = found.and_then(|(_, rest)| rest.split('"').next());
            *sums.entry(word.unwrap_or("").to_owned()).or_insert(0.0) += value;
        }
        sums
    }

    /// Requests and attempts in flight.
    pub fn in_flight(&self) -> (f64, f64) {
        (
            self.sum("requests_in_flight"),
            self.sum("engine_requests_in_flight"),
        )
    }
}
