//! Fields that a client's `Connection` says end here.

use http::HeaderMap;

use crate::edge::connection_options;
use crate::edge::head::is_token_byte;

/// What a client must not have removed: it tells engines what is asked, and by whom.
const KEPT: [&str; 4] = [
    "host",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
];

/// How many nominations are too many.
const TOO_MANY: usize = 10;

/// Whether Pingora will forward a request with these. It would refuse others as well, but only once
/// an engine was chosen and connected, as if that had been an attempt.
pub(super) fn are_acceptable(fields: &HeaderMap) -> bool {
    let mut names = (1..).zip(connection_options(fields));
    names.all(|(count, name)| count < TOO_MANY && is_acceptable(name))
}

fn is_acceptable(name: &[u8]) -> bool {
    let is = |kept: &&str| name.eq_ignore_ascii_case(kept.as_bytes());
    name.iter().all(|byte| is_token_byte(*byte)) && !KEPT.iter().any(is)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONNECTION;

    use super::*;

    fn accepts(lines: &[&[u8]]) -> bool {
        let mut fields = HeaderMap::new();
        for line in lines {
            fields.append(CONNECTION, HeaderValue::from_bytes(line).unwrap());
        }
        are_acceptable(&fields)
    }

    #[test]
    fn what_clients_say_is_accepted() {
        let cases: [&[&[u8]]; 6] = [
            &[],
            &[b""],
            &[b"close"],
            &[b"keep-alive, Upgrade"],
            &[b" ,TE,, X-Mine ,"],
            &[b"1,2,3,4,5", b"6,7,8,9"],
        ];
        for lines in cases {
            assert!(accepts(lines), "{lines:?}");
        }
    }

    #[test]
    fn what_is_no_name_or_must_not_go_is_refused() {
        let cases: [&[&[u8]]; 8] = [
            &[b"two words"],
            &[b"\"x-mine\""],
            &[b":authority"],
            &[b"x-m\xffne"],
            &[b"Host"],
            &[b"close", b"X-FORWARDED-FOR"],
            &[b"x-forwarded-proto,close"],
            &[b"1,2,3,4,5", b"6,7,8,9,10"],
        ];
        for lines in cases {
            assert!(!accepts(lines), "{lines:?}");
        }
    }
}
