//! "Did you mean": the known name that is closest to an unknown one.

/// The closest of `known`, if it is close enough to be what was meant.
///
/// Close enough is at most two letters added, dropped or changed, and never more than a third.
pub(super) fn closest<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let given = given.to_ascii_lowercase().replace('-', "_");
    known
        .map(|name| (distance(&given, name), name))
        .filter(|(apart, name)| *apart <= 2 && apart * 3 <= name.len())
        .min_by_key(|(apart, _)| *apart)
        .map(|(_, name)| name)
}

/// `; did you mean NAME`, or nothing.
pub(super) fn hint<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> String {
    closest(given, known).map_or_else(String::new, |name| format!("; did you mean {name}"))
}

/// Letters to add, drop or change to get from one word to the other (Levenshtein).
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (taken, letter) in from.chars().enumerate() {
        let mut next = vec![taken + 1];
        for (goal, pair) in to.iter().zip(row.windows(2)) {
            if let ([above_left, above], Some(left)) = (pair, next.last()) {
                let change = above_left + usize::from(*goal != letter);
                next.push(change.min(above + 1).min(left + 1));
            }
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_letters() {
        for (from, to, apart) in [
            ("", "", 0),
            ("", "ab", 2),
            ("port", "port", 0),
            ("prt", "port", 1),
            ("max_retry", "max_retries", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), apart, "{from} {to}");
        }
    }

    #[test]
    fn only_a_close_name_is_suggested() {
        let known = ["port", "max_retries", "url"];
        for (given, expected) in [
            ("prot", None),
            ("ports", Some("port")),
            ("max-retries", Some("max_retries")),
            ("MAX_RETRYES", Some("max_retries")),
            ("urk", Some("url")),
            ("colour", None),
        ] {
            assert_eq!(closest(given, known.into_iter()), expected, "{given}");
        }
    }
}
