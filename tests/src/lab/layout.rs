//! Where everybody listens: every address and port of both worlds, as one table.
//!
//! In the namespace world public addresses are real (each a /32 on the router). In the loopback world each is played by a
//! socket on 127.0.0.0/8, and [`Layout::dial`] says which.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};

use anyhow::{Result, bail};

use super::atlas::{AUTHORITY, CONTROLS, NODES, Node, PUBLIC_RESOLVERS, Place, PublicResolver, cdn_addresses};

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
    Grpc(usize),
}

const PORTS: [Port; 17] = [
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
    Port::Grpc(0),
    Port::Grpc(1),
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
        // Seventeen entries: the conversion cannot fail.
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

    /// Where agents find a coordinator, the first or the second.
    #[must_use]
    pub fn grpc(&self, number: usize) -> SocketAddrV4 {
        let port = if number == 0 { 8443 } else { 8444 };
        self.own(SocketAddrV4::new(Place::Hq.address(), port), Port::Grpc(number.min(1)))
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
    use crate::lab::atlas::VANTAGES;

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
        [layout.authority(), layout.console(), layout.grpc(0), layout.grpc(1)].into_iter().for_each(&mut fresh);
    }

    #[test]
    fn namespaces_use_public_addresses_as_they_are() {
        let layout = Layout::namespaces();
        assert!(layout.dial(Place::Wan).iter().all(|(public, at)| public == at));
    }
}
