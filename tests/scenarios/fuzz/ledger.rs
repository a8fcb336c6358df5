//! What clients have asked for, against what engines were given.

use std::collections::HashMap;

use super::reading::Reading;
use crate::support::*;

/// Every request there was to be read, and how often it may be delivered yet.
#[derive(Default)]
pub struct Ledger {
    meant: HashMap<String, usize>,
    /// Of each engine, how many deliveries have been looked at.
    seen: HashMap<String, usize>,
}

impl Ledger {
    /// A client has asked for this, and engines may be given it so many times.
    pub fn meant(&mut self, reading: &Reading, times: usize) {
        *self.meant.entry(reading.told()).or_default() += times;
    }

    /// Takes the new deliveries of an engine; all of them, or what is wrong with one.
    pub fn settle(&mut self, engine: &ScriptedEngine) -> Result<Vec<Reading>, String> {
        let seen = self.seen.entry(engine.url()).or_default();
        let deliveries = engine.deliveries().split_off(*seen);
        *seen += deliveries.len();
        let mut found = Vec::new();
        for delivery in &deliveries {
            let reading = Reading::from(delivery);
            match self.meant.get_mut(&reading.told()) {
                Some(left @ 1..) => *left -= 1,
                Some(_) => return Err(format!("delivered once too often: {reading:?}")),
                None => return Err(format!("nobody asked for {delivery:?}")),
            }
            found.push(reading);
        }
        let errors = engine.protocol_errors();
        if errors.is_empty() {
            Ok(found)
        } else {
            Err(format!("an engine was sent bad HTTP: {errors:?}"))
        }
    }
}
