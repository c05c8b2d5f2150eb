//! Who lives where: every place, name, address and port of both worlds, as one table.
//!
//! *Public* addresses are what judging sees. In the namespace world they are real (each a /32 on the router). In the
//! loopback world every public address is played by a socket on 127.0.0.0/8, and [`Layout::dial`] says which.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use anyhow::{Context, Result, bail};

/// How the places are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A network namespace a place, joined by a router.
    Namespaces,
    /// Everything on 127.0.0.0/8 with high ports; agents dial through map files.
    Loopback,
}

impl Kind {
    /// The word for it, as `--world` and the JSON report say it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Loopback => "loopback",
        }
    }
}

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
/// There is none.
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

/// Ports of the loopback world; unused in the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Dns,
    Doh,
    Dot,
    Console,
    Authority,
    Live(Place),
    Cdn,
    Node(usize),
    Control(usize),
    Grpc,
}

const PORTS: [Port; 16] = [
    Port::Dns,
    Port::Doh,
    Port::Dot,
    Port::Console,
    Port::Authority,
    Port::Live(Place::Branch),
    Port::Live(Place::Wan),
    Port::Live(Place::Fra),
    Port::Cdn,
    Port::Node(0),
    Port::Node(1),
    Port::Node(2),
    Port::Control(0),
    Port::Control(1),
    Port::Control(2),
    Port::Grpc,
];

/// Where everything listens in this run's world.
#[derive(Debug, Clone)]
pub struct Layout {
    /// How the places are separated.
    pub kind: Kind,
    /// First port of the block of the loopback world.
    first_port: u16,
}

/// Below the kernel's range for outgoing connections, so that none of those takes a port of ours in between.
const PORT_BLOCKS: std::ops::Range<u16> = 200..320;
const PORT_BLOCK: u16 = 100;

impl Layout {
    /// The layout of the namespace world.
    #[must_use]
    pub fn namespaces() -> Self {
        Self { kind: Kind::Namespaces, first_port: 0 }
    }

    /// A layout of the loopback world on ports that are free now. `seed` spreads simultaneous runs.
    ///
    /// # Errors
    /// No block of ports is free.
    pub fn loopback(seed: u16) -> Result<Self> {
        let blocks = PORT_BLOCKS.end - PORT_BLOCKS.start;
        for step in 0..blocks {
            let first_port = (PORT_BLOCKS.start + (seed % blocks + step) % blocks) * PORT_BLOCK;
            let count = u16::try_from(PORTS.len())?;
            if (first_port..first_port + count).all(is_free) {
                return Ok(Self { kind: Kind::Loopback, first_port });
            }
        }
        bail!("no block of {} free ports between 20000 and 32000; stop what listens there", PORTS.len());
    }

    fn port(&self, wanted: Port) -> u16 {
        let position = PORTS.iter().position(|p| *p == wanted).unwrap_or_default();
        // Sixteen entries: the conversion cannot fail.
        self.first_port + u16::try_from(position).unwrap_or_default()
    }

    /// Where a public resolver's service (`public` port 53, 443 or 853) is for a place.
    #[must_use]
    pub fn resolver(&self, place: Place, resolver: PublicResolver, public: u16) -> SocketAddrV4 {
        match self.kind {
            Kind::Namespaces => SocketAddrV4::new(resolver.address, public),
            Kind::Loopback => {
                let [a, _, _, d] = resolver.address.octets();
                let port = match public {
                    443 => Port::Doh,
                    853 => Port::Dot,
                    _ => Port::Dns,
                };
                // The place is told apart by where it was sent: an agent may not choose its source address.
                SocketAddrV4::new(Ipv4Addr::new(127, place.number() * 10, a, d), self.port(port))
            }
        }
    }

    /// Where the authority answers, queries and updates.
    #[must_use]
    pub fn authority(&self) -> SocketAddrV4 {
        self.own(SocketAddrV4::new(AUTHORITY, 53), Port::Authority)
    }

    /// Where the place's own resolver answers.
    #[must_use]
    pub fn live(&self, place: Place) -> SocketAddrV4 {
        self.own(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53), Port::Live(place))
    }

    /// dnsdist's console.
    #[must_use]
    pub fn console(&self) -> SocketAddrV4 {
        self.own(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 5199), Port::Console)
    }

    /// Where agents find the coordinator.
    #[must_use]
    pub fn grpc(&self) -> SocketAddrV4 {
        self.own(SocketAddrV4::new(Place::Hq.address(), 8443), Port::Grpc)
    }

    /// Where the content network's server listens.
    #[must_use]
    pub fn cdn(&self) -> Vec<SocketAddrV4> {
        let mut all: Vec<SocketAddrV4> =
            cdn_addresses().into_iter().map(|a| self.own(SocketAddrV4::new(a, 443), Port::Cdn)).collect();
        all.dedup();
        all
    }

    /// Where a node's server listens.
    #[must_use]
    pub fn node(&self, node: Node) -> SocketAddrV4 {
        let index = NODES.iter().position(|n| *n == node).unwrap_or_default();
        self.own(SocketAddrV4::new(node.address, 443), Port::Node(index))
    }

    /// Where the controls' server listens.
    #[must_use]
    pub fn controls(&self) -> Vec<SocketAddrV4> {
        let each = CONTROLS.iter().enumerate();
        each.map(|(i, (_, a))| self.own(SocketAddrV4::new(*a, 443), Port::Control(i))).collect()
    }

    fn own(&self, public: SocketAddrV4, port: Port) -> SocketAddrV4 {
        match self.kind {
            Kind::Namespaces => public,
            Kind::Loopback => SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port(port)),
        }
    }

    /// Public address to the socket that plays it for a place, faults left out. The loopback world's map.
    #[must_use]
    pub fn dial(&self, place: Place) -> BTreeMap<SocketAddrV4, SocketAddrV4> {
        let mut map = BTreeMap::new();
        for resolver in PUBLIC_RESOLVERS {
            for port in [53, 443, 853] {
                map.insert(SocketAddrV4::new(resolver.address, port), self.resolver(place, resolver, port));
            }
        }
        for address in cdn_addresses() {
            let public = SocketAddrV4::new(address, 443);
            map.insert(public, self.own(public, Port::Cdn));
        }
        for node in NODES {
            map.insert(SocketAddrV4::new(node.address, 443), self.node(node));
        }
        for ((_, address), at) in CONTROLS.iter().zip(self.controls()) {
            map.insert(SocketAddrV4::new(*address, 443), at);
        }
        map.insert(SocketAddrV4::new(AUTHORITY, 53), self.authority());
        map.insert(self.live(place), self.live(place));
        map
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() && UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_branch_has_no_path_to_any_answer_it_is_handed_in_the_fault() {
        assert!(LOST_PAIR.into_iter().chain([LOST_OTHER]).all(is_lost_at_branch));
        assert!(!CANARIES.iter().flat_map(|c| c.native.into_iter().chain(c.fra)).any(is_lost_at_branch));
    }

    #[test]
    fn every_listener_of_the_loopback_world_has_its_own_socket() {
        let layout = Layout::loopback(7).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut fresh = |s: SocketAddrV4| assert!(seen.insert(s), "{s} is used twice");
        for place in VANTAGES {
            fresh(layout.live(place));
            for resolver in PUBLIC_RESOLVERS {
                [53, 443, 853].into_iter().for_each(|p| fresh(layout.resolver(place, resolver, p)));
            }
        }
        NODES.into_iter().for_each(|n| fresh(layout.node(n)));
        layout.controls().into_iter().chain(layout.cdn()).for_each(&mut fresh);
        [layout.authority(), layout.console(), layout.grpc()].into_iter().for_each(&mut fresh);
    }

    #[test]
    fn namespaces_use_public_addresses_as_they_are() {
        let layout = Layout::namespaces();
        assert!(layout.dial(Place::Wan).iter().all(|(public, at)| public == at));
    }
}
