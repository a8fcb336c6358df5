//! Scripted engines: they parse no more than they must, and answer with bytes made beforehand.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::script::{self, Script};
use super::wire;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
const READ: usize = 32 << 10;

/// Several engines that play one script.
#[derive(Debug)]
pub struct Engines {
    /// Where they listen.
    pub addresses: Vec<SocketAddr>,
    stage: Arc<Stage>,
}

#[derive(Debug)]
struct Stage {
    script: Mutex<Script>,
    received: AtomicU64,
    /// Events a held stream has said when it has said all; the last value ends it.
    said: watch::Sender<u64>,
    answer: Vec<u8>,
    refusal: Vec<u8>,
    event: Vec<u8>,
    done: Vec<u8>,
}

impl Engines {
    /// Starts `count` of them on ports of their own, in the background of the runtime.
    pub fn start(count: usize) -> io::Result<Self> {
        let stage = Arc::new(Stage {
            script: Mutex::new(Script::Answer),
            received: AtomicU64::new(0),
            said: watch::Sender::new(1),
            answer: script::answer(),
            refusal: script::refusal(),
            event: script::event(),
            done: script::done(),
        });
        let mut addresses = Vec::new();
        for _ in 0..count {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
            let listener = socket.listen(BACKLOG)?;
            addresses.push(listener.local_addr()?);
            tokio::spawn(accept(listener, Arc::clone(&stage)));
        }
        Ok(Self { addresses, stage })
    }

    /// What requests that come from now on get.
    pub fn play(&self, script: Script) {
        let mut now = self.stage.script.lock().expect("no panic");
        if script == Script::Hold {
            self.stage.said.send_replace(1);
        }
        *now = script;
    }

    /// Inference requests received so far.
    pub fn received(&self) -> u64 {
        self.stage.received.load(Ordering::Relaxed)
    }

    /// Lets every held stream say so many more events.
    pub fn say(&self, events: u64) {
        self.stage.said.send_modify(|said| *said += events);
    }

    /// Ends every held stream.
    pub fn end(&self) {
        self.stage.said.send_replace(u64::MAX);
    }
}

async fn accept(listener: TcpListener, stage: Arc<Stage>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                // A proxy that closes a connection is no news.
                let stage = Arc::clone(&stage);
                tokio::spawn(async move { serve(stream, &stage).await.unwrap_or_default() });
            }
            // No descriptors are left: those in use come back.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers one request after the other.
async fn serve(mut stream: TcpStream, stage: &Stage) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let mut filled = 0;
    loop {
        let Some((length, head)) = wire::request_head(&buffer[..filled])? else {
            let read = stream.read(&mut buffer[filled..]).await?;
            filled += read;
            if read == 0 {
                return Ok(());
            }
            continue;
        };
        let (mut body, close) = (head.framing, head.close);
        let page = (head.method != "POST").then(|| script::page(head.path));
        // What follows the body is the next request.
        let mut from = length;
        let mut ended = body.is_empty();
        while !ended {
            let (took, done) = body.take(&buffer[from..filled], |_| {})?;
            (from, ended) = (from + took, done);
            if !ended {
                (from, filled) = (0, stream.read(&mut buffer).await?);
                if filled == 0 {
                    return Ok(());
                }
            }
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
        match page {
            Some(page) => stream.write_all(&page).await?,
            None => stage.infer(&mut stream).await?,
        }
        if close {
            return stream.shutdown().await;
        }
    }
}

impl Stage {
    async fn infer(&self, stream: &mut TcpStream) -> io::Result<()> {
        let nth = self.received.fetch_add(1, Ordering::Relaxed);
        let script = *self.script.lock().expect("no panic");
        match script {
            Script::OneInFive if nth % 5 == 4 => stream.write_all(&self.refusal).await,
            Script::Answer | Script::OneInFive => stream.write_all(&self.answer).await,
            Script::Stream { events, every } => self.stream(stream, events, every).await,
            Script::Hold => self.hold(stream).await,
        }
    }

    async fn stream(&self, stream: &mut TcpStream, events: u64, every: Duration) -> io::Result<()> {
        self.begin(stream).await?;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 2..events {
            ticks.tick().await;
            stream.write_all(&self.event).await?;
        }
        ticks.tick().await;
        stream.write_all(&self.done).await
    }

    async fn hold(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut told = self.said.subscribe();
        self.begin(stream).await?;
        let mut said = 1;
        loop {
            // Cannot fail: the stage outlives its streams.
            let allowed = *told.borrow_and_update();
            if allowed == u64::MAX {
                return stream.write_all(&self.done).await;
            }
            for _ in said..allowed {
                stream.write_all(&self.event).await?;
                // One at a time, as tokens come.
                tokio::task::yield_now().await;
            }
            said = allowed;
            told.changed().await.map_err(io::Error::other)?;
        }
    }

    async fn begin(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(script::stream_head()).await?;
        stream.write_all(&self.event).await
    }
}
