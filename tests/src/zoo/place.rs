//! The places of the zoo: three that are sane, and one for each trouble that a vantage itself can have.

use std::net::Ipv4Addr;

/// Somewhere something runs: a network namespace behind a link of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its name, and its vantage's.
    pub name: &'static str,
    /// Third octet of its network.
    number: u8,
    /// Its uplink.
    pub domain: &'static str,
    /// Whether it stands for the users of the services.
    pub audience: bool,
}

const fn place(name: &'static str, number: u8, domain: &'static str, audience: bool) -> Place {
    Place { name, number, domain, audience }
}

/// The branch, where most of what is local goes wrong.
pub const BRANCH: Place = place("branch", 1, "isp-b", true);
/// The WAN gateway.
pub const WAN: Place = place("wan", 2, "isp-a", true);
/// The outside witness.
pub const FRA: Place = place("fra", 3, "isp-de", false);
/// Behind the branch's uplink.
pub const TWIN: Place = place("twin", 4, "isp-b", false);
/// Its agent loses its power.
pub const DARK: Place = place("dark", 5, "isp-dark", false);
/// Its uplink reaches the coordinator and nothing else.
pub const ISLAND: Place = place("island", 6, "isp-island", false);
/// A login page answers whatever is connected to.
pub const HOTEL: Place = place("hotel", 7, "isp-hotel", false);
/// A box accepts every connection to nowhere.
pub const BOXED: Place = place("boxed", 8, "isp-boxed", false);
/// Most of its controls are lost.
pub const WEAK: Place = place("weak", 9, "isp-weak", false);
/// Its resolver's upstream dies behind a full cache.
pub const CACHED: Place = place("cached", 10, "isp-cached", true);
/// Where the coordinators run.
pub const HQ: Place = place("hq", 11, "isp-hq", false);

/// All of them.
pub const PLACES: [Place; 11] = [BRANCH, WAN, FRA, TWIN, DARK, ISLAND, HOTEL, BOXED, WEAK, CACHED, HQ];
/// Where somebody looks at names and nodes.
pub const OF_NAMES: [Place; 4] = [BRANCH, WAN, FRA, TWIN];
/// Where somebody looks at endpoints.
pub const OF_ENDPOINTS: [Place; 4] = [BRANCH, WAN, FRA, CACHED];
/// Where vantages have troubles of their own, and two that have none.
pub const OF_TROUBLES: [Place; 7] = [WAN, FRA, DARK, ISLAND, HOTEL, BOXED, WEAK];
/// The sane ones.
pub const SANE: [Place; 3] = [BRANCH, WAN, FRA];

impl Place {
    /// Its address; the router has .1 of the same network.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, self.number, 2)
    }

    /// The router's address towards it.
    #[must_use]
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 10, self.number, 1)
    }

    /// The router's interface towards it.
    #[must_use]
    pub fn link(self) -> String {
        format!("to-{}", self.name)
    }
}
