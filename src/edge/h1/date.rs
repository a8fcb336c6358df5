//! The time of day as a header field says it.

use std::cell::RefCell;
use std::time::{Duration, SystemTime};

thread_local! {
    /// The second that was told last, and how it is written.
    static LAST: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

/// Calls `tell` with now, as an `IMF-fixdate` (RFC 9110 section 5.6.7); written once a second.
pub(super) fn with_now<T>(tell: impl FnOnce(&str) -> T) -> T {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let second = since.unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second || text.is_empty() {
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            *text = httpdate::fmt_http_date(time);
            *last = second;
        }
        tell(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_second_that_runs() {
        let before = SystemTime::now() - Duration::from_secs(1);
        let told = with_now(|text| httpdate::parse_http_date(text).unwrap());
        assert!((before..=SystemTime::now()).contains(&told));
    }
}
