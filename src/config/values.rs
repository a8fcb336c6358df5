//! Reads a setting as what its key says it is: a number, a switch, a word, text.
//!
//! After a mistake, some value stands in, so that reading goes on to the next one.

use std::time::Duration;

use super::keys::{Key, Kind};
use super::reader::{Given, Number, Raw, Reader};
use super::report::Place;
use super::yaml::Node;

impl Reader<'_> {
    /// Notes a value that is of another kind than `expected`.
    pub(super) fn not_a(&mut self, given: &Given, expected: &str) {
        let what = if given.raw.is_null() {
            format!("has no value; it must be {expected}")
        } else {
            format!("{} is not {expected}", given.raw.shown())
        };
        self.report.mistake(&given.place, what);
    }

    /// A whole number within the bounds of the key; 0 after a mistake.
    pub(super) fn whole(&mut self, key: &Key) -> u64 {
        let given = self.given(key);
        let (Kind::Whole(least, most) | Kind::Millis(least, most)) = key.kind else {
            return 0;
        };
        let Some(Number::Whole(number)) = given.raw.number() else {
            self.not_a(&given, "a whole number");
            return 0;
        };
        match u64::try_from(number) {
            Ok(number) if (least..=most).contains(&number) => number,
            _ => {
                let what =
                    format!("{number} is not accepted; it must be between {least} and {most}");
                self.mistake(&given.place, what);
                0
            }
        }
    }

    /// Milliseconds within the bounds of the key.
    pub(super) fn millis(&mut self, key: &Key) -> Duration {
        Duration::from_millis(self.whole(key))
    }

    /// Milliseconds where 0 is off.
    pub(super) fn millis_or_off(&mut self, key: &Key) -> Option<Duration> {
        Some(self.millis(key)).filter(|time| !time.is_zero())
    }

    /// A share from 0 to 1; 1 after a mistake.
    pub(super) fn share(&mut self, key: &Key) -> f64 {
        let given = self.given(key);
        #[allow(clippy::cast_precision_loss)] // 0 or 1, or a mistake
        let share = match given.raw.number() {
            Some(Number::Whole(number)) => number as f64,
            Some(Number::Fraction(number)) => number,
            None => {
                self.not_a(&given, "a number");
                return 1.0;
            }
        };
        if (0.0..=1.0).contains(&share) {
            return share;
        }
        let what = format!("{share} is not accepted; it must be between 0 and 1");
        self.mistake(&given.place, what);
        1.0
    }

    /// `true` or `false`; `false` after a mistake.
    pub(super) fn switch(&mut self, key: &Key) -> bool {
        let given = self.given(key);
        match &given.raw {
            Raw::Node(Node::Bool(on)) => return *on,
            Raw::Typed(text) if text.eq_ignore_ascii_case("true") => return true,
            Raw::Typed(text) if text.eq_ignore_ascii_case("false") => return false,
            _ => {}
        }
        self.not_a(&given, "true or false");
        false
    }

    /// One of the words of the key; the first after a mistake.
    pub(super) fn choice(&mut self, key: &Key) -> &'static str {
        let given = self.given(key);
        let Kind::Choice(words, later) = key.kind else {
            return "";
        };
        let said = given.raw.text().unwrap_or_default();
        if let Some(word) = words.iter().find(|word| word.eq_ignore_ascii_case(said)) {
            return word;
        }
        let what = if later.iter().any(|word| word.eq_ignore_ascii_case(said)) {
            format!(
                "{said} is not available yet; accepted: {}",
                words.join(", ")
            )
        } else if given.raw.is_null() {
            format!("has no value; accepted: {}", words.join(", "))
        } else {
            format!(
                "{} is not accepted; accepted: {}",
                given.raw.shown(),
                words.join(", ")
            )
        };
        self.mistake(&given.place, what);
        words.first().copied().unwrap_or_default()
    }

    /// Text that is not empty, or nothing.
    pub(super) fn text(&mut self, key: &Key) -> Option<(Place, String)> {
        let given = self.given(key);
        if given.raw.is_null() {
            return None;
        }
        match given.raw.text() {
            Some("") => self.mistake(&given.place, "empty text is not accepted"),
            Some(text) if text.contains(char::is_control) => {
                self.mistake(&given.place, "text with control characters is not accepted");
            }
            Some(text) => return Some((given.place, text.to_owned())),
            None => self.not_a(&given, "text (put it in quotes)"),
        }
        None
    }

    /// Text, or nothing where it is empty.
    pub(super) fn text_or_empty(&mut self, key: &Key) -> Option<(Place, String)> {
        if self.given(key).raw.text() == Some("") {
            return None;
        }
        self.text(key)
    }
}
