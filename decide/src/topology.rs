//! What the operator configured: places, names, machines, and how careful to be.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::names::{
    ControlName, DomainName, DriverName, FailureDomain, NodeName, ResolverName, ServiceName, VantageName,
};

/// Everything judging needs to know about the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// Places that measure.
    pub vantages: BTreeMap<VantageName, Vantage>,
    /// Resolvers under test.
    pub resolvers: BTreeMap<ResolverName, Resolver>,
    /// Names whose answers and reachability are watched (not the services' host names).
    pub canaries: BTreeMap<DomainName, Canary>,
    /// Controls.
    pub controls: BTreeMap<ControlName, Control>,
    /// Machines of ours.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Services of ours.
    pub services: BTreeMap<ServiceName, Service>,
    /// Addresses that stand for a block: a hint, which yields to proof.
    pub stubs: BTreeSet<IpAddr>,
    /// How careful to be.
    pub policy: Policy,
}

/// A place that measures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vantage {
    /// Two vantages of one failure domain are one witness.
    pub failure_domain: FailureDomain,
    /// Which resolver of the configuration is the upstream of this vantage's live resolver.
    pub upstream: Option<ResolverName>,
    /// Driver (via the agent) that can pin names on the vantage's own resolver.
    pub pin_driver: Option<DriverName>,
    /// What the pin driver may do by itself.
    pub pin_mode: Mode,
    /// Whether its owner switches its resolver by hand: then a switch that would heal is offered before any pin.
    pub switch_by_hand: bool,
    /// Whether it stands for the users of the services.
    pub audience: bool,
}

/// A resolver under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolver {
    /// How it is spoken to.
    pub transport: Transport,
    /// What it may be used for.
    pub role: Role,
    /// Whether it validates signatures (DNSSEC): one that does not is no way out of a zone that is broken.
    pub validates: bool,
    /// Whether it is meant to filter: then a filtered answer is its work and no fault.
    pub filtering_wanted: bool,
}

/// How a resolver is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// What clients at the place use, whatever it is.
    Live,
    /// Plain DNS: observed, never switched to unless the operator names it.
    Plain,
    /// DNS over HTTPS.
    Doh,
    /// DNS over TLS.
    Dot,
}

/// What a resolver may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The live resolver itself.
    Live,
    /// In use as upstream.
    Primary,
    /// May be switched to, in this order.
    Reserve(u8),
    /// Compared, never switched to.
    ObserveOnly,
}

/// A watched name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Canary {
    /// TCP port its addresses are tried on.
    pub port: u16,
    /// Whether TLS for the name is the proof; else TCP is.
    pub tls: bool,
}

/// A control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// What is right for it.
    pub kind: ControlKind,
}

/// What is right for a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlKind {
    /// Must be reached.
    Positive,
    /// Must stay silent; exposes middleboxes that accept everything.
    Negative,
    /// A plain HTTP question that must get status 204; exposes captive portals.
    Captive,
}

/// A machine of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its address.
    pub address: IpAddr,
    /// TCP port it is tried on.
    pub port: u16,
    /// Whether TLS is the proof; else TCP is.
    pub tls: bool,
    /// Whether it proves its life by a signature: then only a proven "alive" vetoes.
    pub proof: bool,
}

/// A service of ours: one host name and the nodes that can serve it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its A record's name.
    pub hostname: DomainName,
    /// TTL of the record, in seconds.
    pub ttl_s: u32,
    /// Node that serves it when all is well.
    pub native: NodeName,
    /// Fallbacks, in order of preference.
    pub fallbacks: Vec<NodeName>,
    /// Driver that changes the record.
    pub driver: DriverName,
    /// What the driver may do by itself.
    pub mode: Mode,
    /// Whether it may also move when only the audience has lost the node; else a person is asked.
    pub audience_failover: bool,
}

/// What automation may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Watch and say; change nothing.
    #[default]
    Observe,
    /// Make the plan and wait for a person.
    Propose,
    /// Make the plan and apply it.
    Act,
}

/// How careful to be. Every field is a setting of the configuration's policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Fewest agreeing failed probes for a fault.
    pub k_min: u32,
    /// Most agreeing failed probes asked for, however many of a vantage's controls fail without a fault. Not
    /// above `k_min`: what the controls lose is not regarded.
    pub k_max: u32,
    /// Shortest time they must span.
    pub span_min: Duration,
    /// Interval of canary rounds.
    pub canary_every: Duration,
    /// Interval of node rounds.
    pub node_every: Duration,
    /// Interval of control checks.
    pub control_every: Duration,
    /// A vantage that reported nothing for this long is silent.
    pub silent_after: Duration,
    /// A result older than this proves nothing any more.
    pub fresh_for: Duration,
    /// A finding must hold this long before an incident opens.
    pub open_after: Duration,
    /// Proof of a target must be this recent when a change is made.
    pub proof_age_max: Duration,
    /// Vantages that must prove a fallback.
    pub fallback_provers_min: usize,
    /// Consecutive good rounds before a return.
    pub return_rounds: u32,
    /// They must span this long.
    pub return_span: Duration,
    /// No return sooner than this after the last change.
    pub dwell: Duration,
    /// Doubled on each relapse up to this.
    pub dwell_max: Duration,
    /// A failover this soon after a return is a relapse.
    pub relapse_window: Duration,
    /// Most changes one incident may make to one name or service, a return to native excepted.
    pub changes_max: u32,
    /// A proof after a change must come within this, else it is rolled back.
    pub verify_within: Duration,
    /// Life of a pin that is not renewed.
    pub pin_life: Duration,
    /// TTL a pin is served with, in seconds.
    pub pin_ttl_s: u32,
    /// Asking a vantage for the same evidence again no sooner than this.
    pub ask_again_after: Duration,
}

/// Added to the span that failures must be apart: ages come in whole milliseconds, and one less would not be enough.
const SPAN_MARGIN: Duration = Duration::from_millis(50);

impl Policy {
    /// How often a vantage that is asked for an address tries it, and what passes from the beginning of one try to that of
    /// the next: so that its answer alone can be enough failures over enough time, and no later than need be.
    #[must_use]
    pub fn tries(&self) -> (u32, Duration) {
        let tries = self.k_min.max(1);
        (tries, self.span_min / tries.saturating_sub(1).max(1) + SPAN_MARGIN)
    }

    /// How far back an observation can still matter: so much of the log a start reads before it judges.
    #[must_use]
    pub fn looks_back(&self) -> Duration {
        [
            self.fresh_for,
            self.silent_after,
            self.control_every * 5 / 2,
            self.return_span,
            self.dwell,
            self.canary_every.max(self.node_every).saturating_mul(self.return_rounds),
            self.span_min.saturating_mul(2),
        ]
        .into_iter()
        .fold(Duration::ZERO, Duration::max)
    }

    /// The computed defaults.
    #[must_use]
    pub fn careful() -> Self {
        let s = Duration::from_secs;
        Self {
            k_min: 3,
            k_max: 12,
            span_min: s(7),
            canary_every: s(60),
            node_every: s(20),
            control_every: s(20),
            silent_after: s(150),
            fresh_for: s(150),
            open_after: s(10),
            proof_age_max: s(60),
            fallback_provers_min: 2,
            return_rounds: 5,
            return_span: s(60),
            dwell: s(300),
            dwell_max: s(3600),
            relapse_window: s(3600),
            changes_max: 3,
            verify_within: s(180),
            pin_life: s(24 * 3600),
            pin_ttl_s: 30,
            ask_again_after: s(10),
        }
    }

    /// For a demonstration or a laboratory: rounds of 5 s, span 3 s, dwell 20 s.
    #[must_use]
    pub fn fast() -> Self {
        let s = Duration::from_secs;
        Self {
            k_min: 3,
            k_max: 3,
            span_min: s(3),
            canary_every: s(5),
            node_every: s(5),
            control_every: s(5),
            silent_after: Duration::from_millis(12_500),
            fresh_for: Duration::from_millis(12_500),
            open_after: Duration::ZERO,
            proof_age_max: s(10),
            fallback_provers_min: 2,
            return_rounds: 3,
            return_span: s(5),
            dwell: s(20),
            dwell_max: s(300),
            relapse_window: s(600),
            changes_max: 3,
            verify_within: s(20),
            pin_life: s(24 * 3600),
            pin_ttl_s: 5,
            ask_again_after: s(3),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::careful()
    }
}
