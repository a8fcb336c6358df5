//! Which engine serves a request.
//!
//! A logic is given the number of engines of the pool and what the request may do with each of
//! them, and returns the place of one. It knows neither clocks nor sockets.

mod round_robin;

pub use round_robin::RoundRobin;

use crate::retry::Standing;

/// The best standing any engine has, for those that choose among equals.
fn best_of(count: usize, standing: &dyn Fn(usize) -> Standing) -> Option<Standing> {
    let mut best = None;
    for place in 0..count {
        match standing(place) {
            Standing::Eligible => return Some(Standing::Eligible),
            Standing::Last => best = Some(Standing::Last),
            Standing::Excluded => {}
        }
    }
    best
}
