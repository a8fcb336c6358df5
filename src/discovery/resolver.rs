//! Looks names up, and looks again when the answer's time is over.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::rdata::SRV;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::system_conf::read_system_conf;
use hickory_resolver::{Hosts, TokioResolver};
use tokio::time::{Instant, timeout};

use super::answer::{
    Addresses, Answer, Families, Located, Question, Unresolved, answer, both, preferred,
};
use super::streak::Streak;

/// The files that say how the system looks names up.
const SYSTEM_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// How long one question may take, all servers and search domains together.
const LIMIT: Duration = Duration::from_secs(10);
/// No name is looked up again before this, however short its time.
const SHORTEST_TTL: Duration = Duration::from_secs(1);
/// Targets of SRV records that are looked up at the same time.
const AT_ONCE: usize = 8;

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsSettings {
    /// The servers to ask; empty asks those of the system.
    pub servers: Vec<SocketAddr>,
    /// The longest an answer is gone by, however long its own time.
    pub longest_ttl: Duration,
}

/// Looks names up as the system does: in its hosts file, else by its servers and search domains.
///
/// Nothing is cached: whoever asks knows how long the answer is good for.
#[derive(Debug)]
pub struct Resolver {
    settings: DnsSettings,
    /// Made anew when the files of the system change.
    current: Mutex<Option<(Stamps, Arc<Client>)>>,
    started: Instant,
}

/// When the files of the system were last written.
type Stamps = [Option<SystemTime>; 2];

#[derive(Debug)]
struct Client {
    dns: TokioResolver,
    hosts: Hosts,
}

impl Resolver {
    /// A resolver with these settings. It asks nobody anything yet.
    pub fn new(settings: DnsSettings) -> Self {
        Self {
            settings,
            current: Mutex::default(),
            started: Instant::now(),
        }
    }

    /// What it goes by.
    pub fn settings(&self) -> &DnsSettings {
        &self.settings
    }

    /// Asks once.
    ///
    /// # Errors
    /// There is no such name, or nobody could be asked.
    pub async fn ask(&self, question: &Question) -> Result<Answer, Unresolved> {
        let client = self.client()?;
        let asked = async {
            match question {
                Question::Addresses {
                    host,
                    port,
                    families,
                } => {
                    let (found, ttl) = client.addresses(host, *families).await?;
                    answer(at(found, *port, 1), ttl)
                }
                Question::Services { name } => client.services(name).await,
            }
        };
        match timeout(LIMIT, asked).await {
            Ok(answer) => answer,
            Err(_) => Err(Unresolved::Slow(LIMIT)),
        }
    }

    /// Asks again and again: when the answer's time is over, or after a pause where it failed. What
    /// comes of it goes to `tell`; failures are logged here, the first one of a row.
    pub async fn follow(
        &self,
        question: &Question,
        tell: impl Fn(Result<&[Located], &Unresolved>),
    ) {
        let mut streak = Streak::default();
        let name = question.name();
        loop {
            let answer = self.ask(question).await;
            tell(answer.as_ref().map(|answer| answer.places.as_slice()));
            let pause = match answer {
                Ok(answer) => {
                    if streak.worked() {
                        log::info!("dns: {name} is resolved again");
                    }
                    self.good_for(answer.ttl)
                }
                Err(why) => {
                    let (is_news, pause) = streak.failed(self.started.elapsed(), rand::random());
                    if is_news {
                        log::warn!(
                            "dns: {name} is not resolved, what was known of it stays: {why}"
                        );
                    } else {
                        log::debug!("dns: {name} is still not resolved: {why}");
                    }
                    pause.min(self.settings.longest_ttl)
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// How long an answer is gone by.
    fn good_for(&self, ttl: Duration) -> Duration {
        ttl.min(self.settings.longest_ttl).max(SHORTEST_TTL)
    }

    fn client(&self) -> Result<Arc<Client>, Unresolved> {
        let written = |path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let stamps = SYSTEM_FILES.map(written);
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, client)) = &*current
            && *known == stamps
        {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(Client::new(&self.settings.servers)?);
        *current = Some((stamps, Arc::clone(&client)));
        Ok(client)
    }
}

fn at(
    addresses: impl IntoIterator<Item = IpAddr>,
    port: u16,
    weight: u32,
) -> impl Iterator<Item = Located> {
    let place = move |ip| Located {
        address: SocketAddr::new(ip, port),
        weight,
    };
    addresses.into_iter().map(place)
}

impl Client {
    fn new(servers: &[SocketAddr]) -> Result<Self, Unresolved> {
        let (system, mut options) = read_system_conf().unwrap_or_else(|error| {
            // As the C library has it: without the file, the server of this machine is asked.
            log::debug!("dns: {}: {error}", SYSTEM_FILES[0]);
            let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 53);
            let config = ResolverConfig::from_name_servers(vec![server(local)]);
            (config, ResolverOpts::default())
        });
        let (domain, search, of_system) = system.into_parts();
        let servers = if servers.is_empty() {
            of_system
        } else {
            servers.iter().copied().map(server).collect()
        };
        options.cache_size = 0;
        options.use_hosts_file = ResolveHosts::Never;
        let config = ResolverConfig::from_parts(domain, search, servers);
        let provider = TokioRuntimeProvider::default();
        let dns = TokioResolver::builder_with_config(config, provider).with_options(options);
        Ok(Self {
            dns: dns.build().map_err(unresolved)?,
            hosts: Hosts::from_system().unwrap_or_default(),
        })
    }

    async fn addresses(&self, host: &str, families: Families) -> Addresses {
        if let Some(listed) = self.listed(host) {
            return match families {
                Families::One => listed.v4.or(listed.v6),
                Families::Both => both(listed.v4, listed.v6),
            };
        }
        match families {
            Families::One => match self.family(host, RecordType::A).await {
                Err(Unresolved::Nothing) => self.family(host, RecordType::AAAA).await,
                found => found,
            },
            Families::Both => {
                let v4 = self.family(host, RecordType::A);
                let v6 = self.family(host, RecordType::AAAA);
                let (v4, v6) = tokio::join!(v4, v6);
                both(v4, v6)
            }
        }
    }

    /// What the hosts file says of a name; where it says anything, the DNS is not asked.
    fn listed(&self, host: &str) -> Option<Listed> {
        let mut name = Name::from_utf8(host).ok()?;
        name.set_fqdn(true);
        let family = |record| {
            let listed = self
                .hosts
                .lookup_static_host(&Query::query(name.clone(), record));
            listed.map_or(Err(Unresolved::Nothing), |lookup| addresses(&lookup))
        };
        let (v4, v6) = (family(RecordType::A), family(RecordType::AAAA));
        (v4.is_ok() || v6.is_ok()).then_some(Listed { v4, v6 })
    }

    async fn family(&self, host: &str, record: RecordType) -> Addresses {
        let lookup = self.dns.lookup(host, record).await.map_err(unresolved)?;
        addresses(&lookup)
    }

    async fn services(&self, name: &str) -> Result<Answer, Unresolved> {
        let lookup = self.dns.srv_lookup(name).await.map_err(unresolved)?;
        let records: Vec<SRV> = lookup
            .answers()
            .iter()
            .filter_map(|record| match &record.data {
                RData::SRV(service) => Some(service.clone()),
                _ => None,
            })
            .collect();
        let targets: Vec<_> = preferred(&records)
            .into_iter()
            .map(|record| async move {
                let host = record.target.to_string();
                (record, self.addresses(&host, Families::One).await)
            })
            .collect();
        let mut resolved = futures::stream::iter(targets).buffer_unordered(AT_ONCE);
        let (mut places, mut ttl) = (Vec::new(), shortest(&lookup));
        while let Some((record, found)) = resolved.next().await {
            match found {
                Ok((found, until)) => {
                    ttl = ttl.min(until);
                    places.extend(at(found, record.port, u32::from(record.weight).max(1)));
                }
                // A record that outlives its target is not worth the others.
                Err(Unresolved::Nothing) => {}
                Err(why) => return Err(why),
            }
        }
        answer(places, ttl)
    }
}

/// What the hosts file says of a name.
struct Listed {
    v4: Addresses,
    v6: Addresses,
}

fn server(address: SocketAddr) -> NameServerConfig {
    let at_port = |mut connection: ConnectionConfig| {
        connection.port = address.port();
        connection
    };
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    NameServerConfig::new(address.ip(), true, connections.map(at_port).to_vec())
}

fn addresses(lookup: &Lookup) -> Addresses {
    let records = lookup.answers().iter();
    let found: Vec<_> = records.filter_map(|record| record.data.ip_addr()).collect();
    if found.is_empty() {
        return Err(Unresolved::Nothing);
    }
    Ok((found, shortest(lookup)))
}

/// The shortest time of any record of an answer, those of the way to it included.
fn shortest(lookup: &Lookup) -> Duration {
    let times = lookup.answers().iter().map(|record| record.ttl);
    Duration::from_secs(times.min().unwrap_or(0).into())
}

fn unresolved(error: NetError) -> Unresolved {
    if error.is_no_records_found() {
        Unresolved::Nothing
    } else {
        Unresolved::Failed(error.to_string())
    }
}
