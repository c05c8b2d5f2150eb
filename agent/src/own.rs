//! The networks that this machine is in itself. Nobody from outside may have the agent look around there:
//! what is next to it often trusts it.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use parallax_decide::address::embedded_v4;

use crate::clock::{Instant, now};

/// The networks are read again after this long: addresses come and go.
const FRESH: Duration = Duration::from_secs(60);

/// Most addresses that are looked at. A machine with more is a router, whose owner knows what to allow.
const ADDRESSES_MAX: usize = 1024;

/// A network larger than this is no neighbourhood (a tunnel that takes everything is set up so): of it
/// the machine's own address alone is meant.
const SHORTEST_PREFIX_V4: u8 = 8;
const SHORTEST_PREFIX_V6: u8 = 32;

/// This machine's own networks, as of at most a minute ago.
#[derive(Debug, Default)]
pub struct Own {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    read_at: Option<Instant>,
    networks: Vec<IpNet>,
    /// That they cannot be read was said: once, and not each minute.
    complained: bool,
}

impl Own {
    /// The own network that holds an address, after decoding the IPv6 forms that carry an IPv4 address.
    #[must_use]
    pub fn network_of(&self, address: IpAddr) -> Option<IpNet> {
        let inner = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(address) => embedded_v4(address).map(IpAddr::V4),
        };
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.refresh(now());
        let holds =
            |network: &&IpNet| network.contains(&address) || inner.is_some_and(|inner| network.contains(&inner));
        held.networks.iter().find(holds).copied()
    }
}

impl Held {
    fn refresh(&mut self, now: Instant) {
        if self.read_at.is_some_and(|read_at| now.saturating_duration_since(read_at) < FRESH) {
            return;
        }
        self.read_at = Some(now);
        match networks() {
            Ok(networks) => (self.networks, self.complained) = (networks, false),
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::warn!(
                        %error,
                        networks = self.networks.len(),
                        "cannot read this machine's own addresses, only the networks read before are left alone; let \
                         the service use AF_NETLINK sockets (RestrictAddressFamilies of systemd.exec(5))"
                    );
                }
            }
        }
    }
}

/// The networks of this machine's interfaces, whether they are up or not.
///
/// # Errors
/// What the kernel said.
pub fn networks() -> nix::Result<Vec<IpNet>> {
    let mut networks: Vec<IpNet> = getifaddrs()?.filter_map(|one| network(&one)).take(ADDRESSES_MAX).collect();
    networks.sort_unstable();
    networks.dedup();
    Ok(networks)
}

fn network(interface: &InterfaceAddress) -> Option<IpNet> {
    let address = interface.address.as_ref()?;
    let mask = interface.netmask.as_ref();
    if let Some(address) = address.as_sockaddr_in() {
        let mask = mask.and_then(|mask| mask.as_sockaddr_in()).map(|mask| mask.ip());
        let network = mask.and_then(|mask| Ipv4Net::with_netmask(address.ip(), mask).ok());
        let network = network.filter(|network| network.prefix_len() >= SHORTEST_PREFIX_V4);
        return Some(network.unwrap_or(Ipv4Net::from(address.ip())).trunc().into());
    }
    let address = address.as_sockaddr_in6()?;
    let mask = mask.and_then(|mask| mask.as_sockaddr_in6()).map(|mask| mask.ip());
    let network = mask.and_then(|mask| Ipv6Net::with_netmask(address.ip(), mask).ok());
    let network = network.filter(|network| network.prefix_len() >= SHORTEST_PREFIX_V6);
    Some(network.unwrap_or(Ipv6Net::from(address.ip())).trunc().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::{inside, sh};

    fn shown(address: &str, own: &Own) -> Option<String> {
        own.network_of(address.parse().unwrap()).map(|network| network.to_string())
    }

    #[test]
    fn networks_come_from_the_interfaces_and_are_read_again_after_a_minute() {
        if !inside(module_path!(), "networks_come_from_the_interfaces_and_are_read_again_after_a_minute") {
            return;
        }
        sh("ip link add one type veth peer name two
            ip addr add 104.26.4.1/24 dev one; ip addr add 8.6.112.5/32 dev one
            ip addr add 9.9.9.9/0 dev one; ip addr add 2606:4700::1/64 dev one nodad; ip link set one up");
        let found: Vec<String> = networks().unwrap().iter().map(IpNet::to_string).collect();
        for network in ["127.0.0.0/8", "104.26.4.0/24", "8.6.112.5/32", "9.9.9.9/32", "2606:4700::/64", "::1/128"] {
            assert!(found.iter().any(|one| one == network), "{network} in {found:?}");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let own = Own::default();
            assert_eq!(shown("104.26.4.200", &own).as_deref(), Some("104.26.4.0/24"));
            assert_eq!(shown("2002:681a:4c8::1", &own).as_deref(), Some("104.26.4.0/24"), "6to4 of 104.26.4.200");
            assert_eq!(shown("9.9.9.10", &own), None);
            sh("ip addr del 104.26.4.1/24 dev one");
            tokio::time::advance(Duration::from_secs(59)).await;
            assert!(shown("104.26.4.200", &own).is_some());
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(shown("104.26.4.200", &own), None);
        });
    }
}
