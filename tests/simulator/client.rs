//! A client that sees every byte, and the engine it talks to.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use vllm_pingora::simulator::{Behaviour, RunningSimulator, Simulator, SimulatorConfig};

/// Longer than any wait in these tests; reached only when something hangs.
const GUARD: Duration = Duration::from_secs(20);

/// An engine with this behaviour and the models `tiny` and `other`.
pub(crate) async fn engine(behaviour: &Value) -> RunningSimulator {
    engine_with(behaviour, |_| {}).await
}

pub(crate) async fn engine_with(
    behaviour: &Value,
    set: impl FnOnce(&mut SimulatorConfig),
) -> RunningSimulator {
    let mut config = SimulatorConfig {
        models: vec!["tiny".to_owned(), "other".to_owned()],
        behaviour: Behaviour::default().changed(behaviour).unwrap(),
        ..SimulatorConfig::default()
    };
    set(&mut config);
    Simulator::bind(config).await.unwrap().spawn()
}

/// Waits until `holds` is true.
pub(crate) async fn eventually(holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(GUARD, wait)
        .await
        .expect("it never came true");
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Closed,
    Reset,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .text
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// An answer read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.status
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    seen: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(engine: &RunningSimulator) -> Self {
        Self::to(engine.local_addr()).await
    }

    async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            seen: Vec::new(),
        }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: e\r\n\r\n").as_bytes())
            .await;
        self.answer().await
    }

    pub(crate) async fn start_post(&mut self, path: &str, body: &str, headers: &str) {
        let length = body.len();
        let text = format!(
            "POST {path} HTTP/1.1\r\nhost: e\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n{headers}\r\n{body}"
        );
        self.send(text.as_bytes()).await;
    }

    pub(crate) async fn post(&mut self, path: &str, body: &Value) -> Answer {
        self.start_post(path, &body.to_string(), "").await;
        self.answer().await
    }

    /// A completion that is not a stream.
    pub(crate) async fn complete(&mut self) -> Answer {
        self.post("/v1/completions", &json!({"prompt": "hi"})).await
    }

    pub(crate) async fn start_stream(&mut self) {
        let body = json!({"prompt": "hi", "stream": true}).to_string();
        self.start_post("/v1/completions", &body, "").await;
    }

    /// Reads more bytes.
    async fn more(&mut self) -> Result<(), Cut> {
        let read = tokio::time::timeout(GUARD, self.stream.read_buf(&mut self.seen));
        match read.await.expect("the engine fell silent") {
            Ok(0) => Err(Cut::Closed),
            Ok(_) => Ok(()),
            Err(_) => Err(Cut::Reset),
        }
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>, Cut> {
        while self.seen.len() < length {
            self.more().await?;
        }
        Ok(self.seen.drain(..length).collect())
    }

    async fn take_through(&mut self, end: &[u8]) -> Result<String, Cut> {
        loop {
            if let Some(at) = self.seen.windows(end.len()).position(|part| part == end) {
                let bytes = self.take(at + end.len()).await?;
                return Ok(String::from_utf8(bytes).unwrap());
            }
            self.more().await?;
        }
    }

    pub(crate) async fn try_head(&mut self) -> Result<Head, Cut> {
        let text = self.take_through(b"\r\n\r\n").await?;
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        Ok(Head { status, text })
    }

    pub(crate) async fn head(&mut self) -> Head {
        self.try_head().await.unwrap()
    }

    /// The next HTTP chunk; empty at the end of a stream.
    pub(crate) async fn chunk(&mut self) -> Result<String, Cut> {
        let line = self.take_through(b"\r\n").await?;
        let length = usize::from_str_radix(line.trim(), 16).unwrap();
        let bytes = self.take(length + 2).await?;
        Ok(String::from_utf8(bytes[..length].to_vec()).unwrap())
    }

    /// All chunks up to the end of the stream, or how it was cut.
    pub(crate) async fn chunks(&mut self) -> (Vec<String>, Option<Cut>) {
        let mut chunks = Vec::new();
        loop {
            match self.chunk().await {
                Ok(chunk) if chunk.is_empty() => return (chunks, None),
                Ok(chunk) => chunks.push(chunk),
                Err(cut) => return (chunks, Some(cut)),
            }
        }
    }

    pub(crate) async fn try_answer(&mut self) -> Result<Answer, Cut> {
        let head = self.try_head().await?;
        let length = head
            .header("content-length")
            .map_or(0, |it| it.parse().unwrap());
        let body = String::from_utf8(self.take(length).await?).unwrap();
        Ok(Answer { head, body })
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.unwrap()
    }

    /// How the connection ends, when nothing more is expected on it.
    pub(crate) async fn cut(&mut self) -> Cut {
        match self.more().await {
            Ok(()) => panic!("more bytes: {:?}", String::from_utf8_lossy(&self.seen)),
            Err(cut) => cut,
        }
    }
}
