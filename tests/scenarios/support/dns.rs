//! A DNS server that says what a test tells it to, over UDP and TCP on one port.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use hickory_resolver::proto::op::{Message, OpCode, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{PATIENCE, within};

/// How the server treats questions for one name.
#[derive(Clone, Debug)]
pub enum Zone {
    /// Answers with what fits of these records; with none of them, that there are none.
    Records(Vec<(u32, RData)>),
    /// The same, but over UDP only that the answer does not fit.
    OverTcp(Vec<(u32, RData)>),
    /// Answers with this code.
    Code(ResponseCode),
    /// Does not answer.
    Silent,
}

/// Addresses, all with the same time to live in seconds.
pub fn addresses(ttl: u32, ips: &[&str]) -> Zone {
    let record = |ip: &&str| match ip.parse().expect("an address") {
        IpAddr::V4(ip) => (ttl, RData::A(A(ip))),
        IpAddr::V6(ip) => (ttl, RData::AAAA(AAAA(ip))),
    };
    Zone::Records(ips.iter().map(record).collect())
}

/// Services: priority, weight, port and target each, all with the same time to live in seconds.
pub fn services(ttl: u32, records: &[(u16, u16, u16, &str)]) -> Vec<(u32, RData)> {
    let record = |(priority, weight, port, target): &(u16, u16, u16, &str)| {
        let target = Name::from_ascii(target).expect("a name");
        (ttl, RData::SRV(SRV::new(*priority, *weight, *port, target)))
    };
    records.iter().map(record).collect()
}

#[derive(Default)]
struct Shared {
    zones: Mutex<HashMap<String, Zone>>,
    asked: Mutex<Vec<(String, RecordType, Instant)>>,
    changes: watch::Sender<()>,
}

/// A DNS server of the test's own. A name it was told nothing of does not exist.
pub struct DnsServer {
    addr: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

impl DnsServer {
    pub async fn start() -> Self {
        let (udp, tcp) = bind().await;
        let addr = udp.local_addr().unwrap();
        let shared: Arc<Shared> = Arc::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_udp(udp, Arc::clone(&shared)));
        tasks.spawn(serve_tcp(tcp, Arc::clone(&shared)));
        Self {
            addr,
            shared,
            _tasks: tasks,
        }
    }

    /// The settings that make a router ask this server.
    pub fn settings(&self) -> String {
        format!("dns_servers: [\"{}\"]\n", self.addr)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// From now on `name`, which ends in a dot, is treated like this.
    pub fn set(&self, name: &str, zone: Zone) {
        assert!(name.ends_with('.'), "{name}");
        let mut zones = self.shared.zones.lock().unwrap();
        zones.insert(name.to_owned(), zone);
    }

    /// When `name` was asked for, for records of this kind.
    pub fn asked(&self, name: &str, kind: RecordType) -> Vec<Instant> {
        let asked = self.shared.asked.lock().unwrap();
        let of_it = asked.iter().filter(|(n, k, _)| n == name && *k == kind);
        of_it.map(|(_, _, at)| *at).collect()
    }

    /// Waits until `name` has been asked for `count` times, for its addresses.
    pub async fn wait_until_asked(&self, name: &str, count: usize) {
        let mut changes = self.shared.changes.subscribe();
        let asked = async {
            while self.asked(name, RecordType::A).len() < count {
                changes.changed().await.unwrap();
            }
        };
        let complaint = || {
            let asked = self.asked(name, RecordType::A).len();
            format!("{name} was asked for {asked} times instead of {count}")
        };
        within(PATIENCE, complaint, asked).await;
    }
}

/// One port for both.
async fn bind() -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
    panic!("no port is free for both");
}

async fn serve_udp(socket: UdpSocket, shared: Arc<Shared>) {
    let mut buffer = [0; 4096];
    loop {
        let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
        if let Some(answer) = shared.answer(&buffer[..length], true) {
            socket.send_to(&answer, client).await.unwrap();
        }
    }
}

async fn serve_tcp(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            // It ends when the client does.
            let _ = serve_connection(stream, &shared).await;
        });
    }
}

async fn serve_connection(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    loop {
        let length = stream.read_u16().await?;
        let mut question = vec![0; length.into()];
        stream.read_exact(&mut question).await?;
        if let Some(answer) = shared.answer(&question, false) {
            stream.write_u16(answer.len().try_into().unwrap()).await?;
            stream.write_all(&answer).await?;
        }
    }
}

impl Shared {
    fn answer(&self, question: &[u8], over_udp: bool) -> Option<Vec<u8>> {
        let question = Message::from_vec(question).expect("a DNS message");
        let query = question.queries.first().expect("a question").clone();
        let name = query.name().to_ascii().to_lowercase();
        let kind = query.query_type();
        self.asked
            .lock()
            .unwrap()
            .push((name.clone(), kind, Instant::now()));
        self.changes.send_replace(());
        let zone = self.zones.lock().unwrap().get(&name).cloned();
        let zone = zone.unwrap_or(Zone::Code(ResponseCode::NXDomain));
        let mut answer = Message::response(question.metadata.id, OpCode::Query);
        answer.metadata.recursion_desired = true;
        answer.metadata.recursion_available = true;
        answer.add_query(query.clone());
        match zone {
            Zone::Silent => return None,
            Zone::Code(code) => answer.metadata.response_code = code,
            Zone::OverTcp(_) if over_udp => answer.metadata.truncation = true,
            Zone::OverTcp(records) | Zone::Records(records) => {
                for (ttl, data) in records {
                    if data.record_type() == kind {
                        answer.add_answer(Record::from_rdata(query.name().clone(), ttl, data));
                    }
                }
            }
        }
        Some(answer.to_vec().expect("an answer that can be sent"))
    }
}
