//! Where connections come from: how many of one source there are at the same time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What counts as one source: an address, or a whole /64 of IPv6, which one machine may use at will.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// How many connections each source has. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Sources {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    from_one_max: usize,
}

/// One connection of a source; it counts until this is dropped.
#[derive(Debug)]
pub struct FromOne {
    sources: Sources,
    source: IpAddr,
}

impl Sources {
    /// Of each source at most so many at the same time.
    #[must_use]
    pub fn new(from_one_max: usize) -> Self {
        Self { counts: Arc::default(), from_one_max }
    }

    /// Takes in one more of a source; `None`: it has its share.
    #[must_use]
    pub fn enter(&self, address: IpAddr) -> Option<FromOne> {
        let source = network(address);
        let mut counts = self.lock();
        let count = counts.entry(source).or_default();
        if *count >= self.from_one_max {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(FromOne { sources: self.clone(), source })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        // Each change of it is one call: it stays whole even if a holder panicked.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FromOne {
    fn drop(&mut self) {
        let mut counts = self.sources.lock();
        if let Some(count) = counts.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }

    #[test]
    fn a_source_has_its_share_until_one_of_it_goes() {
        let sources = Sources::new(2);
        let (one, other): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let held = [sources.enter(one).unwrap(), sources.enter(one).unwrap()];
        assert!(sources.enter(one).is_none());
        let _others = sources.enter(other).unwrap();
        drop(held);
        assert!(sources.enter(one).is_some());
        assert_eq!(sources.lock().len(), 1, "who has gone is forgotten");
    }
}
