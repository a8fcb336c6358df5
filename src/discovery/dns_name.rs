//! A name that stands for engines, as people write it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::answer::{Families, Located, Question};
use crate::config::{EngineSpec, EngineUrl, EngineUrlError};

/// `[http://]NAME[:PORT][/PREFIX]`, or the same without a port where the name begins with an
/// underscore and so is one of SRV records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsName {
    /// What an engine's URL is made of, but for its host and, of SRV records, its port.
    url: EngineUrl,
}

/// Why a text is not such a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsNameError {
    /// It would not do as the address of an engine.
    #[error(transparent)]
    Url(#[from] EngineUrlError),
    /// There is nothing to look up.
    #[error("{0} is an address, not a name; list it under engines, with service_discovery: static")]
    Address(String),
    /// SRV records say the port.
    #[error("{0}: a name that begins with _ has its ports from SRV records; leave the port out")]
    Port(String),
}

impl FromStr for DnsName {
    type Err = DnsNameError;

    fn from_str(text: &str) -> Result<Self, DnsNameError> {
        let url: EngineUrl = if text.contains("://") || text.is_empty() {
            text.parse()?
        } else {
            format!("http://{text}").parse()?
        };
        if url.host().parse::<IpAddr>().is_ok() {
            return Err(DnsNameError::Address(url.host().to_owned()));
        }
        let authority = text.split_once("://").map_or(text, |(_, rest)| rest);
        let authority = authority.split('/').next().unwrap_or_default();
        if is_service(&url) && authority.contains(':') {
            return Err(DnsNameError::Port(authority.to_owned()));
        }
        Ok(Self { url })
    }
}

fn is_service(url: &EngineUrl) -> bool {
    url.host().starts_with('_')
}

impl DnsName {
    /// What to ask the DNS.
    pub fn question(&self) -> Question {
        if is_service(&self.url) {
            Question::Services {
                name: self.url.host().to_owned(),
            }
        } else {
            Question::Addresses {
                host: self.url.host().to_owned(),
                port: self.url.port(),
                families: Families::One,
            }
        }
    }

    /// The engines at the places that were found. What they serve is not known.
    pub fn engines<'a>(
        &'a self,
        places: &'a [Located],
    ) -> impl Iterator<Item = EngineSpec> + use<'a> {
        places.iter().map(|place| self.engine(place))
    }

    fn engine(&self, place: &Located) -> EngineSpec {
        EngineSpec {
            weight: place.weight,
            ..EngineSpec::new(self.url.at(place.address), Vec::new())
        }
    }
}

impl fmt::Display for DnsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_service(&self.url) {
            write!(f, "http://{}{}", self.url.host(), self.url.prefix())
        } else {
            self.url.fmt(f)
        }
    }
}

impl Serialize for DnsName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DnsName {
        text.parse().unwrap()
    }

    fn place(address: &str, weight: u32) -> Located {
        Located {
            address: address.parse().unwrap(),
            weight,
        }
    }

    #[test]
    fn a_name_is_asked_for_its_addresses_or_for_its_services() {
        let addresses = |host: &str, port| Question::Addresses {
            host: host.to_owned(),
            port,
            families: Families::One,
        };
        let services = |name: &str| Question::Services {
            name: name.to_owned(),
        };
        for (text, shown, question) in [
            (
                "vllm.default.svc:8000",
                "http://vllm.default.svc:8000",
                addresses("vllm.default.svc", 8000),
            ),
            ("http://vllm/a/", "http://vllm:80/a", addresses("vllm", 80)),
            ("VLLM.", "http://vllm.:80", addresses("vllm.", 80)),
            (
                "_http._tcp.vllm.default.svc",
                "http://_http._tcp.vllm.default.svc",
                services("_http._tcp.vllm.default.svc"),
            ),
            (
                "http://_h._tcp.x/a",
                "http://_h._tcp.x/a",
                services("_h._tcp.x"),
            ),
        ] {
            assert_eq!(name(text).question(), question, "{text}");
            assert_eq!(name(text).to_string(), shown);
            assert_eq!(name(shown), name(text));
        }
    }

    #[test]
    fn every_place_is_an_engine_below_the_prefix_with_the_weight_of_its_record() {
        let found = [place("10.0.0.1:8000", 1), place("[fd00::1]:8001", 70)];
        let name = name("http://vllm:8000/base");
        let engines: Vec<_> = name
            .engines(&found)
            .map(|engine| {
                (
                    engine.url.to_string(),
                    engine.weight,
                    engine.models,
                    engine.id,
                )
            })
            .collect();
        assert_eq!(
            engines,
            [
                ("http://10.0.0.1:8000/base".to_owned(), 1, vec![], None),
                ("http://[fd00::1]:8001/base".to_owned(), 70, vec![], None),
            ]
        );
    }

    #[test]
    fn what_is_not_such_a_name_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "is empty"),
            ("10.0.0.1:8000", "10.0.0.1 is an address"),
            ("http://[::1]:8000", "::1 is an address"),
            ("_http._tcp.x:80", "leave the port out"),
            ("http://_http._tcp.x:80/a", "leave the port out"),
            ("a b", "the host"),
            ("vllm:0", "the port"),
            ("ftp://vllm", "the scheme ftp"),
            ("user@vllm", "user-info"),
        ] {
            let error = text.parse::<DnsName>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
