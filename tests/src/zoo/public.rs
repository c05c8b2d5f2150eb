//! The public internet of the zoo: resolvers, machines and names, as they are while all is well.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Zone of everything.
pub const ZONE: &str = "zoo.quest";
/// TTL of what changes, seconds.
pub const TTL_S: u32 = 5;
/// TTL of what shall stay in caches, seconds.
pub const LONG_TTL_S: u32 = 3600;
/// The authority for the zone.
pub const AUTHORITY: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 53);
/// Key of the services' updates.
pub const TSIG_NAME: &str = "zoo";
/// Must stay silent (TEST-NET-1, RFC 5737).
pub const NEGATIVE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Answers status 204 to plain HTTP.
pub const NO_CONTENT: Ipv4Addr = Ipv4Addr::new(142, 250, 4, 4);
/// Targets by which a vantage learns whether its own uplink works.
pub const CONTROLS: [(&str, Ipv4Addr); 3] = [
    ("control-a", Ipv4Addr::new(151, 101, 1, 1)),
    ("control-b", Ipv4Addr::new(23, 185, 0, 2)),
    ("control-c", Ipv4Addr::new(13, 107, 42, 14)),
];

/// The resolver that everybody uses.
pub const CF: Ipv4Addr = Ipv4Addr::new(1, 1, 1, 1);
/// Another operator's.
pub const GOOGLE: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
/// Plain DNS, to be compared with.
pub const PLAIN: Ipv4Addr = Ipv4Addr::new(8, 8, 4, 4);

/// Who answers in somebody else's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Culprit {
    /// Says nothing in TLS.
    Hangs,
    /// Shows a certificate for another name.
    Stranger,
    /// Shows the right certificate, years too late.
    Expired,
    /// Shows a certificate of an authority that nobody knows.
    Unknown,
    /// Completes TLS and answers nothing.
    Mute,
    /// Answers status 503 with Retry-After.
    Sheds,
    /// Sends plain HTTP to a login page.
    Portal,
}

impl Culprit {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Hangs, Self::Stranger, Self::Expired, Self::Unknown, Self::Mute, Self::Sheds, Self::Portal];

    /// Where it listens.
    #[must_use]
    pub fn at(self) -> SocketAddrV4 {
        let port = match self {
            Self::Hangs => 8001,
            Self::Stranger => 8002,
            Self::Expired => 8003,
            Self::Unknown => 8004,
            Self::Mute => 8005,
            Self::Sheds => 8006,
            Self::Portal => 8007,
        };
        SocketAddrV4::new(Ipv4Addr::new(198, 18, 0, 80), port)
    }

    /// What its process is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hangs => "hangs",
            Self::Stranger => "stranger",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Mute => "mute",
            Self::Sheds => "sheds",
            Self::Portal => "portal",
        }
    }
}

/// A name under the zone.
#[must_use]
pub fn host(label: &str) -> String {
    format!("{label}.{ZONE}")
}

/// The resolvers whose endpoints are looked at, in order: the name is the case's.
pub const ENDPOINTS: [&str; 17] = [
    "ok", "e01", "e02", "e03", "e04", "e06", "e07", "e09", "e10", "e12", "e13", "e15", "e16", "e19", "e21", "e25",
    "rewrites",
];

/// Where the endpoint of that number of [`ENDPOINTS`] is.
#[must_use]
pub fn endpoint_at(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(149, 112, u8::try_from(number).unwrap_or(u8::MAX), 10)
}

/// Where an endpoint is, by its name.
#[must_use]
pub fn endpoint(name: &str) -> Ipv4Addr {
    endpoint_at(ENDPOINTS.iter().position(|one| *one == name).unwrap_or(usize::MAX))
}

/// Plain resolver that knows where `e21` is.
pub const SIGNPOST: Ipv4Addr = Ipv4Addr::new(149, 112, 200, 53);
