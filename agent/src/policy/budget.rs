//! How much may be sent: in all, to one address, into one network, and to addresses never seen.
//!
//! The coordinator cannot raise any of these. An agent that obeyed a stolen coordinator could else be
//! turned against one address (a flood) or against many (a scan).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::{self, Instant};

/// Most addresses and networks that are counted apart, each. Beyond them a new one is refused rather
/// than an old one forgotten: forgetting would open the limit to whoever names many.
const COUNTED_MAX: usize = 2048;

/// An address not contacted for this long is new again.
const REMEMBERED_FOR: Duration = Duration::from_secs(3600);

/// Which limit is used up, by its key in the owner's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Probes of addresses a minute.
    Connections,
    /// Probes of one address a minute.
    ConnectionsToOne,
    /// Probes into one /24 or /48 a minute.
    ConnectionsToNetwork,
    /// Questions to resolvers a minute.
    Questions,
    /// Questions to one resolver's address a minute.
    QuestionsToOne,
    /// Addresses an hour that were not contacted in the hour before.
    NewAddresses,
    /// Addresses that are counted apart: fixed, no key.
    Counted,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let key = match self {
            Self::Connections => "connections_per_minute",
            Self::ConnectionsToOne => "connections_per_minute_to_one",
            Self::ConnectionsToNetwork => "connections_per_minute_to_network",
            Self::Questions => "questions_per_minute",
            Self::QuestionsToOne => "questions_per_minute_to_one",
            Self::NewAddresses => "new_addresses_per_hour",
            Self::Counted => {
                return write!(
                    f,
                    "{COUNTED_MAX} addresses an hour are all that one agent contacts; nothing raises that"
                );
            }
        };
        write!(f, "to allow more raise allow.{key} in the owner's file")
    }
}

/// The limits of one kind of traffic, each with the name of its key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) in_all: (u32, Limit),
    pub(super) to_one: (u32, Limit),
    pub(super) to_network: (u32, Limit),
    pub(super) new_ones: (u32, Limit),
}

/// What is left of the limits of one kind of traffic.
#[derive(Debug)]
pub(super) struct Budget {
    rates: Rates,
    left: Mutex<Left>,
}

#[derive(Debug)]
struct Left {
    in_all: Bucket,
    new_ones: Bucket,
    ones: BTreeMap<IpAddr, Bucket>,
    networks: BTreeMap<IpAddr, Bucket>,
    left_out: u64,
}

impl Budget {
    pub(super) fn new(rates: Rates) -> Self {
        let now = clock::now();
        let left = Left {
            in_all: Bucket::new(rates.in_all.0, now),
            new_ones: Bucket::hourly(rates.new_ones.0, now),
            ones: BTreeMap::new(),
            networks: BTreeMap::new(),
            left_out: 0,
        };
        Self { rates, left: Mutex::new(left) }
    }

    /// Takes one for this address from every limit, or from none.
    pub(super) fn take(&self, to: IpAddr) -> Result<(), Limit> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = left.take(&self.rates, to, clock::now());
        if let Err(limit) = taken {
            left.left_out = left.left_out.saturating_add(1);
            // Every power of two: a limit that is always reached must not fill the log.
            if left.left_out.is_power_of_two() {
                tracing::warn!(left_out = left.left_out, %to, "a limit is used up: {limit}");
            }
        }
        taken
    }
}

impl Left {
    fn take(&mut self, rates: &Rates, to: IpAddr, now: Instant) -> Result<(), Limit> {
        let network = network_of(to);
        let is_new = !self.ones.contains_key(&to);
        if is_new && self.ones.len() >= COUNTED_MAX {
            let remembered = |bucket: &mut Bucket| now.saturating_duration_since(bucket.at) < REMEMBERED_FOR;
            self.ones.retain(|_, bucket| remembered(bucket));
            self.networks.retain(|_, bucket| remembered(bucket));
            if self.ones.len() >= COUNTED_MAX {
                return Err(Limit::Counted);
            }
        }
        let expired =
            self.ones.get(&to).is_some_and(|bucket| now.saturating_duration_since(bucket.at) >= REMEMBERED_FOR);
        let one = self.ones.get(&to).copied().unwrap_or_else(|| Bucket::new(rates.to_one.0, now));
        let near = self.networks.get(&network).copied().unwrap_or_else(|| Bucket::new(rates.to_network.0, now));
        let in_all = self.in_all.less_one(now).ok_or(rates.in_all.1)?;
        let one = one.less_one(now).ok_or(rates.to_one.1)?;
        let near = near.less_one(now).ok_or(rates.to_network.1)?;
        if is_new || expired {
            self.new_ones = self.new_ones.less_one(now).ok_or(rates.new_ones.1)?;
        }
        self.in_all = in_all;
        self.ones.insert(to, one);
        self.networks.insert(network, near);
        Ok(())
    }
}

/// The /24 or /48 an address is in: about what one site holds.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from(u32::from(v4) & 0xffff_ff00)),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) & (!0 << 80))),
    }
}

/// A bucket that holds half of a period's allowance and refills evenly: a round may come at once,
/// and no period sees more than one and a half times the limit.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    per_minute: f64,
    size: f64,
    holds: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: u32, now: Instant) -> Self {
        let size = (f64::from(per_minute) / 2.0).max(1.0);
        Self { per_minute: f64::from(per_minute), size, holds: size, at: now }
    }

    fn hourly(per_hour: u32, now: Instant) -> Self {
        let size = (f64::from(per_hour) / 2.0).max(1.0);
        Self { per_minute: f64::from(per_hour) / 60.0, size, holds: size, at: now }
    }

    /// The bucket after one was taken; `None` when it holds none.
    fn less_one(mut self, now: Instant) -> Option<Self> {
        let gained = now.saturating_duration_since(self.at).as_secs_f64() / 60.0 * self.per_minute;
        self.at = now;
        self.holds = (self.holds + gained).min(self.size);
        (self.holds >= 1.0).then_some(Self { holds: self.holds - 1.0, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(in_all: u32, to_one: u32, to_network: u32, new_ones: u32) -> Budget {
        Budget::new(Rates {
            in_all: (in_all, Limit::Connections),
            to_one: (to_one, Limit::ConnectionsToOne),
            to_network: (to_network, Limit::ConnectionsToNetwork),
            new_ones: (new_ones, Limit::NewAddresses),
        })
    }

    fn address(network: u16, host: u8) -> IpAddr {
        let [high, low] = network.to_be_bytes();
        IpAddr::from([9, high, low, host])
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_has_a_limit_of_its_own_and_leaves_the_rest_to_others() {
        let budget = budget(600, 60, 600, 600);
        let taken = (0..).take_while(|_| budget.take(address(0, 1)).is_ok()).count();
        assert_eq!(taken, 30);
        assert_eq!(budget.take(address(0, 1)), Err(Limit::ConnectionsToOne));
        assert_eq!(budget.take(address(0, 2)), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(budget.take(address(0, 1)), Ok(()));
        assert_eq!(budget.take(address(0, 1)), Err(Limit::ConnectionsToOne));
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_cannot_be_swept() {
        let budget = budget(6000, 60, 20, 6000);
        let taken = (1..255).filter(|host| budget.take(address(0, *host)).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(budget.take(address(0, 99)), Err(Limit::ConnectionsToNetwork));
        assert_eq!(budget.take(address(1, 99)), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn new_addresses_are_counted_by_the_hour_and_a_refusal_costs_nothing() {
        let budget = budget(60_000, 60, 60_000, 20);
        let taken = (0..100).filter(|network| budget.take(address(*network, 1)).is_ok()).count();
        assert_eq!(taken, 10);
        assert_eq!(budget.take(address(50, 1)), Err(Limit::NewAddresses));
        assert_eq!(budget.take(address(3, 1)), Ok(()), "one that is known goes on");
        tokio::time::advance(Duration::from_secs(180)).await;
        assert_eq!(budget.take(address(50, 1)), Ok(()), "one in three minutes");
        assert_eq!(budget.take(address(51, 1)), Err(Limit::NewAddresses));
        tokio::time::advance(REMEMBERED_FOR).await;
        let taken = (0..100).filter(|network| budget.take(address(*network, 1)).is_ok()).count();
        assert_eq!(taken, 10, "after an hour all are new");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_counted_apart_is_bounded() {
        let budget = budget(u32::MAX, 600, u32::MAX, u32::MAX);
        for network in 0..3000 {
            let _ = budget.take(address(network, 1));
        }
        assert_eq!(budget.left.lock().unwrap().ones.len(), COUNTED_MAX);
        assert_eq!(budget.take(address(2999, 1)), Err(Limit::Counted));
        tokio::time::advance(REMEMBERED_FOR).await;
        assert_eq!(budget.take(address(2999, 1)), Ok(()));
    }

    #[test]
    fn networks_are_a_sites_size() {
        assert_eq!(network_of("104.26.4.10".parse().unwrap()), "104.26.4.0".parse::<IpAddr>().unwrap());
        assert_eq!(network_of("2606:4700:1:2::3".parse().unwrap()), "2606:4700:1::".parse::<IpAddr>().unwrap());
    }
}
