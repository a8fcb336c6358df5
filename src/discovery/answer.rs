//! What the DNS was asked, and what its answers amount to.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::proto::rr::rdata::SRV;

/// Something to ask of the DNS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Where `host` is (A and AAAA records); the port is known.
    Addresses {
        /// The name.
        host: String,
        /// The port of every address.
        port: u16,
        /// Which addresses count.
        families: Families,
    },
    /// Where a service is (SRV records), ports and weights included.
    Services {
        /// The name, such as `_http._tcp.vllm.default.svc`.
        name: String,
    },
}

impl Question {
    /// The name that is looked up.
    pub fn name(&self) -> &str {
        match self {
            Self::Addresses { host, .. } => host,
            Self::Services { name } => name,
        }
    }
}

/// Which addresses of a name count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// Those of IPv4, and those of IPv6 where there are no others: each address is an engine, and
    /// one of both families would count twice.
    One,
    /// All of them: they are ways to one engine.
    Both,
}

/// A place where somebody listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located {
    /// Address and port.
    pub address: SocketAddr,
    /// Its share relative to the others; at least 1.
    pub weight: u32,
}

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The places, in one order however the records came; at least one.
    pub places: Vec<Located>,
    /// How long this is good for: the shortest time of any record.
    pub ttl: Duration,
}

/// Why a name has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// There is no such name, or it has no such record.
    #[error("there is no such name, or it has no address")]
    Nothing,
    /// The servers failed, refused or could not be reached.
    #[error("{0}")]
    Failed(String),
    /// They said nothing.
    #[error("no answer within {0:?}")]
    Slow(Duration),
}

/// The addresses of one family, and how long they are good for.
pub(super) type Addresses = Result<(Vec<IpAddr>, Duration), Unresolved>;

/// The addresses of both families together.
///
/// One family suffices: plenty of servers answer questions for AAAA records with an error.
///
/// # Errors
/// Neither has any; a failure is said rather than that there is nothing.
pub(super) fn both(v4: Addresses, v6: Addresses) -> Addresses {
    match (v4, v6) {
        (Ok((mut all, ttl)), Ok((more, other))) => {
            all.extend(more);
            Ok((all, ttl.min(other)))
        }
        (Ok(some), Err(_)) | (Err(_), Ok(some)) => Ok(some),
        (Err(Unresolved::Nothing), Err(why)) | (Err(why), Err(_)) => Err(why),
    }
}

/// The records to go by: those of the most preferred priority. The others are for when none of
/// these can be reached, which a fleet has no way to say.
pub(super) fn preferred(records: &[SRV]) -> Vec<&SRV> {
    let best = records.iter().map(|record| record.priority).min();
    // A target of "." says that the service is decidedly not there.
    let offered = |record: &&SRV| Some(record.priority) == best && !record.target.is_root();
    records.iter().filter(offered).collect()
}

/// The answer made of `places`.
///
/// # Errors
/// There are none.
pub(super) fn answer(
    places: impl IntoIterator<Item = Located>,
    ttl: Duration,
) -> Result<Answer, Unresolved> {
    let mut places: Vec<_> = places.into_iter().collect();
    places.sort_unstable();
    places.dedup_by_key(|place| place.address);
    if places.is_empty() {
        return Err(Unresolved::Nothing);
    }
    Ok(Answer { places, ttl })
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::rr::Name;

    use super::*;

    fn addresses(ips: &[&str], ttl: u64) -> Addresses {
        let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        Ok((ips, Duration::from_secs(ttl)))
    }

    fn failed() -> Addresses {
        Err(Unresolved::Failed("SERVFAIL".to_owned()))
    }

    #[test]
    fn one_family_suffices_and_a_failure_is_told_rather_than_nothing() {
        let nothing = || Err(Unresolved::Nothing);
        let v4 = || addresses(&["10.0.0.1"], 30);
        assert_eq!(
            both(v4(), addresses(&["fd00::1"], 5)),
            addresses(&["10.0.0.1", "fd00::1"], 5)
        );
        assert_eq!(both(v4(), failed()), v4());
        assert_eq!(both(nothing(), v4()), v4());
        assert_eq!(both(nothing(), failed()), failed());
        assert_eq!(both(failed(), nothing()), failed());
        assert_eq!(both(nothing(), nothing()), nothing());
    }

    fn srv(priority: u16, weight: u16, target: &str) -> SRV {
        SRV::new(priority, weight, 8000, Name::from_ascii(target).unwrap())
    }

    #[test]
    fn only_the_most_preferred_records_count() {
        let records = [
            srv(10, 5, "a.example."),
            srv(20, 5, "spare.example."),
            srv(10, 0, "b.example."),
        ];
        let targets: Vec<_> = preferred(&records)
            .iter()
            .map(|record| record.target.to_string())
            .collect();
        assert_eq!(targets, ["a.example.", "b.example."]);
    }

    #[test]
    fn a_service_that_is_decidedly_not_there_has_no_place() {
        assert!(preferred(&[srv(0, 0, ".")]).is_empty());
        assert!(preferred(&[]).is_empty());
    }

    #[test]
    fn an_answer_is_the_same_in_whatever_order_it_comes() {
        let place = |port, weight| Located {
            address: SocketAddr::new("10.0.0.1".parse().unwrap(), port),
            weight,
        };
        let ttl = Duration::from_secs(1);
        let one = answer([place(2, 1), place(1, 1)], ttl).unwrap();
        assert_eq!(answer([place(1, 1), place(2, 1)], ttl).unwrap(), one);
        let twice = answer([place(1, 7), place(2, 1), place(1, 1)], ttl).unwrap();
        assert_eq!(twice.places, one.places);
        assert_eq!(answer([], ttl), Err(Unresolved::Nothing));
    }
}
