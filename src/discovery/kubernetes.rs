//! Engines behind a Kubernetes Service: each of its pods that is ready is one.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Config};
use tokio::time::Instant;

use super::Found;
use super::slices::{Port, Slices};
use super::streak::Streak;

/// The label by which the slices of a Service carry its name.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// After so many seconds the server ends a watch and it is taken up again. A watch whose connection
/// has silently died is noticed as soon.
const WATCH_SECONDS: u32 = 60;

/// Which pods are engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kubernetes {
    /// The namespace; `None` is our own.
    pub namespace: Option<String>,
    /// The name of the Service.
    pub service: Option<String>,
    /// The labels its slices must have. They carry those of their Service.
    pub selector: Option<String>,
    /// Where engines listen.
    pub port: Port,
    /// How to reach the API server; `None` looks where everybody does: `KUBECONFIG`,
    /// `~/.kube/config`, then what a pod is given.
    pub kubeconfig: Option<PathBuf>,
}

/// Why nothing is heard.
#[derive(Debug, thiserror::Error)]
enum Deaf {
    /// There is no way to the API server.
    #[error("{0}")]
    NoWay(Box<dyn std::error::Error + Send + Sync>),
    /// It cannot be asked, or refuses.
    #[error("{0}")]
    Failed(#[from] watcher::Error),
}

impl Kubernetes {
    /// The selector of labels, as the API server takes it.
    fn labels(&self) -> String {
        let service = self
            .service
            .as_ref()
            .map(|name| format!("{SERVICE_NAME}={name}"));
        let parts: Vec<_> = service.into_iter().chain(self.selector.clone()).collect();
        parts.join(",")
    }

    /// Lists the slices, then watches them, for ever.
    pub(super) async fn run(&self, tell: impl Fn(Found)) {
        let mut ear = Ear {
            kubernetes: self,
            tell,
            started: Instant::now(),
            streak: Streak::default(),
            lacks_port: false,
        };
        loop {
            let why = ear.listen().await;
            tokio::time::sleep(ear.failed(&why)).await;
        }
    }

    async fn api(&self) -> Result<Api<EndpointSlice>, Deaf> {
        let config = match &self.kubeconfig {
            Some(path) => from_file(path).await,
            None => Config::infer()
                .await
                .map_err(|error| Deaf::NoWay(error.into())),
        }?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| Deaf::NoWay(error.into()))?;
        Ok(Api::namespaced(client, &namespace))
    }
}

async fn from_file(path: &Path) -> Result<Config, Deaf> {
    let no_way = |error| Deaf::NoWay(Box::new(error));
    let config = Kubeconfig::read_from(path).map_err(no_way)?;
    let options = KubeConfigOptions::default();
    Config::from_custom_kubeconfig(config, &options)
        .await
        .map_err(no_way)
}

/// One that listens, and what it remembers from one watch to the next.
struct Ear<'a, T> {
    kubernetes: &'a Kubernetes,
    tell: T,
    started: Instant,
    streak: Streak,
    lacks_port: bool,
}

impl<T: Fn(Found)> Ear<'_, T> {
    /// Lists and watches until that has to begin anew; gives the reason.
    async fn listen(&mut self) -> Deaf {
        let api = match self.kubernetes.api().await {
            Ok(api) => api,
            Err(why) => return why,
        };
        let config = watcher::Config::default()
            .labels(&self.kubernetes.labels())
            .timeout(WATCH_SECONDS);
        let mut events = pin!(watcher(api, config));
        let mut slices = Slices::default();
        loop {
            match events.next().await {
                Some(Ok(event)) => {
                    if slices.apply(event) {
                        self.worked();
                        self.heard(&slices);
                    }
                }
                Some(Err(error)) => {
                    if is_gone(&error) {
                        return error.into();
                    }
                    tokio::time::sleep(self.failed(&error.into())).await;
                }
                // It has no end.
                None => return watcher::Error::NoResourceVersion.into(),
            }
        }
    }

    fn heard(&mut self, slices: &Slices) {
        let selection = slices.select(&self.kubernetes.port);
        let lacks_port = !selection.without_port.is_empty();
        if lacks_port && !self.lacks_port {
            log::warn!(
                "k8s: no port is called {} in {}",
                self.kubernetes.port,
                selection.without_port.join(", ")
            );
        }
        self.lacks_port = lacks_port;
        (self.tell)(Found::all(selection.engines));
    }

    fn worked(&mut self) {
        if self.streak.worked() {
            log::info!("k8s: endpoints are heard of again");
        }
    }

    /// Says so, once for a row of failures, and how long to wait.
    fn failed(&mut self, why: &Deaf) -> Duration {
        let now = self.started.elapsed();
        let (is_news, pause) = self.streak.failed(now, rand::random());
        if is_news {
            log::warn!("k8s: endpoints are not heard of, what was known stays: {why}");
        } else {
            log::debug!("k8s: endpoints are still not heard of: {why}");
        }
        pause
    }
}

/// Whether the server refuses to go on from where we were. As an event of a watch that is dealt
/// with by the watcher; as an answer to the question for a watch it is not.
fn is_gone(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(service: Option<&str>, selector: Option<&str>) -> String {
        let owned = |text: Option<&str>| text.map(ToOwned::to_owned);
        let kubernetes = Kubernetes {
            namespace: None,
            service: owned(service),
            selector: owned(selector),
            port: Port::Number(8000),
            kubeconfig: None,
        };
        kubernetes.labels()
    }

    #[test]
    fn slices_are_selected_by_service_by_labels_or_by_both() {
        let (service, selector) = (Some("vllm"), Some("app=vllm,tier in (a, b)"));
        assert_eq!(labels(service, None), "kubernetes.io/service-name=vllm");
        assert_eq!(labels(None, selector), "app=vllm,tier in (a, b)");
        assert_eq!(
            labels(service, selector),
            "kubernetes.io/service-name=vllm,app=vllm,tier in (a, b)"
        );
    }
}
