//! Where the engines are: the list of the configuration, or one kept up to date from outside.
//!
//! - [`Discovery`] is which of them it is; [`run`](Discovery::run) goes on for ever and tells every
//!   complete list of engines it comes to know as [`Found`];
//! - `dns` looks names up, `file` reads a file, `kubernetes` watches the endpoints of a Service;
//! - [`Resolver`] looks names up, those of configured engines, too, as their answers run out.
//!
//! What an answer, a text or an endpoint amounts to is decided apart from the sockets it comes
//! from. Every source keeps the last good list when it fails: an engine that is really gone is
//! noticed by its health.

mod answer;
mod dns;
mod dns_name;
mod file;
mod kubernetes;
mod resolver;
mod slices;
mod streak;

use std::path::PathBuf;

use crate::config::EngineSpec;

pub use answer::{Answer, Families, Located, Question, Unresolved};
pub use dns_name::{DnsName, DnsNameError};
pub use kubernetes::Kubernetes;
pub use resolver::{DnsSettings, Resolver};
pub use slices::Port;

/// How engines are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Discovery {
    /// They are listed in the configuration.
    #[default]
    Static,
    /// Each address of these names is one.
    Dns(Vec<DnsName>),
    /// They are listed in this file, which may change.
    File(PathBuf),
    /// Each pod behind a Service is one.
    Kubernetes(Kubernetes),
}

/// What is known of the engines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The engines, no two with one URL.
    pub engines: Vec<EngineSpec>,
    /// Whether that is all of them. At first nothing has been heard, or only some of the names.
    pub is_complete: bool,
}

impl Found {
    /// The whole list.
    pub fn all(engines: Vec<EngineSpec>) -> Self {
        Self {
            engines,
            is_complete: true,
        }
    }

    /// What is known when this has been heard after `before`: whoever is missing in a list that is
    /// not complete is not gone, but may be yet to come.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        let mut now = self.clone();
        if !self.is_complete {
            let is_missing = |known: &&EngineSpec| self.engines.iter().all(|e| e.url != known.url);
            let missing = before.engines.iter().filter(is_missing);
            now.engines.extend(missing.cloned());
        }
        now
    }
}

impl Discovery {
    /// The word in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Dns(_) => "dns",
            Self::File(_) => "file",
            Self::Kubernetes(_) => "k8s",
        }
    }

    /// Finds engines, and tells every list it comes to know, for ever. It may be dropped at any
    /// time.
    pub async fn run(&self, resolver: &Resolver, tell: impl Fn(Found)) {
        match self {
            Self::Static => std::future::pending().await,
            Self::Dns(names) => dns::run(names, resolver, tell).await,
            Self::File(path) => file::run(path, tell).await,
            Self::Kubernetes(service) => service.run(tell).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(ports: &[u16], is_complete: bool) -> Found {
        let engine = |port: &u16| {
            let url = format!("http://10.0.0.1:{port}").parse().unwrap();
            EngineSpec::new(url, Vec::new())
        };
        Found {
            engines: ports.iter().map(engine).collect(),
            is_complete,
        }
    }

    #[test]
    fn nobody_is_gone_for_missing_in_a_list_that_is_not_complete() {
        let before = found(&[1, 2], true);
        assert_eq!(found(&[], false).after(&before), found(&[1, 2], false));
        assert_eq!(
            found(&[2, 3], false).after(&before),
            found(&[2, 3, 1], false)
        );
        assert_eq!(found(&[2, 3], true).after(&before), found(&[2, 3], true));
        assert_eq!(found(&[], true).after(&before), found(&[], true));
    }
}
