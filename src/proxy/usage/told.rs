//! Reads the object that tells of tokens.

use serde::Deserialize;

use crate::record::Usage;

/// The object, under the names of all APIs.
#[derive(Debug, Default, Deserialize)]
struct Told {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

/// What an object says; nothing where it is none, or none of tokens.
pub(super) fn read(object: &[u8]) -> Usage {
    Told::flat(object)
        .or_else(|| serde_json::from_slice(object).ok())
        .map_or_else(Usage::default, Told::usage)
}

impl Told {
    /// Reads an object in which there are only counts, and details that are null: that is how most of
    /// them are, and every answer has one. `None` where it may be anything else.
    fn flat(object: &[u8]) -> Option<Self> {
        let mut told = Self::default();
        let mut rest = object.strip_prefix(b"{")?;
        loop {
            rest = unspaced(rest).strip_prefix(b"\"")?;
            let (key, after) = rest.split_at_checked(memchr::memchr(b'"', rest)?)?;
            rest = unspaced(after.strip_prefix(b"\"")?).strip_prefix(b":")?;
            let (count, after) = count_or_null(unspaced(rest))?;
            told.note(key, count)?;
            match unspaced(after).split_first()? {
                (b',', more) => rest = more,
                (b'}', []) => return Some(told),
                _ => return None,
            }
        }
    }

    /// Takes note of one member; `None` where it takes more to know what that means.
    fn note(&mut self, key: &[u8], count: Option<u64>) -> Option<()> {
        let known = match key {
            b"prompt_tokens" => &mut self.prompt_tokens,
            b"completion_tokens" => &mut self.completion_tokens,
            b"input_tokens" => &mut self.input_tokens,
            b"output_tokens" => &mut self.output_tokens,
            b"cache_read_input_tokens" => &mut self.cache_read_input_tokens,
            b"prompt_tokens_details" | b"input_tokens_details" => {
                return count.is_none().then_some(());
            }
            b"total_tokens" => return Some(()),
            // Others may be one of these in disguise, or no text.
            other => {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
                return other.iter().all(plain).then_some(());
            }
        };
        // Told twice is not told.
        known.replace(count?).is_none().then_some(())
    }

    fn usage(self) -> Usage {
        let details = self.prompt_tokens_details.or(self.input_tokens_details);
        let cached = details.and_then(|details| details.cached_tokens);
        Usage {
            prompt: self.prompt_tokens.or(self.input_tokens),
            cached: cached.or(self.cache_read_input_tokens),
            completion: self.completion_tokens.or(self.output_tokens),
        }
    }
}

fn unspaced(mut text: &[u8]) -> &[u8] {
    while let Some((b' ', rest)) = text.split_first() {
        text = rest;
    }
    text
}

/// A whole number or null, and what follows it.
fn count_or_null(text: &[u8]) -> Option<(Option<u64>, &[u8])> {
    /// So many digits are less than a `u64` can hold.
    const MOST: usize = 18;
    if let Some(rest) = text.strip_prefix(b"null") {
        return Some((None, rest));
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(digits)?;
    match digits {
        [] | [b'0', _, ..] => None,
        _ if digits.len() > MOST => None,
        _ => {
            let put = |sum, digit: &u8| 10 * sum + u64::from(digit - b'0');
            Some((Some(digits.iter().fold(0, put)), rest))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, whatever is in it.
    fn read_slowly(object: &[u8]) -> Usage {
        let told = serde_json::from_slice(object).ok();
        told.map_or_else(Usage::default, Told::usage)
    }

    #[test]
    fn what_engines_say_needs_no_parser() {
        for (object, expected) in [
            (
                r#"{"prompt_tokens":256,"completion_tokens":16,"total_tokens":272}"#,
                (Some(256), Some(16)),
            ),
            (
                r#"{"prompt_tokens": 5, "total_tokens": 5, "completion_tokens": 0, "prompt_tokens_details": null}"#,
                (Some(5), Some(0)),
            ),
            (r#"{"output_tokens":7}"#, (None, Some(7))),
        ] {
            let told = Told::flat(object.as_bytes()).map(Told::usage);
            let told = told.unwrap_or_else(|| panic!("{object}"));
            assert_eq!((told.prompt, told.completion), expected, "{object}");
            assert_eq!(told, read_slowly(object.as_bytes()));
        }
    }

    #[test]
    fn what_is_not_so_simple_is_left_to_the_parser() {
        for object in [
            "{}",
            "{",
            r#"{"prompt_tokens":5"#,
            r#"{"prompt_tokens":5}}"#,
            r#"{"prompt_tokens":5,}"#,
            r#"{"prompt_tokens":05}"#,
            r#"{"prompt_tokens":5.5}"#,
            r#"{"prompt_tokens":5e1}"#,
            r#"{"prompt_tokens":-5}"#,
            r#"{"prompt_tokens":null}"#,
            r#"{"prompt_tokens":18446744073709551615}"#,
            r#"{"prompt_tokens":18446744073709551616}"#,
            r#"{"prompt_tokens":5,"prompt_tokens":6}"#,
            r#"{"prompt_tokens_details":5}"#,
            r#"{"prompt_tokens_details":{"cached_tokens":3}}"#,
            r#"{"prompt\u005ftokens":5}"#,
            r#"{"total":nullx,"prompt_tokens":5}"#,
            "{\"a\nb\":1,\"prompt_tokens\":5}",
            "{\"prompt_tokens\":\n5}",
        ] {
            assert!(Told::flat(object.as_bytes()).is_none(), "{object}");
            assert_eq!(read(object.as_bytes()), read_slowly(object.as_bytes()));
        }
    }

    proptest::proptest! {
        #[test]
        fn both_ways_come_to_the_same(members in "(\"(prompt_tokens|completion_tokens|input_tokens|output_tokens|cache_read_input_tokens|prompt_tokens_details|total)\" ?: ?(null|0|[0-9]{1,3}|1[0-9]{17,19}|-1|1\\.5|\\{\\}), ?){0,4}") {
            let object = format!("{{{}}}", members.trim_end_matches([',', ' ']));
            // A parser minds details that are null twice, which nobody says.
            let details = object.matches("details").count();
            if details < 2 {
                proptest::prop_assert_eq!(read(object.as_bytes()), read_slowly(object.as_bytes()));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100)) {
            read(&bytes);
            read(&[b"{\"", &bytes[..]].concat());
        }
    }
}
