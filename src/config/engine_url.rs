//! The address of an engine.
//!
//! Written by people, in many ways for the same engine; kept in one, so that equal engines are
//! equal: scheme and name in lower case, the port always known, no slash at the end.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::host;
use super::report::shown;

/// `http://HOST[:PORT][/PREFIX]`, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EngineUrl {
    host: String,
    port: u16,
    prefix: String,
    authority: String,
}

/// Why a text is not the address of an engine.
///
/// What follows a `?` or a `#` is never shown, nor anything of a text with an `@`: both are places
/// where people put passwords.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineUrlError {
    /// Nothing at all.
    #[error("an engine's url is empty; give one such as http://127.0.0.1:9001")]
    Empty,
    /// An `@`, so a user name and perhaps a password.
    #[error(
        "a url with user-info (the part before @) is not accepted; the key for engines is engine_api_key"
    )]
    UserInfo,
    /// No `scheme://`.
    #[error("{0} has no scheme; give http://{1}")]
    NoScheme(String, String),
    /// TLS to engines.
    #[error("{0}: https is not supported yet; give an http url")]
    Https(String),
    /// Any other scheme.
    #[error("{0}: the scheme {1} is not accepted; give an http url")]
    Scheme(String, String),
    /// A query, which would be lost.
    #[error("{0}: a query (the part from ? on) is not accepted; give http://HOST[:PORT][/PREFIX]")]
    Query(String),
    /// A fragment, which would be lost.
    #[error(
        "{0}: a fragment (the part from # on) is not accepted; give http://HOST[:PORT][/PREFIX]"
    )]
    Fragment(String),
    /// A host that is neither a name nor an IP address.
    #[error("{0}: the host is not a name, an IPv4 address, or an IPv6 address in brackets")]
    Host(String),
    /// A port that is no number from 1 to 65535.
    #[error("{0}: the port is not a number from 1 to 65535")]
    Port(String),
    /// A prefix that could mean another path than it says.
    #[error(
        "{0}: the prefix may hold letters, digits and -._~!$&'()*+,;=: between single slashes, and no . or .. alone"
    )]
    Prefix(String),
}

impl FromStr for EngineUrl {
    type Err = EngineUrlError;

    fn from_str(text: &str) -> Result<Self, EngineUrlError> {
        if text.is_empty() {
            return Err(EngineUrlError::Empty);
        }
        if text.contains('@') {
            return Err(EngineUrlError::UserInfo);
        }
        let (visible, hidden) = text
            .find(['?', '#'])
            .map_or((text, ""), |at| text.split_at(at));
        let whole = shown(visible);
        let Some((scheme, rest)) = visible.split_once("://") else {
            return Err(EngineUrlError::NoScheme(
                whole,
                visible.trim_start_matches('/').to_owned(),
            ));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "http" => {}
            "https" => return Err(EngineUrlError::Https(whole)),
            _ => return Err(EngineUrlError::Scheme(whole, shown(scheme))),
        }
        match hidden.chars().next() {
            Some('?') => return Err(EngineUrlError::Query(whole)),
            Some(_) => return Err(EngineUrlError::Fragment(whole)),
            None => {}
        }
        let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let (host, port) =
            split_port(authority).ok_or_else(|| EngineUrlError::Host(whole.clone()))?;
        let host = checked_host(host).ok_or_else(|| EngineUrlError::Host(whole.clone()))?;
        let port = port
            .map_or(Some(80), checked_port)
            .ok_or_else(|| EngineUrlError::Port(whole.clone()))?;
        let prefix = checked_prefix(path).ok_or(EngineUrlError::Prefix(whole))?;
        Ok(Self {
            authority: authority_of(&host, port),
            host,
            port,
            prefix,
        })
    }
}

/// Host and port apart; brackets stay on the host.
pub(super) fn split_port(authority: &str) -> Option<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        let (host, after) = authority.split_at(authority.find(']')? + 1);
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(port))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    Some(
        authority
            .split_once(':')
            .map_or((authority, None), |(host, port)| (host, Some(port))),
    )
}

pub(super) fn checked_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[') {
        let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
        return Some(address.to_string());
    }
    host::is_name_or_v4(host).then(|| host.to_ascii_lowercase())
}

pub(super) fn checked_port(port: &str) -> Option<u16> {
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port != 0)
}

pub(super) fn checked_prefix(path: &str) -> Option<String> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:".contains(&byte);
    let is_segment =
        |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(is_plain);
    (path.is_empty() || path.split('/').skip(1).all(is_segment)).then(|| path.to_owned())
}

fn authority_of(host: &str, port: u16) -> String {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    if port == 80 {
        host
    } else {
        format!("{host}:{port}")
    }
}

impl EngineUrl {
    /// `http://ADDRESS`.
    pub fn of(address: SocketAddr) -> Self {
        let (host, port) = (address.ip().to_string(), address.port());
        Self {
            authority: authority_of(&host, port),
            host,
            port,
            prefix: String::new(),
        }
    }

    /// The same engine, known to be at this address.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self {
            prefix: self.prefix.clone(),
            ..Self::of(address)
        }
    }

    /// The name or the IP address, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, 80 unless given.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What goes into the `Host` header: brackets around IPv6, port 80 left out.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// What goes before the path of a request: empty, or `/` and more, without a slash at the end.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host, port, prefix, ..
        } = self;
        if host.contains(':') {
            write!(f, "http://[{host}]:{port}{prefix}")
        } else {
            write!(f, "http://{host}:{port}{prefix}")
        }
    }
}

impl Serialize for EngineUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_kept_in_one_spelling() {
        for (text, normal, authority) in [
            (
                "http://localhost:9001",
                "http://localhost:9001",
                "localhost:9001",
            ),
            ("http://vllm", "http://vllm:80", "vllm"),
            ("HTTP://VLLM:80/", "http://vllm:80", "vllm"),
            (
                "http://10.0.0.1:8000/base",
                "http://10.0.0.1:8000/base",
                "10.0.0.1:8000",
            ),
            ("http://h/a/b/", "http://h:80/a/b", "h"),
            ("http://[::1]:9001", "http://[::1]:9001", "[::1]:9001"),
            ("http://[0:0::1]", "http://[::1]:80", "[::1]"),
            ("http://a_b.c-d.:1", "http://a_b.c-d.:1", "a_b.c-d.:1"),
        ] {
            let url: EngineUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), normal);
            assert_eq!(url.authority(), authority);
            assert_eq!(normal.parse(), Ok(url));
        }
        let url: EngineUrl = "http://[fe80::1]:1/base/".parse().unwrap();
        assert_eq!(
            (url.host(), url.port(), url.prefix()),
            ("fe80::1", 1, "/base")
        );
    }

    #[test]
    fn what_is_not_an_engine_is_refused_with_a_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("localhost:9001", "give http://localhost:9001"),
            ("//h", "give http://h"),
            ("https://h", "https is not supported yet"),
            ("ftp://h", "the scheme ftp"),
            ("http://u:hunter2@h", "user-info"),
            ("u:hunter2@h", "user-info"),
            ("http://h?key=hunter2", "a query"),
            ("http://h/a#hunter2", "a fragment"),
            ("http://", "the host"),
            ("http://:80", "the host"),
            ("http://a b", "the host"),
            ("http://1.2.3.4.5", "the host"),
            ("http://::1", "the host"),
            ("http://[::1", "the host"),
            ("http://[::1]x", "the host"),
            ("http://[fe80::1%eth0]", "the host"),
            ("http://h:", "the port"),
            ("http://h:0", "the port"),
            ("http://h:65536", "the port"),
            ("http://h:+80", "the port"),
            ("http://h:8x", "the port"),
            ("http://h//a", "the prefix"),
            ("http://h/a//", "the prefix"),
            ("http://h/../a", "the prefix"),
            ("http://h/%2e", "the prefix"),
            ("http://h/a\\b", "the prefix"),
        ] {
            let error = text.parse::<EngineUrl>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
