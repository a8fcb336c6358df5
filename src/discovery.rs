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

use tokio::sync::watch;

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

    /// Finds engines, and tells each change to `found`, for ever.
    ///
    /// It may be dropped at any time; begun anew, it starts from what `found` holds only in so far
    /// as nothing is told before something has been heard.
    pub async fn run(&self, resolver: &Resolver, found: &watch::Sender<Found>) {
        match self {
            Self::Static => std::future::pending().await,
            Self::Dns(names) => dns::run(names, resolver, found).await,
            Self::File(path) => file::run(path, found).await,
            Self::Kubernetes(service) => service.run(found).await,
        }
    }
}

/// Tells `found` unless that is what is known already.
fn tell(found: &watch::Sender<Found>, news: Found) {
    found.send_if_modified(|known| {
        let is_news = *known != news;
        if is_news {
            *known = news;
        }
        is_news
    });
}
