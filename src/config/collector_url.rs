//! The address of a collector of spans.

use std::fmt;

use serde::{Serialize, Serializer};

use super::engine_url::{checked_host, checked_port, checked_prefix, split_port};
use super::report::shown;
use super::settings::address;
use crate::traces::Protocol;

/// Where collectors take spans over HTTP, unless they are told otherwise.
pub(super) const TRACES_PATH: &str = "/v1/traces";

/// `http://HOST[:PORT]` or `https://HOST[:PORT]`, with a path where HTTP is spoken; checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    is_https: bool,
    host: String,
    port: u16,
    /// Empty for gRPC.
    path: String,
}

impl CollectorUrl {
    /// Reads an address, for the protocol that is spoken there. `HOST:PORT` is one without TLS;
    /// one without a path gets the usual one, where the protocol has any.
    ///
    /// # Errors
    /// What is wrong with the text, in words. What may be a password is not shown.
    pub(super) fn parse(text: &str, protocol: Protocol) -> Result<Self, String> {
        if text.contains('@') {
            return Err(
                "a url with user-info (the part before @) is not accepted; headers for the \
                        collector are taken from OTEL_EXPORTER_OTLP_HEADERS"
                    .to_owned(),
            );
        }
        let (visible, hidden) = text
            .find(['?', '#'])
            .map_or((text, ""), |at| text.split_at(at));
        let refused = |why: &str| Err(format!("{}: {why}", shown(visible)));
        if !hidden.is_empty() {
            return refused("a query or a fragment (the part from ? or # on) is not accepted");
        }
        let (scheme, rest) = visible.split_once("://").unwrap_or(("", visible));
        let is_https = match scheme.to_ascii_lowercase().as_str() {
            "" | "http" => false,
            // As the documentation of vLLM spells it.
            "grpc" if protocol == Protocol::Grpc => false,
            "https" => true,
            _ => return refused("the scheme is not accepted; give an http or https url"),
        };
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let Some((Some(host), port)) =
            split_port(authority).map(|(host, port)| (checked_host(host), port))
        else {
            return refused(
                "the host is not a name, an IPv4 address, or an IPv6 address in brackets",
            );
        };
        let port = match port {
            None if scheme.is_empty() => {
                return refused("neither a scheme nor a port is given; give http://HOST:PORT");
            }
            None => Some(if is_https { 443 } else { 80 }),
            Some(port) => checked_port(port),
        };
        let Some(port) = port else {
            return refused("the port is not a number from 1 to 65535");
        };
        let Some(path) = checked_prefix(path) else {
            return refused(
                "the path may hold letters, digits and -._~!$&'()*+,;=: between single slashes, \
                 and no . or .. alone",
            );
        };
        let path = match (protocol, path.is_empty()) {
            (Protocol::Grpc, false) => {
                return refused("gRPC has no paths; leave it out, or give otel_protocol http");
            }
            (Protocol::Http, true) => TRACES_PATH.to_owned(),
            _ => path,
        };
        Ok(Self {
            is_https,
            host,
            port,
            path,
        })
    }

    /// Whether the collector is spoken to over TLS.
    pub fn is_https(&self) -> bool {
        self.is_https
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        let address = address(&self.host, self.port);
        write!(f, "{scheme}://{address}{}", self.path)
    }
}

impl Serialize for CollectorUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Protocol::{Grpc, Http};

    #[test]
    fn a_collector_is_kept_in_one_spelling() {
        for (text, protocol, normal) in [
            ("http://collector:4317", Grpc, "http://collector:4317"),
            ("http://Collector:4317/", Grpc, "http://collector:4317"),
            ("grpc://10.0.0.1:4317", Grpc, "http://10.0.0.1:4317"),
            ("collector:4317", Grpc, "http://collector:4317"),
            ("[::1]:4317", Grpc, "http://[::1]:4317"),
            (
                "https://api.example.com",
                Grpc,
                "https://api.example.com:443",
            ),
            (
                "http://collector:4318",
                Http,
                "http://collector:4318/v1/traces",
            ),
            ("collector:4318", Http, "http://collector:4318/v1/traces"),
            ("http://collector", Http, "http://collector:80/v1/traces"),
            (
                "https://[::1]/otlp/v1/traces",
                Http,
                "https://[::1]:443/otlp/v1/traces",
            ),
        ] {
            let url = CollectorUrl::parse(text, protocol).unwrap();
            assert_eq!(url.to_string(), normal);
            assert_eq!(CollectorUrl::parse(normal, protocol), Ok(url));
        }
    }

    #[test]
    fn what_is_not_a_collector_is_refused_with_a_reason() {
        for (text, protocol, reason) in [
            ("", Grpc, "the host"),
            ("collector", Grpc, "give http://HOST:PORT"),
            ("http://", Grpc, "the host"),
            ("http://a b", Grpc, "the host"),
            ("http://c:0", Grpc, "the port"),
            ("http://c:x", Grpc, "the port"),
            ("ftp://c:1", Grpc, "the scheme"),
            ("grpc://c:1", Http, "the scheme"),
            ("http://c:1/v1/traces", Grpc, "gRPC has no paths"),
            ("http://c:1/a//b", Http, "the path"),
            ("http://c:1/%2e", Http, "the path"),
            ("http://c:1?key=hunter2", Http, "a query"),
            ("http://u:hunter2@c:1", Http, "user-info"),
        ] {
            let error = CollectorUrl::parse(text, protocol).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
