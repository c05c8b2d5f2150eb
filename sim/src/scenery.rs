//! What is configured: the places, the nodes, the names and the policy of one run.

use std::net::IpAddr;

use parallax_decide::names::{ControlName, DomainName, NameError, NodeName, ResolverName, ServiceName, VantageName};
use parallax_decide::topology::{
    Canary, Control, ControlKind, Mode, Node, Policy, Resolver, Role, Service, Topology, Transport, Vantage,
};

use crate::dice::Dice;

/// Most vantages of a run.
const VANTAGES_MAX: i64 = 5;

/// The nodes: native, then the fallbacks in order.
const NODES: [(&str, [u8; 4]); 3] = [("fi", [95, 216, 10, 10]), ("de", [49, 12, 20, 20]), ("us", [5, 161, 30, 30])];

/// What the canary's resolvers hand out.
const CANARY: [[u8; 4]; 2] = [[104, 26, 6, 10], [104, 26, 7, 10]];

/// How a probe goes on in time, as the schedules of the coordinator's two policies say.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// When the own attempts of one probe begin, in ms.
    pub attempts: &'static [i64],
    /// End of the TCP phase, in ms.
    pub connect_ms: i64,
    /// Limit of the TLS phase, in ms.
    pub tls_ms: i64,
    /// Limit of a resolution, in ms.
    pub resolve_ms: i64,
    /// Pauses before the probes of a burst, in ms.
    pub gaps: &'static [i64],
    /// Jitter of a round, in thousandths of its interval.
    pub jitter_permille: i64,
}

/// As configured by `policy: default`.
const CAREFUL: Timing = Timing {
    attempts: &[0, 500, 1000, 1500],
    connect_ms: 3000,
    tls_ms: 4000,
    resolve_ms: 5000,
    gaps: &[0, 2000],
    jitter_permille: 100,
};

/// As configured by `policy: fast`.
const FAST: Timing = Timing {
    attempts: &[0, 250],
    connect_ms: 1000,
    tls_ms: 1500,
    resolve_ms: 2000,
    gaps: &[250, 1000],
    jitter_permille: 20,
};

/// One configured fleet. Things are numbered in the order of these lists.
#[derive(Debug)]
pub(crate) struct Scenery {
    /// The configuration as judging has it.
    pub topology: Topology,
    /// How probes go on in time.
    pub timing: Timing,
    /// Whether the policy is `fast`.
    pub fast: bool,
    /// The vantages.
    pub vantages: Vec<VantageName>,
    /// The failure domain (uplink) of each vantage, by number.
    pub domain_of: Vec<usize>,
    /// The nodes, native first.
    pub nodes: Vec<(NodeName, IpAddr)>,
    /// The positive controls.
    pub controls: Vec<ControlName>,
    /// The negative one.
    pub negative: ControlName,
    /// The canary and its addresses.
    pub canary: (DomainName, Vec<IpAddr>),
    /// The service's host name.
    pub host: DomainName,
    /// The service.
    pub service: ServiceName,
    /// What users' machines ask.
    pub live: ResolverName,
    /// Another resolver.
    pub doh: ResolverName,
}

impl Scenery {
    /// Three to five vantages, in at least three failure domains.
    pub(crate) fn draw(dice: &mut Dice, fast: bool) -> Result<Self, NameError> {
        let count = dice.between(3, VANTAGES_MAX);
        let mut topology =
            Topology { policy: if fast { Policy::fast() } else { Policy::careful() }, ..Topology::default() };
        let (mut vantages, mut domain_of) = (Vec::new(), Vec::new());
        for number in 0..count {
            // The fourth and fifth may stand behind the uplink of another one.
            let domain = if number < 3 || dice.chance(0.5) { number } else { dice.between(0, 2) };
            let name: VantageName = format!("v{number}").parse()?;
            let place = Vantage {
                failure_domain: format!("uplink-{domain}").parse()?,
                upstream: Some("doh".parse()?),
                pin_driver: None,
                pin_mode: Mode::Observe,
                switch_by_hand: false,
                audience: true,
            };
            topology.vantages.insert(name.clone(), place);
            vantages.push(name);
            domain_of.push(usize::try_from(domain).unwrap_or(0));
        }
        let (live, doh): (ResolverName, ResolverName) = ("live".parse()?, "doh".parse()?);
        let resolver = |transport, role| Resolver { transport, role, validates: true, filtering_wanted: false };
        topology.resolvers.insert(live.clone(), resolver(Transport::Live, Role::Live));
        topology.resolvers.insert(doh.clone(), resolver(Transport::Doh, Role::Primary));
        let canary: DomainName = "cdn.example.com".parse()?;
        topology.canaries.insert(canary.clone(), Canary { port: 443, tls: true });
        let mut controls = Vec::new();
        for name in ["control-a", "control-b", "control-c"] {
            let name: ControlName = name.parse()?;
            topology.controls.insert(name.clone(), Control { kind: ControlKind::Positive });
            controls.push(name);
        }
        let negative: ControlName = "negative".parse()?;
        topology.controls.insert(negative.clone(), Control { kind: ControlKind::Negative });
        let mut nodes = Vec::new();
        for (name, octets) in NODES {
            let (name, address): (NodeName, IpAddr) = (name.parse()?, octets.into());
            topology.nodes.insert(name.clone(), Node { address, port: 443, tls: true, proof: false });
            nodes.push((name, address));
        }
        let (service, host): (ServiceName, DomainName) = ("fi".parse()?, "fi.example.net".parse()?);
        let mut names = nodes.iter().map(|(name, _)| name.clone());
        if let Some(native) = names.next() {
            let configured = Service {
                hostname: host.clone(),
                ttl_s: if fast { 5 } else { 60 },
                native,
                fallbacks: names.collect(),
                driver: "auth".parse()?,
                mode: Mode::Act,
                audience_failover: false,
            };
            topology.services.insert(service.clone(), configured);
        }
        Ok(Self {
            topology,
            timing: if fast { FAST } else { CAREFUL },
            fast,
            vantages,
            domain_of,
            nodes,
            controls,
            negative,
            canary: (canary, CANARY.map(IpAddr::from).into()),
            host,
            service,
            live,
            doh,
        })
    }

    /// The failure domain of a vantage.
    pub(crate) fn domain(&self, vantage: usize) -> usize {
        self.domain_of.get(vantage).copied().unwrap_or(0)
    }

    /// How many failure domains there are at most: their numbers are below this.
    pub(crate) fn domains(&self) -> usize {
        self.domain_of.iter().max().map_or(0, |last| last + 1)
    }

    /// The number of the node with this address.
    pub(crate) fn node_at(&self, address: IpAddr) -> Option<usize> {
        self.nodes.iter().position(|(_, known)| *known == address)
    }

    /// The number of a vantage.
    pub(crate) fn vantage(&self, name: &VantageName) -> Option<usize> {
        self.vantages.iter().position(|known| known == name)
    }

    /// Lifetime of the service's record, in ms.
    pub(crate) fn ttl_ms(&self) -> i64 {
        self.topology.services.values().map(|service| i64::from(service.ttl_s) * 1000).max().unwrap_or(0)
    }
}
