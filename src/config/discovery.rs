//! How engines are found, and how names are looked up.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::keys::{
    DISCOVERY_FILE, DNS_LONGEST_TTL_MS, DNS_NAMES, DNS_SERVERS, ENGINES, K8S_KUBECONFIG,
    K8S_LABEL_SELECTOR, K8S_NAMESPACE, K8S_PORT, K8S_SERVICE_NAME, Key, SERVICE_DISCOVERY,
    STATIC_BACKENDS,
};
use super::names;
use super::reader::{Number, Reader};
use super::report::{Place, shown};
use crate::discovery::{Discovery, DnsName, DnsSettings, Kubernetes, Port};

/// The settings of one way to find engines, by its word.
const OF: &[(&str, &[&Key])] = &[
    ("static", &[&ENGINES, &STATIC_BACKENDS]),
    ("dns", &[&DNS_NAMES]),
    ("file", &[&DISCOVERY_FILE]),
    (
        "k8s",
        &[
            &K8S_NAMESPACE,
            &K8S_SERVICE_NAME,
            &K8S_LABEL_SELECTOR,
            &K8S_PORT,
            &K8S_KUBECONFIG,
        ],
    ),
];

/// Reads how engines are found.
pub(super) fn read(reader: &mut Reader<'_>) -> Discovery {
    let discovery = match reader.choice(&SERVICE_DISCOVERY) {
        "dns" => Discovery::Dns(dns_names(reader)),
        "file" => Discovery::File(file(reader)),
        "k8s" | "kubernetes" => Discovery::Kubernetes(kubernetes(reader)),
        _ => Discovery::Static,
    };
    warn_of_others(reader, discovery.word());
    discovery
}

/// Reads how names are looked up.
pub(super) fn dns(reader: &mut Reader<'_>) -> DnsSettings {
    let given = reader.given(&DNS_SERVERS);
    let mut servers = Vec::new();
    for (place, text) in names::texts(reader, &given, "servers") {
        match server(&text) {
            Some(server) if servers.contains(&server) => {
                reader.mistake(&place, format!("{server} is listed twice"));
            }
            Some(server) => servers.push(server),
            None => {
                let what = format!(
                    "{} is not a DNS server; give IP or IP:PORT, with brackets around an IPv6 address that has a port",
                    shown(&text)
                );
                reader.mistake(&place, what);
            }
        }
    }
    DnsSettings {
        servers,
        longest_ttl: reader.millis(&DNS_LONGEST_TTL_MS),
    }
}

fn server(text: &str) -> Option<SocketAddr> {
    let bare = || {
        text.parse::<IpAddr>()
            .ok()
            .map(|ip| SocketAddr::new(ip, 53))
    };
    let server = text.parse().ok().or_else(bare);
    server.filter(|server: &SocketAddr| server.port() != 0)
}

fn dns_names(reader: &mut Reader<'_>) -> Vec<DnsName> {
    let given = reader.given(&DNS_NAMES);
    let mistakes = reader.report.count();
    let mut found = Vec::new();
    for (place, text) in names::texts(reader, &given, "names") {
        match text.parse::<DnsName>() {
            Ok(name) if found.contains(&name) => {
                reader.mistake(&place, format!("the name {name} is listed twice"));
            }
            Ok(name) => found.push(name),
            Err(error) => reader.mistake(&place, error),
        }
    }
    if found.is_empty() && reader.report.count() == mistakes && !reader.file_is_lost {
        let what = "none given; service_discovery dns needs one such as vllm.default.svc:8000";
        reader.mistake(&given.place, what);
    }
    found
}

fn file(reader: &mut Reader<'_>) -> PathBuf {
    let given = reader.given(&DISCOVERY_FILE);
    if given.raw.is_null() && !reader.file_is_lost {
        let what = "none given; service_discovery file needs the path of a list of engines";
        reader.mistake(&given.place, what);
    }
    path(reader, &DISCOVERY_FILE).unwrap_or_default()
}

fn path(reader: &mut Reader<'_>, key: &Key) -> Option<PathBuf> {
    reader.text(key).map(|(_, path)| path.into())
}

fn kubernetes(reader: &mut Reader<'_>) -> Kubernetes {
    let namespace = reader.text_or_empty(&K8S_NAMESPACE);
    let service = reader.text_or_empty(&K8S_SERVICE_NAME);
    for (place, name) in namespace.iter().chain(&service) {
        if !is_label(name) {
            let what = format!(
                "{} is not a name; it must be 1 to 63 lower-case letters, digits and dashes",
                shown(name)
            );
            reader.mistake(place, what);
        }
    }
    let selector = reader.text_or_empty(&K8S_LABEL_SELECTOR);
    if service.is_none() && selector.is_none() && !reader.file_is_lost {
        let what = format!(
            "none given; service_discovery k8s needs it, or {}",
            K8S_LABEL_SELECTOR.name
        );
        reader.mistake(&Place::Nowhere(K8S_SERVICE_NAME.name), what);
    }
    Kubernetes {
        namespace: namespace.map(|(_, name)| name),
        service: service.map(|(_, name)| name),
        selector: selector.map(|(_, labels)| labels),
        port: port(reader),
        kubeconfig: path(reader, &K8S_KUBECONFIG),
    }
}

fn is_label(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(plain)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// A number or a name.
fn port(reader: &mut Reader<'_>) -> Port {
    let given = reader.given(&K8S_PORT);
    let text = match given.raw.number() {
        Some(Number::Whole(number)) => Some(number.to_string()),
        _ => given.raw.text().map(ToOwned::to_owned),
    };
    match text.map(|text| text.parse()) {
        Some(Ok(port)) => return port,
        Some(Err(why)) => {
            let what = format!("{} is not a port; it {why}", given.raw.shown());
            reader.mistake(&given.place, what);
        }
        None => reader.not_a(&given, "a number or a name"),
    }
    Port::Number(0)
}

/// Settings of the ways that were not taken have no effect, which may surprise.
fn warn_of_others(reader: &mut Reader<'_>, word: &str) {
    for (_, keys) in OF.iter().filter(|(of, _)| *of != word) {
        for key in *keys {
            if reader.is_set(key) {
                let what = format!(
                    "{} has no effect: {} is {word}",
                    key.name, SERVICE_DISCOVERY.name
                );
                reader.report.warnings.push(what);
            }
        }
    }
}
