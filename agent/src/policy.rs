//! What may be contacted. The owner's word; the coordinator cannot widen it.
//!
//! Only global unicast addresses, after decoding the IPv6 forms that carry an IPv4 address, none of
//! the networks that this machine is in itself, and only on the owner's ports; the owner may open more, but not what
//! [`mod@never`] lists. The live resolver and the proxy are exempt: they are the owner's own choice, by file or by
//! `/etc/resolv.conf`, and are never given by the coordinator.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use parallax_decide::address::special_purpose;
use parallax_decide::observation::Outcome;
use parallax_proto::LIFE_PORT;

use crate::local::Allow;
use crate::own::Own;

mod budget;
pub mod never;

pub use budget::Limit;
use budget::{Budget, Rates};
use never::plain;

/// The one documentation address (RFC 5737) that a control may contact: nothing can answer there,
/// so an answer exposes a middlebox that accepts everything.
pub const NEGATIVE_CONTROL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Ports resolvers may use besides the owner's list: DNS, DoH (RFC 8484), DoT (RFC 7858).
const RESOLVER_PORTS: [u16; 3] = [53, 443, 853];

/// The port that the captive-portal question may use besides the owner's list: portals answer plain HTTP.
const CAPTIVE_PORT: u16 = 80;

/// What an address is contacted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A canary's address, a node, or a positive control.
    Target,
    /// A control that must stay silent.
    NegativeControl,
    /// A server of the captive-portal question.
    Captive,
    /// A resolver's endpoint.
    Resolver,
    /// What answers on a node for its life.
    Responder,
}

/// Why an address is not contacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It is special-purpose and in no network the owner allows.
    #[error("{0} is special-purpose ({1}); to allow it add its network to allow.private in the owner's file")]
    Special(IpAddr, &'static str),
    /// It is in a network that this machine itself is in, and in none the owner allows.
    #[error("{0} is in this machine's own network {1}; to allow it add that to allow.private in the owner's file")]
    Own(IpAddr, IpNet),
    /// It is one that nobody may open: this machine itself, link-local and metadata services, multicast, no
    /// address at all.
    #[error("{0} is never contacted ({1}), whatever the owner's file allows")]
    Never(IpAddr, &'static str),
    /// The owner does not allow the port.
    #[error("port {0} is not allowed; add it to allow.ports in the owner's file")]
    Port(u16),
    /// The owner does not let paths be looked for.
    #[error("paths are not looked for; to allow it set allow.paths in the owner's file")]
    Paths,
    /// A limit of the owner's is used up: own trouble, says nothing about the address.
    #[error("a limit is used up: {0}")]
    Rate(Limit),
}

impl Denial {
    /// The outcome of what was left out because of it.
    #[must_use]
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Special(..) | Self::Never(..) => Outcome::SpecialAddress,
            Self::Own(..) | Self::Port(_) | Self::Paths => Outcome::RefusedByPolicy,
            Self::Rate(_) => Outcome::RateLimited,
        }
    }
}

/// The owner's policy with its counters.
#[derive(Debug)]
pub struct Policy {
    allow: Allow,
    /// Blocks that the owner cannot open.
    never: &'static [&'static str],
    own: Own,
    connections: Budget,
    questions: Budget,
}

impl Policy {
    /// The policy of the owner's file.
    #[must_use]
    pub fn new(allow: Allow) -> Self {
        let connections = Budget::new(Rates {
            in_all: (allow.connections_per_minute, Limit::Connections),
            to_one: (allow.connections_per_minute_to_one, Limit::ConnectionsToOne),
            to_network: (allow.connections_per_minute_to_network, Limit::ConnectionsToNetwork),
            new_ones: (allow.new_addresses_per_hour, Limit::NewAddresses),
        });
        let questions = Budget::new(Rates {
            in_all: (allow.questions_per_minute, Limit::Questions),
            to_one: (allow.questions_per_minute_to_one, Limit::QuestionsToOne),
            // A resolver is one address; its neighbours are no concern.
            to_network: (allow.questions_per_minute, Limit::Questions),
            new_ones: (allow.new_addresses_per_hour, Limit::NewAddresses),
        });
        Self { connections, questions, own: Own::default(), never: &never::BLOCKS, allow }
    }

    /// For tests of what probes: their servers are on the loopback interface, which may be opened here.
    #[cfg(test)]
    pub(crate) fn on_loopback(allow: Allow) -> Self {
        let [_loopback, never @ ..] = &never::BLOCKS;
        Self { never, ..Self::new(allow) }
    }

    /// Whether this address and port may be contacted in this role.
    ///
    /// # Errors
    /// The reason, when not.
    pub fn permits(&self, address: IpAddr, port: u16, role: Role) -> Result<(), Denial> {
        let port_allowed = self.allow.ports.contains(&port)
            || match role {
                Role::Resolver => RESOLVER_PORTS.contains(&port),
                Role::Captive => port == CAPTIVE_PORT,
                Role::Responder => port == LIFE_PORT,
                Role::Target | Role::NegativeControl => false,
            };
        if !port_allowed {
            return Err(Denial::Port(port));
        }
        if let Some(block) = never::block_of(address, self.never) {
            return Err(Denial::Never(address, block));
        }
        let excepted = match role {
            Role::NegativeControl => address == NEGATIVE_CONTROL,
            Role::Target | Role::Captive | Role::Resolver | Role::Responder => false,
        };
        if excepted || self.allow.private.iter().any(|network| network.contains(&address)) {
            return Ok(());
        }
        if let Some(block) = special_purpose(address) {
            return Err(Denial::Special(address, block));
        }
        self.own.network_of(address).map_or(Ok(()), |network| Err(Denial::Own(address, network)))
    }

    /// Whether the path to this address may be looked for, of a target that is tried on this port: by UDP
    /// packets to ports that nobody listens on (see [`crate::probe::path`]).
    ///
    /// # Errors
    /// The reason, when not.
    pub fn permits_path(&self, address: IpAddr, port: u16) -> Result<(), Denial> {
        if !self.allow.paths {
            return Err(Denial::Paths);
        }
        self.permits(address, port, Role::Target)
    }

    /// Takes one probe of this address out of the owner's allowance.
    ///
    /// # Errors
    /// [`Denial::Rate`] when it is used up: in all, for this address, for its network, or for addresses
    /// never tried before.
    pub fn take_connection(&self, to: IpAddr) -> Result<(), Denial> {
        self.connections.take(plain(to)).map_err(Denial::Rate)
    }

    /// Takes one question to this resolver out of the owner's allowance.
    ///
    /// # Errors
    /// [`Denial::Rate`] when it is used up.
    pub fn take_question(&self, to: IpAddr) -> Result<(), Denial> {
        self.questions.take(plain(to)).map_err(Denial::Rate)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::netns::{inside, sh};

    fn policy(allow: Allow) -> Policy {
        Policy::new(allow)
    }

    #[test]
    fn only_global_unicast_on_the_owners_ports() {
        let policy = policy(Allow::default());
        assert_eq!(policy.permits("104.26.4.10".parse().unwrap(), 443, Role::Target), Ok(()));
        assert_eq!(policy.permits("104.26.4.10".parse().unwrap(), 22, Role::Target), Err(Denial::Port(22)));
        for special in ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::ffff:10.0.0.1", "fe80::1", "192.0.2.1"] {
            let denied = policy.permits(special.parse().unwrap(), 443, Role::Target);
            assert!(matches!(denied, Err(Denial::Special(..) | Denial::Never(..))), "{special}");
        }
    }

    #[test]
    fn resolvers_may_use_their_own_ports_and_nothing_else() {
        let policy = policy(Allow::default());
        let address = "1.1.1.1".parse().unwrap();
        for port in [53, 443, 853] {
            assert_eq!(policy.permits(address, port, Role::Resolver), Ok(()));
        }
        assert_eq!(policy.permits(address, 53, Role::Target), Err(Denial::Port(53)));
        assert_eq!(policy.permits(address, 25, Role::Resolver), Err(Denial::Port(25)));
        assert!(policy.permits("10.0.0.53".parse().unwrap(), 53, Role::Resolver).is_err());
    }

    #[test]
    fn port_80_is_open_to_the_captive_portal_question_alone() {
        let policy = policy(Allow::default());
        let address = "104.26.4.10".parse().unwrap();
        assert_eq!(policy.permits(address, 80, Role::Captive), Ok(()));
        for role in [Role::Target, Role::NegativeControl, Role::Resolver] {
            assert_eq!(policy.permits(address, 80, role), Err(Denial::Port(80)));
        }
        assert_eq!(policy.permits(address, 8080, Role::Captive), Err(Denial::Port(8080)));
        assert!(policy.permits("192.168.1.1".parse().unwrap(), 80, Role::Captive).is_err());
    }

    #[test]
    fn one_documentation_address_is_open_to_negative_controls_alone() {
        let policy = policy(Allow::default());
        assert_eq!(policy.permits(NEGATIVE_CONTROL, 443, Role::NegativeControl), Ok(()));
        assert!(policy.permits(NEGATIVE_CONTROL, 443, Role::Target).is_err());
        assert!(policy.permits("192.0.2.2".parse().unwrap(), 443, Role::NegativeControl).is_err());
        assert!(policy.permits("10.0.0.1".parse().unwrap(), 443, Role::NegativeControl).is_err());
    }

    #[test]
    fn the_owner_can_forbid_that_paths_are_looked_for() {
        let address = "104.26.4.10".parse().unwrap();
        assert_eq!(policy(Allow::default()).permits_path(address, 443), Ok(()));
        assert_eq!(policy(Allow::default()).permits_path(address, 22), Err(Denial::Port(22)));
        assert!(policy(Allow::default()).permits_path("10.0.0.1".parse().unwrap(), 443).is_err());
        let forbidden = policy(Allow { paths: false, ..Allow::default() }).permits_path(address, 443);
        assert_eq!(forbidden, Err(Denial::Paths));
    }

    #[test]
    fn this_machines_own_networks_are_closed_unless_the_owner_opens_them() {
        if !inside(module_path!(), "this_machines_own_networks_are_closed_unless_the_owner_opens_them") {
            return;
        }
        sh("ip addr add 104.26.4.1/24 dev lo; ip addr add 2606:4700:1::1/64 dev lo nodad");
        let closed = policy(Allow::default());
        let permits = |policy: &Policy, address: &str| policy.permits(address.parse().unwrap(), 443, Role::Target);
        for own in ["104.26.4.1", "104.26.4.10", "::ffff:104.26.4.10", "64:ff9b::104.26.4.10", "2606:4700:1::1111"] {
            assert!(matches!(permits(&closed, own), Err(Denial::Own(..))), "{own}");
            assert!(closed.permits_path(own.parse().unwrap(), 443).is_err());
            assert!(closed.permits(own.parse().unwrap(), 443, Role::Resolver).is_err());
        }
        for other in ["104.26.5.10", "2606:4700:2::1111"] {
            assert_eq!(permits(&closed, other), Ok(()));
        }
        let network = "104.26.4.0/24".parse().unwrap();
        let open = policy(Allow { private: vec![network], ..Allow::default() });
        assert_eq!(permits(&open, "104.26.4.10"), Ok(()));
        let Err(denial) = permits(&closed, "104.26.4.10") else { panic!("permitted") };
        assert_eq!(denial, Denial::Own("104.26.4.10".parse().unwrap(), network));
        assert_eq!(denial.outcome(), Outcome::RefusedByPolicy);
    }

    #[test]
    fn what_nobody_may_open_stays_shut_in_every_form() {
        let everything = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        let policy = policy(Allow { private: everything, ..Allow::default() });
        let roles = [Role::Target, Role::NegativeControl, Role::Captive, Role::Resolver];
        for never in [
            "127.0.0.1",
            "127.255.255.254",
            "::1",
            "::ffff:127.0.0.53",
            "64:ff9b::127.0.0.1",
            "2002:7f00:1::1",
            "2001:0:0:0:0:0:80ff:fffe",
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "fe80::1",
            "224.0.0.1",
            "ff02::1",
            "0.0.0.0",
            "::",
            "100.100.100.200",
            "::ffff:100.100.100.200",
            "64:ff9b::100.100.100.200",
            "fd00:ec2::254",
        ] {
            for role in roles {
                let denied = policy.permits(never.parse().unwrap(), 443, role);
                assert!(matches!(denied, Err(Denial::Never(..))), "{never} as {role:?}: {denied:?}");
            }
            assert!(policy.permits_path(never.parse().unwrap(), 443).is_err(), "{never}");
        }
        assert_eq!(policy.permits("10.0.0.1".parse().unwrap(), 443, Role::Target), Ok(()));
    }

    #[test]
    fn the_owner_can_open_a_private_network() {
        let policy = policy(Allow { private: vec!["10.1.0.0/16".parse().unwrap()], ..Allow::default() });
        assert_eq!(policy.permits("10.1.2.3".parse().unwrap(), 443, Role::Target), Ok(()));
        assert!(policy.permits("10.2.2.3".parse().unwrap(), 443, Role::Target).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn every_form_of_an_address_shares_its_limit() {
        let policy = policy(Allow { connections_per_minute_to_one: 4, ..Allow::default() });
        let take = |text: &str| policy.take_connection(text.parse().unwrap()).is_ok();
        assert!(take("9.9.9.9") && take("::ffff:9.9.9.9"));
        assert!(!take("9.9.9.9") && !take("64:ff9b::9.9.9.9"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_allowance_refills_with_time_and_never_beyond_half_a_minute() {
        let policy = policy(Allow { connections_per_minute: 60, ..Allow::default() });
        let drain = || (0..).take_while(|_| policy.take_connection(IpAddr::from([104, 26, 4, 10])).is_ok()).count();
        assert_eq!(drain(), 30);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(drain(), 5);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(drain(), 30);
    }
}
