//! Who exists: the places, and the public internet of the stories with the addresses of the field cases.
//!
//! *Public* addresses are what judging sees, in both worlds; [`super::layout`] says which socket plays each.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};

/// Somewhere something runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The branch office; its provider has no path to [`LOST_PREFIXES`].
    Branch,
    /// The WAN gateway at the head office.
    Wan,
    /// The outside witness in Frankfurt.
    Fra,
    /// Where the coordinator runs.
    Hq,
}

/// The places where an agent runs.
pub const VANTAGES: [Place; 3] = [Place::Branch, Place::Wan, Place::Fra];
/// All places.
pub const PLACES: [Place; 4] = [Place::Branch, Place::Wan, Place::Fra, Place::Hq];

impl Place {
    /// Name of the vantage (and of the place in messages).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Branch => "branch-kazan",
            Self::Wan => "wan-gw",
            Self::Fra => "de-fra",
            Self::Hq => "hq",
        }
    }

    /// The place's number: third octet of its network, and tens of its second loopback octet.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Branch => 1,
            Self::Wan => 2,
            Self::Fra => 3,
            Self::Hq => 9,
        }
    }

    /// Its address in the namespace world; the router has .1 of the same /24.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, self.number(), 2)
    }

    /// The router's interface towards it.
    #[must_use]
    pub fn link(self) -> String {
        format!("to-{}", self.name())
    }
}

/// A public DNS operator's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicResolver {
    /// Where it answers.
    pub address: Ipv4Addr,
    /// TLS name of its DoH and DoT service.
    pub server_name: &'static str,
}

/// The content network's own resolver.
pub const CDN_RESOLVER: PublicResolver =
    PublicResolver { address: Ipv4Addr::new(1, 1, 1, 1), server_name: "cloudflare-dns.com" };
/// Its "family" edition, which the field case tried too.
pub const CDN_FAMILY_RESOLVER: PublicResolver =
    PublicResolver { address: Ipv4Addr::new(1, 1, 1, 3), server_name: "family.cloudflare-dns.com" };
/// Another operator.
pub const OTHER_RESOLVER: PublicResolver =
    PublicResolver { address: Ipv4Addr::new(8, 8, 8, 8), server_name: "dns.google" };
/// Every public resolver of the lab.
pub const PUBLIC_RESOLVERS: [PublicResolver; 3] = [CDN_RESOLVER, CDN_FAMILY_RESOLVER, OTHER_RESOLVER];

/// The authority for all zones of the lab.
pub const AUTHORITY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 53);

/// A name that is watched, and what each place is natively told.
#[derive(Debug, Clone, Copy)]
pub struct Canary {
    /// The name.
    pub name: &'static str,
    /// What the authority has, and so the branch natively gets.
    pub native: [Ipv4Addr; 2],
    /// What the gateway is told.
    pub wan: [Ipv4Addr; 2],
    /// What Frankfurt is told.
    pub fra: [Ipv4Addr; 2],
}

/// The pair of the field case: genuine, and useless at the branch.
pub const LOST_PAIR: [Ipv4Addr; 2] = [Ipv4Addr::new(8, 6, 112, 0), Ipv4Addr::new(8, 47, 69, 0)];
/// What the other operator gave there: another address of the same lost prefix.
pub const LOST_OTHER: Ipv4Addr = Ipv4Addr::new(8, 6, 112, 5);
/// Prefixes without a path from the branch, in both stories and before them.
pub const LOST_PREFIXES: [(Ipv4Addr, u8); 2] = [(Ipv4Addr::new(8, 6, 112, 0), 24), (Ipv4Addr::new(8, 47, 69, 0), 24)];

/// The names of the field case.
pub const CANARIES: [Canary; 3] = [
    Canary { name: "example.com", native: EXAMPLE, wan: EXAMPLE, fra: EXAMPLE },
    Canary {
        name: "cdnjs.cloudflare.com",
        native: [Ipv4Addr::new(104, 26, 6, 10), Ipv4Addr::new(104, 26, 7, 10)],
        wan: LOST_PAIR,
        fra: [Ipv4Addr::new(104, 26, 6, 20), Ipv4Addr::new(172, 66, 6, 20)],
    },
    Canary {
        name: "cdn.tailwindcss.com",
        native: [Ipv4Addr::new(104, 26, 6, 11), Ipv4Addr::new(104, 26, 7, 11)],
        wan: LOST_PAIR,
        fra: [Ipv4Addr::new(104, 26, 6, 21), Ipv4Addr::new(172, 66, 6, 21)],
    },
];
const EXAMPLE: [Ipv4Addr; 2] = [Ipv4Addr::new(104, 26, 12, 10), Ipv4Addr::new(172, 66, 12, 10)];

/// A machine of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node {
    /// Its name; its host name is this under [`ZONE`].
    pub name: &'static str,
    /// Its address.
    pub address: Ipv4Addr,
    /// The nodes that may stand in for it, in order.
    pub fallbacks: [&'static str; 2],
}

/// The zone of our services.
pub const ZONE: &str = "montana.quest";
/// The three machines of the second field case.
pub const NODES: [Node; 3] = [
    Node { name: "fi", address: Ipv4Addr::new(95, 216, 10, 10), fallbacks: ["de", "us"] },
    Node { name: "de", address: Ipv4Addr::new(49, 12, 20, 20), fallbacks: ["fi", "us"] },
    Node { name: "us", address: Ipv4Addr::new(5, 161, 30, 30), fallbacks: ["de", "fi"] },
];

/// The node of that name.
///
/// # Errors
/// No node has it.
pub fn node(name: &str) -> Result<Node> {
    NODES.into_iter().find(|n| n.name == name).with_context(|| format!("the lab has no node {name}"))
}

/// Targets by which a vantage learns whether its own uplink works: three operators.
pub const CONTROLS: [(&str, Ipv4Addr); 3] = [
    ("control-a", Ipv4Addr::new(151, 101, 1, 1)),
    ("control-b", Ipv4Addr::new(23, 185, 0, 2)),
    ("control-c", Ipv4Addr::new(13, 107, 42, 14)),
];
/// Must stay silent everywhere (TEST-NET-1, RFC 5737).
pub const NEGATIVE_CONTROL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// TTL of every record of the lab, seconds.
pub const TTL_S: u32 = 5;
/// TSIG key's name, as BIND and the coordinator know it.
pub const TSIG_NAME: &str = "parallax";

/// Every address of the content network.
#[must_use]
pub fn cdn_addresses() -> Vec<Ipv4Addr> {
    let mut all: Vec<Ipv4Addr> = CANARIES.iter().flat_map(|c| [c.native, c.wan, c.fra]).flatten().collect();
    all.push(LOST_OTHER);
    all.sort();
    all.dedup();
    all
}

/// Whether the branch has no path to it.
#[must_use]
pub fn is_lost_at_branch(address: Ipv4Addr) -> bool {
    LOST_PREFIXES.iter().any(|(prefix, _)| prefix.octets()[..3] == address.octets()[..3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_has_no_path_to_any_answer_it_is_handed_in_the_fault() {
        assert!(LOST_PAIR.into_iter().chain([LOST_OTHER]).all(is_lost_at_branch));
        assert!(!CANARIES.iter().flat_map(|c| c.native.into_iter().chain(c.fra)).any(is_lost_at_branch));
    }
}
