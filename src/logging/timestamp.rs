//! Times as they stand in a line: `2026-01-01T12:00:00.000Z`.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;

/// Writes times, and keeps the text of the last second: the next line is nearly always of the same.
#[derive(Debug, Default)]
pub(super) struct Timestamps {
    second: u64,
    text: String,
}

impl Timestamps {
    /// Appends `now`, in UTC.
    pub(super) fn write(&mut self, now: SystemTime, out: &mut String) {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.text.is_empty() {
            self.second = since.as_secs();
            self.text.clear();
            let (year, month, day) = date(self.second / DAY);
            let of_day = self.second % DAY;
            let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
            let _ = write!(
                self.text,
                "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}."
            );
        }
        out.push_str(&self.text);
        let millis = since.subsec_millis();
        for digit in [millis / 100, millis / 10 % 10, millis % 10] {
            out.push(char::from_digit(digit, 10).unwrap_or('0'));
        }
        out.push('Z');
    }
}

/// The year, month and day so many days after 1970-01-01.
///
/// Years are counted from March, so that the day that some have and others have not is their last
/// one; 400 of them have the same number of days always.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    /// From 0000-03-01 to 1970-01-01.
    const TO_1970: u64 = 719_468;
    let days = days + TO_1970;
    let (cycle, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    // Each fourth year is a day longer, but for each hundredth, but for each four hundredth.
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (cycle * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(since: Duration) -> String {
        let mut out = String::new();
        Timestamps::default().write(UNIX_EPOCH + since, &mut out);
        out
    }

    #[test]
    fn times_are_those_of_utc() {
        for (seconds, millis, expected) in [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, 999, "2000-02-28T23:59:59.999Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (1_767_268_800, 7, "2026-01-01T12:00:00.007Z"),
            (4_107_542_399, 0, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
        ] {
            let since = Duration::from_secs(seconds) + Duration::from_millis(millis);
            assert_eq!(text(since), expected);
        }
    }

    #[test]
    fn the_text_of_a_second_is_not_that_of_another() {
        let mut times = Timestamps::default();
        let mut out = String::new();
        for millis in [0, 999, 1000, 60_000, 60_001] {
            times.write(UNIX_EPOCH + Duration::from_millis(millis), &mut out);
        }
        let expected = [
            "00:00.000",
            "00:00.999",
            "00:01.000",
            "01:00.000",
            "01:00.001",
        ];
        let expected = expected
            .map(|time| format!("1970-01-01T00:{time}Z"))
            .concat();
        assert_eq!(out, expected);
    }

    proptest::proptest! {
        #[test]
        fn they_are_those_of_http_dates(seconds in 0u64..20_000_000_000) {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            let http = httpdate::fmt_http_date(at);
            let fields: Vec<&str> = http.split([' ', ',']).collect();
            let [_, _, day, month, year, time, _] = fields[..] else {
                panic!("{http}");
            };
            let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
            let month = months.find(month).unwrap() / 3 + 1;
            let expected = format!("{year}-{month:02}-{day}T{time}.000Z");
            proptest::prop_assert_eq!(text(Duration::from_secs(seconds)), expected);
        }
    }
}
