//! The field `traceparent` of [W3C Trace Context](https://www.w3.org/TR/trace-context-2/).

use std::fmt;

use opentelemetry::trace::{SpanId, TraceFlags, TraceId};

/// The length of a `traceparent` of the version we write, in bytes.
const LENGTH: usize = 55;
/// The version that is none.
const FORBIDDEN_VERSION: u8 = 0xFF;
/// Whether the trace's id was drawn at random: said by whoever drew it, and passed on.
const RANDOM: u8 = 0x02;

/// The span a request belongs to, as its sender tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace.
    pub trace: TraceId,
    /// The sender's span.
    pub span: SpanId,
    /// Whether the trace is recorded.
    pub flags: TraceFlags,
}

impl TraceParent {
    /// Reads the value of the field; `None` for what the standard has everybody ignore.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let version = u8::try_from(hex(parts.next()?, 2)?).ok()?;
        let trace = hex(parts.next()?, 32)?;
        let span = u64::try_from(hex(parts.next()?, 16)?).ok()?;
        let flags = u8::try_from(hex(parts.next()?, 2)?).ok()?;
        // Later versions may say more behind it, of which we know nothing.
        let ends = match version {
            FORBIDDEN_VERSION => false,
            0 => rest.is_empty(),
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        (ends && trace != 0 && span != 0).then(|| Self {
            trace: TraceId::from(trace),
            span: SpanId::from(span),
            flags: TraceFlags::new(flags & (TraceFlags::SAMPLED.to_u8() | RANDOM)),
        })
    }
}

/// As the field's value, in the first version.
impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// A number of exactly so many hexadecimal digits, none of them in upper case.
fn hex(text: &[u8], digits: usize) -> Option<u128> {
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if text.len() != digits || !text.iter().all(is_digit) {
        return None;
    }
    u128::from_str_radix(str::from_utf8(text).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_parent_is_read_and_written() {
        let text = format!("00-{TRACE}-{SPAN}-01");
        let parent = TraceParent::parse(text.as_bytes()).unwrap();
        assert_eq!(parent.trace.to_string(), TRACE);
        assert_eq!(parent.span.to_string(), SPAN);
        assert!(parent.flags.is_sampled());
        assert_eq!(parent.to_string(), text);
    }

    #[test]
    fn of_the_flags_those_that_mean_something_are_kept() {
        for (given, kept) in [
            ("00", "00"),
            ("01", "01"),
            ("02", "02"),
            ("ff", "03"),
            ("fc", "00"),
        ] {
            let text = format!("00-{TRACE}-{SPAN}-{given}");
            let parent = TraceParent::parse(text.as_bytes()).unwrap();
            assert_eq!(parent.to_string(), format!("00-{TRACE}-{SPAN}-{kept}"));
        }
    }

    #[test]
    fn a_later_version_may_say_more() {
        for text in [
            format!("01-{TRACE}-{SPAN}-01"),
            format!("fe-{TRACE}-{SPAN}-01-what-the-future-brings"),
        ] {
            let parent = TraceParent::parse(text.as_bytes()).unwrap();
            assert_eq!(parent.to_string(), format!("00-{TRACE}-{SPAN}-01"));
        }
    }

    #[test]
    fn what_is_no_parent_is_ignored() {
        for text in [
            String::new(),
            format!("ff-{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}-{SPAN}-01-more"),
            format!("00-{TRACE}-{SPAN}-01-"),
            format!("01-{TRACE}-{SPAN}-01.more"),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}-0g"),
            format!("00-{TRACE}-{SPAN}"),
            format!("0-0{TRACE}-{SPAN}-01"),
            format!("00-{TRACE}0-{}-01", &SPAN[1..]),
            format!("00-{}-{SPAN}-01", TRACE.to_uppercase()),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!(" 00-{TRACE}-{SPAN}-01"),
            format!("00_{TRACE}-{SPAN}-01"),
            format!("00-+{}-{SPAN}-01", &TRACE[1..]),
            format!("{TRACE}-{SPAN}-01"),
        ] {
            assert_eq!(TraceParent::parse(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_can_be_written_and_read_again(
            value in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,3})?"
        ) {
            if let Some(parent) = TraceParent::parse(value.as_bytes()) {
                prop_assert_eq!(TraceParent::parse(parent.to_string().as_bytes()), Some(parent));
                prop_assert_eq!(&parent.to_string()[3..52], &value[3..52]);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(value: Vec<u8>) {
            let _ = TraceParent::parse(&value);
        }
    }
}
