//! A case as a configuration and as the observations that agents would have sent.
//!
//! Each vantage's tokens become `n` observations, the last one now, spread over `span_s`; what is omitted is not
//! measured. Controls are asked before and after each of them, and every 20 s before that. What a case
//! calls state enters as history: of the incident, its plans and the native node's good rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use parallax_decide::names::{DomainName, NameError, NodeName, ResolverName, ServiceName, VantageName};
use parallax_decide::observation::{
    Connection, ControlCheck, EndpointCheck, Fact, Family, Observation, ObservationId, Outcome, Particulars,
    Proof as Shown, Purpose, Recent, Resolution, Target, Validation,
};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{
    self, Canary, Control, ControlKind, Mode, Policy, Resolver, Role, Service, Topology, Vantage,
};

use crate::case::{self, Case, Dnssec, Given, Kind, Negative, Node, Portal, Proof, Rcode, Report, Seen, V6};
use crate::token::{AddressToken, EndpointToken};

/// The moment at which a case is judged.
pub const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// How long before that the coordinator began to listen.
pub const LISTENING: Duration = Duration::from_secs(7200);

/// Interval of control rounds before the case's own observations.
const CONTROLS_EVERY: Duration = Duration::from_secs(20);

/// How old a late report's observations are: far more than two rounds.
const LATE: Duration = Duration::from_secs(600);

/// How many control rounds there were before, at least.
const CONTROL_ROUNDS: u32 = 4;

/// Name of the live resolver: what users at each place are given.
const LIVE: &str = "live";

/// Positive controls, in order of the number that is reached.
const CONTROLS: [&str; 3] = ["control-1", "control-2", "control-3"];

/// Addresses that stand for the nodes, and for what an endpoint's own address is.
const NODE_ADDRESSES: [&str; 3] = ["95.216.10.10", "49.12.20.20", "5.161.30.30"];
const ENDPOINT_ADDRESS: &str = "9.9.9.9";

/// Names that are the same in every case.
#[derive(Debug, Clone)]
pub struct Names {
    /// What users at each place are given.
    pub live: ResolverName,
    /// The endpoint in use.
    pub in_use: ResolverName,
    /// The name that is asked for.
    pub canary: DomainName,
    /// The managed record.
    pub service: ServiceName,
}

/// A case ready to run.
#[derive(Debug, Clone)]
pub struct World {
    /// Its configuration.
    pub topology: Topology,
    /// Its names.
    pub names: Names,
    /// What agents sent, in the order of their arrival.
    pub observations: Vec<Observation>,
}

/// The node's name in the configuration.
///
/// # Errors
/// Never: the words are names.
pub fn node_name(node: Node) -> Result<NodeName, NameError> {
    node.word().parse()
}

/// Builds the world of a case.
///
/// # Errors
/// When a name of the case cannot be one.
pub fn build(case: &Case) -> Result<World, NameError> {
    let names = Names {
        live: LIVE.parse()?,
        in_use: match &case.subject.resolver {
            Some(resolver) => resolver.clone(),
            None => "E1".parse()?,
        },
        canary: match &case.subject.canary {
            Some(canary) => canary.clone(),
            None => "example.com".parse()?,
        },
        service: "record".parse()?,
    };
    let topology = configuration(case, &names)?;
    let longest = case.observe.values().map(|seen| span(seen).max(good_for(case))).max().unwrap_or_default();
    let longest = longest.max(CONTROLS_EVERY * CONTROL_ROUNDS);
    let mut log = Log { names: &names, longest, entries: Vec::new() };
    for (vantage, seen) in &case.observe {
        log.vantage(case, vantage, seen)?;
    }
    let observations = log.finish();
    Ok(World { topology, names, observations })
}

fn configuration(case: &Case, names: &Names) -> Result<Topology, NameError> {
    let mut topology = Topology { policy: Policy::careful(), ..Topology::default() };
    for (vantage, seen) in &case.observe {
        let place = Vantage {
            failure_domain: match &seen.domain {
                Some(domain) => domain.clone(),
                None => vantage.as_str().parse()?,
            },
            upstream: Some(names.in_use.clone()),
            pin_driver: Some("pin".parse()?),
            pin_mode: Mode::Act,
            switch_by_hand: true,
            audience: seen.audience,
        };
        topology.vantages.insert(vantage.clone(), place);
    }
    for control in CONTROLS {
        topology.controls.insert(control.parse()?, Control { kind: ControlKind::Positive });
    }
    topology.controls.insert("negative".parse()?, Control { kind: ControlKind::Negative });
    topology.controls.insert("portal".parse()?, Control { kind: ControlKind::Captive });
    topology.resolvers = resolvers(case, names)?;
    topology.stubs.clone_from(&case.subject.stubs);
    topology.canaries.insert(names.canary.clone(), Canary { port: 443, tls: true });
    if case.subject.kind == Kind::Managed {
        let hostname = case.subject.host.clone().unwrap_or_else(|| names.canary.clone());
        let configured: Vec<Node> = Node::ALL.into_iter().filter(|node| is_configured(case, *node)).collect();
        for node in &configured {
            let address = node_address(*node);
            topology.nodes.insert(
                node_name(*node)?,
                topology::Node { address, port: 443, tls: true, proof: proves(case, *node) },
            );
        }
        let fallbacks = configured.iter().filter(|node| **node != Node::Native).map(|node| node_name(*node));
        let service = Service {
            hostname,
            ttl_s: 120,
            native: node_name(Node::Native)?,
            fallbacks: fallbacks.collect::<Result<_, _>>()?,
            driver: "dns".parse()?,
            mode: Mode::Act,
            audience_failover: case.subject.audience_failover,
        };
        topology.services.insert(names.service.clone(), service);
        topology.canaries.clear();
    }
    Ok(topology)
}

/// A fallback that nobody mentions is not configured.
fn is_configured(case: &Case, node: Node) -> bool {
    let mentioned = |seen: &Seen| match node {
        Node::Native => true,
        Node::Fallback1 => seen.fallback1.is_some(),
        Node::Fallback2 => seen.fallback2.is_some(),
    };
    case.state.record == Some(node) || case.observe.values().any(mentioned)
}

/// A node whose proof of life some vantage speaks of proves its life.
fn proves(case: &Case, node: Node) -> bool {
    case.observe.values().any(|seen| seen.proof != Proof::None && seen.node(node) != AddressToken::NotRun)
}

/// The address of a node.
#[must_use]
pub fn node_address(node: Node) -> IpAddr {
    let [native, fallback1, fallback2] = NODE_ADDRESSES;
    let text = match node {
        Node::Native => native,
        Node::Fallback1 => fallback1,
        Node::Fallback2 => fallback2,
    };
    text.parse().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED))
}

/// The live resolver, the endpoint behind it, and the others in the order of their names.
fn resolvers(case: &Case, names: &Names) -> Result<BTreeMap<ResolverName, Resolver>, NameError> {
    let mut resolvers = BTreeMap::new();
    let resolver = |transport, role| Resolver { transport, role, validates: true, filtering_wanted: false };
    resolvers.insert(names.live.clone(), resolver(topology::Transport::Live, Role::Live));
    if case.subject.kind == Kind::Endpoint {
        resolvers.insert(names.in_use.clone(), resolver(topology::Transport::Doh, Role::Primary));
        resolvers.insert("E2".parse()?, resolver(topology::Transport::Doh, Role::Reserve(1)));
    }
    let mut reserves = 0;
    for (name, given) in case.observe.values().flat_map(|seen| &seen.ans) {
        let encrypted = given.transport.is_none_or(case::Transport::encrypted);
        let role = match (name == &names.in_use, encrypted) {
            (true, _) => Role::Primary,
            (false, true) => {
                reserves += 1;
                Role::Reserve(reserves)
            }
            (false, false) => Role::ObserveOnly,
        };
        let transport = if encrypted { topology::Transport::Doh } else { topology::Transport::Plain };
        let filtering_wanted = name == &names.in_use && case.subject.filtering_wanted;
        let one = Resolver { validates: given.validates, filtering_wanted, ..resolver(transport, role) };
        resolvers.entry(name.clone()).or_insert(one);
    }
    Ok(resolvers)
}

fn span(seen: &Seen) -> Duration {
    Duration::from_secs(seen.span_s.into())
}

/// What the native node's good rounds span.
fn good_for(case: &Case) -> Duration {
    Duration::from_secs(case.state.ok_for_s.unwrap_or(0).into())
}

/// The smallest count of controls' probes whose bound reaches this rate; none at all means the floor.
fn recent(f0: f64) -> Recent {
    if f0 <= 0.0 {
        return Recent { failures: 0, checks: 100_000 };
    }
    let bound = |recent: Recent| parallax_decide::chance::bound(recent);
    (0..60)
        .map(|failures| Recent { failures, checks: 60 })
        .find(|recent| bound(*recent) >= f0)
        .unwrap_or(Recent { failures: 59, checks: 60 })
}

/// What comes of a node's proof at a vantage: one for each node that it reports well. One that does not hold is shown
/// whatever it reports.
fn proof(seen: &Seen, token: AddressToken) -> Option<Shown> {
    match seen.proof {
        Proof::None => None,
        Proof::Ok if token.works() => Some(Shown::Valid),
        Proof::Ok => None,
        Proof::Bad => Some(Shown::Invalid),
    }
}

struct Entry {
    vantage: VantageName,
    at: Timestamp,
    received_at: Timestamp,
    purpose: Purpose,
    late: bool,
    fact: Fact,
    particulars: Particulars,
}

/// Where, when and why something was measured.
#[derive(Debug, Clone, Copy)]
struct When<'a> {
    vantage: &'a VantageName,
    /// How long before [`NOW`] it arrived.
    ago: Duration,
    /// How long it waited before that.
    late: Duration,
    purpose: Purpose,
}

struct Log<'a> {
    names: &'a Names,
    /// Since when agents report.
    longest: Duration,
    entries: Vec<Entry>,
}

impl Log<'_> {
    fn vantage(&mut self, case: &Case, vantage: &VantageName, seen: &Seen) -> Result<(), NameError> {
        let late = match seen.report {
            Report::Absent => return Ok(()),
            Report::Fresh => Duration::ZERO,
            Report::Late => LATE,
        };
        let span = span(seen);
        let rounds: Vec<Duration> = (0..seen.n).map(|i| span * (seen.n - 1 - i) / (seen.n - 1).max(1)).collect();
        let history = self.history(case, seen);
        let scheduled = |ago| When { vantage, ago, late, purpose: Purpose::Scheduled };
        let mut ago = self.longest;
        while ago > span {
            self.controls(scheduled(ago), seen)?;
            ago = ago.saturating_sub(CONTROLS_EVERY);
        }
        for ago in history {
            let target = Target::Node(node_name(Node::Native)?);
            let works = AddressToken::Ends(Outcome::TlsOk);
            self.connection(scheduled(ago), target, node_address(Node::Native), works, proof(seen, works));
        }
        for (i, ago) in rounds.iter().enumerate() {
            let purpose = if i == 0 { Purpose::Scheduled } else { Purpose::Confirm };
            let when = When { vantage, ago: *ago, late, purpose };
            self.controls(when, seen)?;
            self.subject(case, when, seen)?;
            self.controls(when, seen)?;
        }
        Ok(())
    }

    /// When the native node's earlier good rounds were.
    fn history(&self, case: &Case, seen: &Seen) -> Vec<Duration> {
        let works = seen.node(Node::Native).works();
        let (Some(streak), true) = (case.state.ok_streak.filter(|streak| *streak > 1), works) else {
            return Vec::new();
        };
        let (span, own) = (good_for(case), span(seen));
        // The case's own observations are the last of them.
        (0..streak).map(|i| span * (streak - 1 - i) / (streak - 1)).filter(|ago| *ago > own).collect()
    }

    fn controls(&mut self, when: When<'_>, seen: &Seen) -> Result<(), NameError> {
        let particulars = Particulars {
            clock_offset_ms: Some(seen.skew_s * 1000),
            recent: Some(recent(seen.f0)),
            ..Particulars::default()
        };
        let mut put = |name: &str, outcome: Outcome| -> Result<(), NameError> {
            let fact = ControlCheck { control: name.parse()?, outcome };
            self.put(when, Fact::ControlCheck(fact), particulars);
            Ok(())
        };
        for (i, control) in CONTROLS.into_iter().enumerate() {
            put(control, if i < seen.controls { Outcome::TlsOk } else { Outcome::Silent })?;
        }
        put(
            "negative",
            match seen.neg {
                Negative::Silent => Outcome::Silent,
                Negative::Answered => Outcome::TcpOk,
            },
        )?;
        put(
            "portal",
            match seen.portal {
                Portal::Open => Outcome::HttpOk,
                Portal::Captive => Outcome::HttpRedirect,
            },
        )
    }

    fn subject(&mut self, case: &Case, when: When<'_>, seen: &Seen) -> Result<(), NameError> {
        for (resolver, given) in &seen.ans {
            self.answer(when, resolver, given);
            if *resolver == self.names.in_use {
                // What users get is what the endpoint in use gives.
                let live = self.names.live.clone();
                self.answer(when, &live, given);
            }
        }
        for (address, token) in &seen.addr {
            let lacks = seen.v6 != V6::Works && address.is_ipv6();
            let token = if lacks { AddressToken::Ends(Outcome::FamilyUnavailable) } else { *token };
            let target = Target::Name(self.names.canary.clone());
            self.connection(when, target, *address, token, None);
        }
        for (resolver, token) in [("E1", seen.e1), ("E2", seen.e2)] {
            self.check(when, seen, resolver.parse()?, token);
        }
        if let Some(EndpointToken::Ends(check)) = seen.live {
            let live = self.names.live.clone();
            let addresses = if check.known == Outcome::Answered {
                BTreeSet::from([node_address(Node::Native)])
            } else {
                BTreeSet::new()
            };
            self.resolution(
                when,
                &live,
                Family::V4,
                check.known,
                addresses.into_iter().collect(),
                Particulars::default(),
            );
        }
        if case.subject.kind == Kind::Managed {
            for node in Node::ALL.into_iter().filter(|node| is_configured(case, *node)) {
                let target = Target::Node(node_name(node)?);
                let token = seen.node(node);
                self.connection(when, target, node_address(node), token, proof(seen, token));
            }
        }
        Ok(())
    }

    fn answer(&mut self, when: When<'_>, resolver: &ResolverName, given: &Given) {
        let (v4, v6): (Vec<IpAddr>, Vec<IpAddr>) = given.a.iter().partition(|address| address.is_ipv4());
        let outcome = |addresses: &[IpAddr]| match given.rcode {
            Rcode::Noerror if !addresses.is_empty() => Outcome::Answered,
            Rcode::Noerror if given.cname_only => Outcome::DanglingCname,
            Rcode::Noerror => Outcome::Empty,
            Rcode::Formerr => Outcome::Formerr,
            Rcode::Servfail => Outcome::Servfail,
            Rcode::Nxdomain => Outcome::Nxdomain,
            Rcode::Notimp => Outcome::OtherRcode,
            Rcode::Refused => Outcome::Refused,
            Rcode::None if given.transport.is_none_or(case::Transport::encrypted) => Outcome::HttpSilent,
            Rcode::None => Outcome::DnsSilent,
        };
        let particulars = Particulars {
            extended_error: given.ede,
            recursion_unavailable: given.ra0,
            second_reply: given.two_replies,
            validation: given.dnssec.map(|dnssec| match dnssec {
                Dnssec::Secure => Validation::Secure,
                Dnssec::Insecure => Validation::Insecure,
                Dnssec::Bogus => Validation::Bogus,
            }),
            ..Particulars::default()
        };
        self.resolution(when, resolver, Family::V4, outcome(&v4), v4, particulars);
        if !v6.is_empty() {
            self.resolution(when, resolver, Family::V6, outcome(&v6), v6, particulars);
        }
    }

    fn resolution(
        &mut self,
        when: When<'_>,
        resolver: &ResolverName,
        family: Family,
        outcome: Outcome,
        addresses: Vec<IpAddr>,
        particulars: Particulars,
    ) {
        let name = self.names.canary.clone();
        let fact = Resolution { name, resolver: resolver.clone(), family, outcome, addresses, ttl_s: 60 };
        self.put(when, Fact::Resolution(fact), particulars);
    }

    fn connection(
        &mut self,
        when: When<'_>,
        target: Target,
        address: IpAddr,
        token: AddressToken,
        proof: Option<Shown>,
    ) {
        // Agents never contact these.
        if parallax_decide::address::special_purpose(address).is_some() {
            return;
        }
        if let Some((outcome, attempts)) = token.probe() {
            let (attempts, attempts_connected) = (attempts.made, attempts.connected);
            let fact = Connection { target, address, port: 443, outcome, attempts, attempts_connected };
            self.put(when, Fact::Connection(fact), Particulars { proof, ..Particulars::default() });
        }
    }

    fn check(&mut self, when: When<'_>, seen: &Seen, resolver: ResolverName, token: Option<EndpointToken>) {
        let Some(EndpointToken::Ends(check)) = token else { return };
        let address = ENDPOINT_ADDRESS.parse().unwrap_or(node_address(Node::Native));
        let fact = EndpointCheck {
            resolver,
            address,
            stage: check.stage,
            outcome: check.known,
            fresh: check.fresh,
            missing: check.missing,
            worked_before: !seen.never_ok,
        };
        self.put(when, Fact::EndpointCheck(fact), Particulars::default());
    }

    fn put(&mut self, when: When<'_>, fact: Fact, particulars: Particulars) {
        let received_at = NOW.minus(when.ago);
        let (vantage, purpose) = (when.vantage.clone(), when.purpose);
        self.entries.push(Entry {
            vantage,
            at: received_at.minus(when.late),
            received_at,
            purpose,
            late: !when.late.is_zero(),
            fact,
            particulars,
        });
    }

    /// In the order of arrival; one vantage's in the order in which it measured.
    fn finish(mut self) -> Vec<Observation> {
        self.entries.sort_by_key(|entry| entry.received_at);
        let numbered = self.entries.into_iter().zip(1..);
        numbered
            .map(|(entry, id)| Observation {
                id: ObservationId(id),
                vantage: entry.vantage,
                at: entry.at,
                received_at: entry.received_at,
                purpose: entry.purpose,
                late: entry.late,
                fact: entry.fact,
                particulars: entry.particulars,
            })
            .collect()
    }
}
