//! What the coordinator wants measured: read from the wire into types that cannot be wrong, and
//! kept on disk so that the agent goes on measuring without a coordinator.
//!
//! An assignment is data of another machine. What it may make the agent do is bounded twice: here
//! (how many, how often, how long) and by [`crate::policy`] (whom).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;

use crate::probe::Limits;
use crate::probe::doh::DohEndpoint;
use parallax_decide::names::{ControlName, DomainName, NodeName, ResolverName, VantageName};
use parallax_proto::LIFE_KEY_BYTES;

pub mod epoch;
pub mod kept;
pub mod operators;
pub mod wire;

/// What this agent shall measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Rises with every change.
    pub version: u64,
    /// The coordinator's name for this place.
    pub vantage: VantageName,
    /// Resolvers to ask.
    pub resolvers: Vec<Resolver>,
    /// Names to watch.
    pub canaries: Vec<Canary>,
    /// Controls of the vantage itself.
    pub controls: Vec<Control>,
    /// Machines to try.
    pub nodes: Vec<Node>,
    /// How often and how long.
    pub schedule: Schedule,
    /// What endpoint checks ask.
    pub questions: Questions,
    /// Where probes come from.
    pub source: Source,
}

/// The three questions of an endpoint check; `None`: not asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Questions {
    /// A name that exists and has an A record.
    pub known: Option<DomainName>,
    /// Unsigned wildcard zone: any label in it exists, and none is in a cache.
    pub freshness_zone: Option<DomainName>,
    /// A random label below this name does not exist.
    pub missing_zone: Option<DomainName>,
}

/// Where probes come from; nothing given: the kernel chooses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Source {
    /// At most one address of each family.
    pub addresses: Vec<IpAddr>,
    /// Network interface.
    pub interface: Option<String>,
}

/// A resolver to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// Its name in the configuration.
    pub name: ResolverName,
    /// How it is spoken to.
    pub transport: Transport,
}

/// How a resolver is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// What clients here use.
    Live,
    /// UDP, then TCP when truncated.
    Plain {
        /// Where.
        server: SocketAddr,
    },
    /// TCP alone.
    Tcp {
        /// Where.
        server: SocketAddr,
    },
    /// DNS over TLS.
    Dot {
        /// Where.
        server: SocketAddr,
        /// TLS server name.
        server_name: String,
    },
    /// DNS over HTTPS.
    Doh(DohEndpoint),
}

/// A name to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canary {
    /// The name.
    pub name: DomainName,
    /// TCP port its addresses are tried on.
    pub port: u16,
    /// Finish TLS for the name, or stop after TCP.
    pub tls: bool,
    /// Ask only the live resolver.
    pub live_only: bool,
    /// What to do after TLS.
    pub http: Option<HttpCheck>,
    /// Validate the answer (RFC 4035) from the root's keys.
    pub validate: bool,
}

/// A request after TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpCheck {
    /// Path and query.
    pub path: PathAndQuery,
    /// Statuses that are right; empty: any from 200 to 399.
    pub statuses: Vec<u16>,
    /// Read at least this much of the body, in bytes; 0: the status is enough.
    pub read_bytes: u32,
}

/// A control of the vantage itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    /// Its name in the configuration.
    pub name: ControlName,
    /// What is tried, and what is right.
    pub trial: Trial,
}

/// What a control tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trial {
    /// Must be reached.
    Positive {
        /// Where.
        at: SocketAddr,
        /// TLS server name; `None`: TCP only.
        server_name: Option<String>,
    },
    /// Must stay silent.
    Negative {
        /// Where.
        at: SocketAddr,
    },
    /// Plain HTTP GET that must give status 204.
    Captive {
        /// The whole http URL.
        url: Uri,
        /// Address to ask; `None`: the host is looked up at the live resolver.
        address: Option<IpAddr>,
    },
}

/// A machine to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name in the configuration.
    pub name: NodeName,
    /// Address.
    pub address: IpAddr,
    /// TCP port.
    pub port: u16,
    /// TLS server name; `None`: TCP only.
    pub server_name: Option<String>,
    /// What to do after TLS.
    pub http: Option<HttpCheck>,
    /// What proves its life; `None`: nothing does.
    pub life: Option<Responder>,
}

/// What answers on a node for its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Responder {
    /// TCP port.
    pub port: u16,
    /// Its Ed25519 public key.
    pub public_key: [u8; LIFE_KEY_BYTES],
}

/// How often and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Interval of canary rounds.
    pub canary_every: Duration,
    /// Interval of node rounds.
    pub node_every: Duration,
    /// Interval of control checks.
    pub control_every: Duration,
    /// Interval of endpoint checks.
    pub endpoint_every: Duration,
    /// This vantage's place in each grid, in thousandths of the interval.
    pub offset_permille: u32,
    /// Limits of a probe's stages.
    pub limits: Limits,
    /// Gap before each confirming probe.
    pub burst_gaps: Vec<Duration>,
    /// Random delay of each start, at most, in thousandths of the interval.
    pub jitter_permille: u32,
}

/// Why an assignment is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}; correct the coordinator's configuration")]
pub struct Invalid {
    /// Which part.
    pub what: String,
    /// What is wrong with it.
    pub why: String,
}

impl Assignment {
    /// The node of that name.
    #[must_use]
    pub fn node(&self, name: &NodeName) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == *name)
    }

    /// The canary of that name.
    #[must_use]
    pub fn canary(&self, name: &DomainName) -> Option<&Canary> {
        self.canaries.iter().find(|canary| canary.name == *name)
    }

    /// The resolver of that name.
    #[must_use]
    pub fn resolver(&self, name: &ResolverName) -> Option<&Resolver> {
        self.resolvers.iter().find(|resolver| resolver.name == *name)
    }
}
