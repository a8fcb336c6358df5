//! Whether a client may be served at all.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq as _;

use crate::config::Secret;

/// Whether a request carries one of `keys` as its bearer token; without keys everybody may.
///
/// The key is compared exactly, and in a time that does not depend on how much of it is right.
pub(super) fn is_authorized(keys: &[Secret], fields: &HeaderMap) -> bool {
    keys.is_empty() || holds_one_of(keys, fields)
}

/// Whether a request carries one of `keys` as its bearer token.
pub(super) fn holds_one_of(keys: &[Secret], fields: &HeaderMap) -> bool {
    let mut given = fields.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        return false;
    };
    let value = value.as_bytes();
    let Some((scheme, token)) = value.split_at_checked(b"Bearer ".len()) else {
        return false;
    };
    // Every key is looked at, whichever fits.
    let fits = keys.iter().fold(false, |fits, key| {
        fits | bool::from(key.expose().as_bytes().ct_eq(token))
    });
    scheme.eq_ignore_ascii_case(b"Bearer ") && fits
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn authorized(values: &[&'static str]) -> bool {
        let keys = ["one", "two-keys"].map(|key| Secret::try_new(key).unwrap());
        let mut fields = HeaderMap::new();
        for value in values {
            fields.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        is_authorized(&keys, &fields)
    }

    #[test]
    fn a_listed_key_opens() {
        assert!(authorized(&["Bearer one"]));
        assert!(authorized(&["bearer two-keys"]));
        assert!(is_authorized(&[], &HeaderMap::new()));
    }

    #[test]
    fn nothing_else_does() {
        for values in [
            &[][..],
            &["one"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer on"],
            &["Bearer onee"],
            &["Bearer One"],
            &["Bearer  one"],
            &["Bearer one "],
            &["Basic one"],
            &["Bearer one", "Bearer one"],
        ] {
            assert!(!authorized(values), "{values:?}");
        }
    }
}
