//! What may stand for a host: an IP address or a name.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Whether the text is a host name or an IPv4 address.
///
/// Underscores are accepted, as container networks use them. A name whose last label is a number is
/// none: it is an IPv4 address gone wrong.
pub(super) fn is_name_or_v4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 253
        && text.split('.').all(is_label)
        && !text.rsplit('.').next().is_some_and(is_number)
}

/// The address to listen on, without brackets.
///
/// # Errors
/// What is wrong with the text, in words.
pub(super) fn listening(text: &str) -> Result<String, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    if bare.parse::<Ipv6Addr>().is_ok() || (bare == text && is_name_or_v4(text)) {
        return Ok(bare.to_owned());
    }
    let shown = super::report::shown(text);
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())) {
        return Err(format!(
            "{shown} holds a port, which is a setting of its own; give an IP address or a name"
        ));
    }
    Err(format!("{shown} is not an IP address or a name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_accepted() {
        for (text, host) in [
            ("0.0.0.0", "0.0.0.0"),
            ("::", "::"),
            ("[::1]", "::1"),
            ("localhost", "localhost"),
            ("edge-1.example.com", "edge-1.example.com"),
            ("my_host", "my_host"),
        ] {
            assert_eq!(listening(text).as_deref(), Ok(host));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "a b",
            "localhost:80",
            "[::1]:80",
            "1.2.3",
            "1.2.3.400",
            "-a",
            "a..b",
            "a/b",
            "[a]",
            "*",
        ] {
            assert!(listening(text).is_err(), "{text:?}");
        }
        assert!(
            listening("localhost:80")
                .unwrap_err()
                .contains("holds a port")
        );
    }
}
