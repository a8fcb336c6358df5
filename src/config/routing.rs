//! How engines are chosen.

use super::keys::{
    BALANCE_ABS_THRESHOLD, BALANCE_REL_THRESHOLD, PREFIX_INDEX_BYTES, PREFIX_MIN_MATCH_LENGTH,
    PREFIX_TTL_MS, ROUTING_LOGIC,
};
use super::reader::{Number, Reader};
use crate::routing::{Balance, Kind, PrefixLimits, Routing};

/// Reads the logic and what belongs to it.
pub(super) fn read(reader: &mut Reader<'_>) -> Routing {
    let word = reader.choice(&ROUTING_LOGIC);
    let kind = Kind::WORDS.iter().find(|(known, _)| *known == word);
    Routing {
        kind: kind.map_or(Kind::RoundRobin, |(_, kind)| *kind),
        balance: Balance {
            #[allow(clippy::cast_precision_loss)] // at most a million
            difference: reader.whole(&BALANCE_ABS_THRESHOLD) as f64,
            ratio: ratio(reader),
        },
        prefix: PrefixLimits {
            least_match: size(reader.whole(&PREFIX_MIN_MATCH_LENGTH)),
            memory: size(reader.whole(&PREFIX_INDEX_BYTES)),
            ttl: reader.millis(&PREFIX_TTL_MS),
        },
    }
}

/// A factor of at least 1; 1 after a mistake.
fn ratio(reader: &mut Reader<'_>) -> f64 {
    let given = reader.given(&BALANCE_REL_THRESHOLD);
    #[allow(clippy::cast_precision_loss)] // a ratio beyond 2^53 is none the worse for it
    let ratio = match given.raw.number() {
        Some(Number::Whole(number)) => number as f64,
        Some(Number::Fraction(number)) => number,
        None => {
            reader.not_a(&given, "a number");
            return 1.0;
        }
    };
    if ratio.is_finite() && ratio >= 1.0 {
        return ratio;
    }
    let what = format!("{ratio} is not accepted; it must be a finite number of at least 1");
    reader.mistake(&given.place, what);
    1.0
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
