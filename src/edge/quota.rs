//! How many connections one client address may have open.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the open connections of each address.
#[derive(Debug, Default)]
pub(super) struct Quota {
    open: Mutex<HashMap<IpAddr, usize>>,
}

impl Quota {
    /// Counts a connection until the guard is dropped; `None` where it is one more than `limit`.
    /// Without a limit all count, too, since there may be one later.
    pub(super) fn enter(
        self: &Arc<Self>,
        address: IpAddr,
        limit: Option<NonZeroUsize>,
    ) -> Option<Counted> {
        // An IPv4 client is the same one on a listener for both families.
        let address = address.to_canonical();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if limit.is_some_and(|limit| *count >= limit.get()) {
            return None;
        }
        *count += 1;
        Some(Counted {
            quota: Arc::clone(self),
            address,
        })
    }
}

/// A connection that is counted.
#[derive(Debug)]
pub(super) struct Counted {
    quota: Arc<Quota>,
    address: IpAddr,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self
            .quota
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count_and_gets_it_back() {
        let quota = Arc::new(Quota::default());
        let limit = NonZeroUsize::new(2);
        let (a, b) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let held: Vec<_> = (0..2).map(|_| quota.enter(a, limit).unwrap()).collect();
        assert!(quota.enter(a, limit).is_none());
        assert!(
            quota
                .enter("::ffff:10.0.0.1".parse().unwrap(), limit)
                .is_none()
        );
        assert!(quota.enter(b, limit).is_some());
        drop(held);
        assert!(quota.enter(a, limit).is_some());
        assert!(
            quota.open.lock().unwrap().is_empty(),
            "addresses without connections are forgotten"
        );
    }
}
