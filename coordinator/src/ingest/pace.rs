//! How often strangers may ask: anybody can reach the enrolment service, and each answer costs a signature
//! and a transaction.
//!
//! Each address has a bucket of tries that fills again with time; an IPv6 address counts as its /64 network,
//! which one machine has to itself. A try that was refused costs more. There is one bucket for all as well.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::source::network;

/// Tries of one address in a row: a site behind one address may set up some dozens of agents at once.
const TRIES_MAX: f64 = 60.0;
/// Tries of one address in the long run, a second.
const TRIES_A_SECOND: f64 = 1.0;
/// Tries of all together in a row.
const ALL_TRIES_MAX: f64 = 500.0;
/// Tries of all together in the long run, a second: a fleet of ten thousand is enrolled within two minutes.
const ALL_TRIES_A_SECOND: f64 = 100.0;
/// What a refusal costs on top, in tries: guessing must not be cheap.
const REFUSAL_COSTS: f64 = 5.0;
/// Addresses that are remembered: about 1 MiB. Those with full buckets are forgotten first.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tries: f64,
    at: Instant,
}

impl Bucket {
    fn filled(self, now: Instant, a_second: f64, most: f64) -> Self {
        let tries = self.tries + now.saturating_duration_since(self.at).as_secs_f64() * a_second;
        Self { tries: tries.min(most), at: now }
    }
}

#[derive(Debug, Default)]
struct State {
    all: Option<Bucket>,
    each: BTreeMap<IpAddr, Bucket>,
}

/// The buckets.
#[derive(Debug, Default)]
pub struct Pace(Mutex<State>);

impl Pace {
    /// Takes a try of an address, or says after how long there is one again.
    ///
    /// # Errors
    /// The time to wait.
    pub fn take(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        let key = network(address);
        let fresh = |tries| Bucket { tries, at: now };
        let all = state.all.unwrap_or(fresh(ALL_TRIES_MAX)).filled(now, ALL_TRIES_A_SECOND, ALL_TRIES_MAX);
        let each = state.each.get(&key).copied().unwrap_or(fresh(TRIES_MAX)).filled(now, TRIES_A_SECOND, TRIES_MAX);
        for (bucket, a_second) in [(each, TRIES_A_SECOND), (all, ALL_TRIES_A_SECOND)] {
            if bucket.tries < 1.0 {
                return Err(Duration::from_secs_f64(((1.0 - bucket.tries) / a_second).clamp(1.0, 3600.0)));
            }
        }
        if state.each.len() >= ADDRESSES_MAX && !state.each.contains_key(&key) {
            state.each.retain(|_, one| one.filled(now, TRIES_A_SECOND, TRIES_MAX).tries < TRIES_MAX);
            if state.each.len() >= ADDRESSES_MAX {
                return Err(Duration::from_secs(60));
            }
        }
        state.all = Some(Bucket { tries: all.tries - 1.0, ..all });
        state.each.insert(key, Bucket { tries: each.tries - 1.0, ..each });
        Ok(())
    }

    /// Notes that a try was refused.
    pub fn refused(&self, address: IpAddr) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = state.each.get_mut(&network(address)) {
            bucket.tries -= REFUSAL_COSTS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn an_address_may_try_some_times_and_then_waits() {
        let (pace, now) = (Pace::default(), monotonic());
        let one: IpAddr = "192.0.2.1".parse().unwrap();
        for _ in 0..60 {
            pace.take(one, now).unwrap();
        }
        let wait = pace.take(one, now).unwrap_err();
        assert_eq!(wait, Duration::from_secs(1));
        pace.take("192.0.2.2".parse().unwrap(), now).unwrap();
        pace.take(one, now + wait).unwrap();
        assert!(pace.take(one, now + wait).is_err());
    }

    #[test]
    fn guessing_is_slower() {
        let (pace, now) = (Pace::default(), monotonic());
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let mut tries = 0;
        while pace.take(one, now).is_ok() {
            pace.refused(one);
            tries += 1;
        }
        assert_eq!(tries, 10);
        // Another address of the same network is the same machine.
        assert!(pace.take("2001:db8::2".parse().unwrap(), now).is_err());
        pace.take("2001:db8:0:1::1".parse().unwrap(), now).unwrap();
    }

    #[test]
    fn many_addresses_neither_fill_memory_nor_get_past_the_common_limit() {
        let (pace, now) = (Pace::default(), monotonic());
        let taken = (0..20_000_u32).filter(|n| pace.take(IpAddr::from(n.to_be_bytes()), now).is_ok()).count();
        assert_eq!(taken, 500);
        for n in 0..20_000_u32 {
            let _ = pace.take(IpAddr::from(n.to_be_bytes()), now + Duration::from_secs(u64::from(n)));
        }
        assert!(pace.0.lock().unwrap().each.len() <= ADDRESSES_MAX + 1);
    }
}
