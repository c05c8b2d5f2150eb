//! Findings that outlast hysteresis: when an incident opens, changes and closes.
//!
//! ```text
//!   finding seen            held for open_after            well for long enough, nothing in force
//!  (nothing) ------> pending -------------------> open -------------------------------------> closed
//!      ^                |                         |  ^
//!      +-- finding gone +                         +--+ finding changes; unknown changes nothing
//! ```
//!
//! How long is long enough each way: [`steady`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::endpoint::in_use;
use crate::finding::{Finding, Reason, Subject};
use crate::judge::{Judgement, live_resolver, watched};
use crate::names::{DomainName, NodeName, ResolverName, ServiceName, VantageName};
use crate::time::Timestamp;
use crate::topology::{Policy, Role, Topology};
use crate::vantage::VantageJudgement;
use crate::verdict::{AnswerVerdict, EndpointVerdict, NodeVerdict, VantageVerdict};

pub mod steady;

pub use steady::{Closed, Steady};

/// Key of a stored incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IncidentId(pub i64);

/// An open incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number.
    pub id: IncidentId,
    /// What it is about.
    pub subject: Subject,
    /// The newest finding's word.
    pub kind: String,
    /// Everything it affected so far.
    pub members: BTreeSet<String>,
    /// When it opened.
    pub opened_at: Timestamp,
    /// The newest finding, as far as it mattered when it was last stored.
    pub outline: Option<Outline>,
    /// Since when its subject has been well without a break.
    pub well_since: Option<Timestamp>,
    /// What hysteresis remembers of it.
    pub steady: Steady,
}

/// The part of a finding whose change is worth a row: which kind, whom it affects, whether
/// another resolver would help, and who else reaches what cannot be reached here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    kind: String,
    members: BTreeSet<String>,
    resolvers: BTreeMap<(DomainName, ResolverName), AnswerVerdict>,
    /// Who reaches an address of each name: a second witness is worth telling, which address of several he tried is not.
    witnesses: BTreeMap<DomainName, BTreeSet<VantageName>>,
    /// The native node of a service was found well since.
    eased: bool,
}

/// The outline of a finding.
#[must_use]
pub fn outline(finding: &Finding) -> Outline {
    let mut resolvers = BTreeMap::new();
    let mut witnesses: BTreeMap<DomainName, BTreeSet<VantageName>> = BTreeMap::new();
    if let Reason::UnroutableHere { names } = &finding.reason {
        for (name, unroutable) in names {
            witnesses.insert(name.clone(), unroutable.proven_at.values().flatten().cloned().collect());
            for (resolver, other) in &unroutable.resolvers {
                resolvers.insert((name.clone(), resolver.clone()), other.verdict);
            }
        }
    }
    Outline { kind: finding.kind.clone(), members: finding.members.clone(), resolvers, witnesses, eased: false }
}

impl Open {
    /// Whether a finding about the subject says something that is not stored yet. That a member is
    /// missing from it is none: it may be healed by a remedy, or not measured at the moment. Its name is
    /// [`steady`]'s business.
    fn is_news(&self, finding: &Finding) -> bool {
        let Some(known) = &self.outline else { return true };
        let now = outline(finding);
        !now.members.is_subset(&self.members)
            || now.resolvers.iter().any(|(key, verdict)| {
                *verdict != AnswerVerdict::InsufficientEvidence && known.resolvers.get(key) != Some(verdict)
            })
            || now
                .witnesses
                .iter()
                .any(|(name, now)| known.witnesses.get(name).is_none_or(|known| !now.is_subset(known)))
    }
}

/// What happened to an incident.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// Open a new one for this finding.
    Open {
        /// The finding.
        finding: Finding,
    },
    /// The finding of an open one changed in kind, members, counterfactual or witnesses.
    Change {
        /// Which.
        id: IncidentId,
        /// The finding now.
        finding: Finding,
    },
    /// Close it.
    Close {
        /// Which.
        id: IncidentId,
        /// Since when its subject has been well.
        well_since: Timestamp,
    },
}

/// Pending findings and open incidents.
#[derive(Debug, Clone, Default)]
pub struct Book {
    pending: BTreeMap<Subject, Timestamp>,
    open: BTreeMap<Subject, Open>,
    closed: BTreeMap<Subject, Closed>,
}

/// How the subject of an open incident is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Shown to be well.
    Well,
    /// Shown to be faulty still, or served by a remedy.
    Sick,
    /// Nothing can be said; neither opens nor closes.
    Unknown,
}

impl Book {
    /// A book with the incidents that are open in the store.
    #[must_use]
    pub fn new(open: impl IntoIterator<Item = Open>) -> Self {
        let open = open.into_iter().map(|open| (open.subject.clone(), open)).collect();
        Self { pending: BTreeMap::new(), open, closed: BTreeMap::new() }
    }

    /// The same, with what closed lately: of one subject the newest.
    #[must_use]
    pub fn with_closed(mut self, closed: impl IntoIterator<Item = Closed>) -> Self {
        for one in closed {
            if self.closed.get(&one.subject).is_none_or(|known| known.at <= one.at) {
                self.closed.insert(one.subject.clone(), one);
            }
        }
        self
    }

    /// What closed lately, in order of subject.
    pub fn closed_lately(&self) -> impl Iterator<Item = &Closed> {
        self.closed.values()
    }

    /// How often in a row a subject will have relapsed if it is found now.
    #[must_use]
    pub fn relapses(&self, subject: &Subject) -> u32 {
        self.closed.get(subject).map_or(0, |closed| closed.relapses.saturating_add(1))
    }

    /// Ages that matter to the open incidents, each with the span it is compared with.
    pub fn ages<'a>(&'a self, policy: &'a Policy) -> impl Iterator<Item = (Timestamp, Duration)> + 'a {
        self.open.values().flat_map(|open| {
            let well = open.well_since.map(|at| (at, steady::close_after(policy, &open.subject, &open.steady)));
            let naming = open.steady.naming.as_ref();
            let naming = naming.map(|(_, at)| (*at, steady::rename_after(policy, &open.subject)));
            well.into_iter().chain(naming)
        })
    }

    /// The open incidents, in order of subject.
    pub fn open(&self) -> impl Iterator<Item = &Open> {
        self.open.values()
    }

    /// Notes that the store has opened an incident for a finding.
    pub fn opened(&mut self, id: IncidentId, finding: &Finding, now: Timestamp) {
        self.pending.remove(&finding.subject);
        let steady = Steady { relapses: self.relapses(&finding.subject), ..Steady::default() };
        self.closed.remove(&finding.subject);
        let open = Open {
            id,
            subject: finding.subject.clone(),
            kind: finding.kind.clone(),
            members: finding.members.clone(),
            opened_at: now,
            outline: Some(outline(finding)),
            well_since: None,
            steady,
        };
        self.open.insert(finding.subject.clone(), open);
    }

    /// Notes that the store has recorded a change.
    pub fn changed(&mut self, finding: &Finding) {
        if let Some(open) = self.open.get_mut(&finding.subject) {
            let mut news = outline(finding);
            if let Some(known) = open.outline.take() {
                news.resolvers = known.resolvers.into_iter().chain(news.resolvers).collect();
                for (name, before) in known.witnesses {
                    news.witnesses.entry(name).or_default().extend(before);
                }
            }
            open.kind.clone_from(&finding.kind);
            open.steady.naming = None;
            open.members.extend(finding.members.iter().cloned());
            open.outline = Some(news);
        }
    }

    /// Notes that the store has closed an incident.
    pub fn closed(&mut self, id: IncidentId, at: Timestamp) {
        for (subject, open) in self.open.extract_if(.., |_, open| open.id == id) {
            let relapses = open.steady.relapses;
            self.closed.insert(subject.clone(), Closed { subject, at, relapses });
        }
    }

    /// What the findings of this moment do to the incidents. `in_force` lists open incidents with a
    /// remedy in force or a plan in flight: they do not close. The caller stores each transition
    /// and then notes it with [`Book::opened`], [`Book::changed`] or [`Book::closed`].
    #[must_use]
    pub fn step(
        &mut self,
        topology: &Topology,
        judgement: &Judgement,
        findings: &[Finding],
        serving: &BTreeMap<ServiceName, NodeName>,
        in_force: &BTreeSet<IncidentId>,
    ) -> Vec<Transition> {
        let now = judgement.at;
        let mut transitions = Vec::new();
        let policy = &topology.policy;
        let found: BTreeSet<&Subject> = findings.iter().map(|finding| &finding.subject).collect();
        self.pending.retain(|subject, _| found.contains(subject));
        self.closed.retain(|_, closed| now.since(closed.at) <= policy.relapse_window);
        for finding in findings {
            if let Some(open) = self.open.get_mut(&finding.subject) {
                let named = open.outline.is_none() || open.takes_name(policy, finding, now);
                // What another name says is told together with that name.
                if named || (open.kind == finding.kind && open.is_news(finding)) {
                    transitions.push(Transition::Change { id: open.id, finding: finding.clone() });
                }
                continue;
            }
            let since = *self.pending.entry(finding.subject.clone()).or_insert(now);
            if now.since(since) >= steady::open_after(policy, finding) {
                transitions.push(Transition::Open { finding: finding.clone() });
            }
        }
        for open in self.open.values_mut() {
            if let Subject::Service { service } = &open.subject
                && !found.contains(&open.subject)
                && let Some(native) = topology.services.get(service).map(|service| &service.native)
                && let (Health::Well, Some(outline)) = (node_health(judgement, native), &mut open.outline)
            {
                outline.eased = true;
            }
            open.steady.acted |= in_force.contains(&open.id);
            if !found.contains(&open.subject) {
                open.steady.naming = None;
            }
            let health = if found.contains(&open.subject) || in_force.contains(&open.id) {
                Health::Sick
            } else {
                health(topology, judgement, open, serving)
            };
            match health {
                Health::Sick | Health::Unknown => open.well_since = None,
                Health::Well => {
                    let since = *open.well_since.get_or_insert(now);
                    if now.since(since) >= steady::close_after(policy, &open.subject, &open.steady) {
                        transitions.push(Transition::Close { id: open.id, well_since: since });
                    }
                }
            }
        }
        transitions
    }
}

/// How the subject of an open incident is doing now.
#[must_use]
pub fn health(
    topology: &Topology,
    judgement: &Judgement,
    open: &Open,
    serving: &BTreeMap<ServiceName, NodeName>,
) -> Health {
    if judgement.fleet.frozen() {
        return if open.subject == Subject::Fleet { Health::Sick } else { Health::Unknown };
    }
    match &open.subject {
        // Not frozen is not well yet: somebody must have spoken.
        Subject::Fleet if judgement.vantages.values().any(VantageJudgement::may_accuse) => Health::Well,
        Subject::Fleet => Health::Unknown,
        // No longer configured: nobody watches it any more.
        subject if gone(topology, subject) => Health::Well,
        Subject::Vantage { vantage } => {
            judgement.vantages.get(vantage).map_or(Health::Unknown, |judged| match judged.verdict {
                VantageVerdict::Ok => Health::Well,
                VantageVerdict::Silent
                | VantageVerdict::Captive
                | VantageVerdict::UplinkDown
                | VantageVerdict::Intercepted
                | VantageVerdict::Suspect
                | VantageVerdict::ClockSkewed => Health::Sick,
                VantageVerdict::Late | VantageVerdict::Unmeasured | VantageVerdict::Degraded => Health::Unknown,
            })
        }
        Subject::UnroutableAt { .. } if members_watched(topology, open).next().is_none() => Health::Well,
        Subject::UnroutableAt { vantage } => worst(members_watched(topology, open).map(|name| {
            let live = live_health(topology, judgement, vantage, &name);
            worst([live, native_health(topology, judgement, vantage, &name)])
        })),
        Subject::Name { name } => {
            worst(topology.vantages.keys().map(|vantage| live_health(topology, judgement, vantage, name)))
        }
        Subject::NameAt { vantage, name } => live_health(topology, judgement, vantage, name),
        Subject::Endpoint { resolver } => endpoint_health(topology, judgement, open, resolver),
        Subject::Service { service } => match topology.services.get(service) {
            Some(service_now) => match serving.get(service) {
                Some(node) if *node == service_now.native => node_health(judgement, node),
                Some(_) => Health::Sick,
                None => Health::Unknown,
            },
            None => Health::Well,
        },
        Subject::Node { node } => node_health(judgement, node),
    }
}

/// The names an incident affects, as far as they are still watched.
fn members_watched<'a>(topology: &'a Topology, open: &'a Open) -> impl Iterator<Item = DomainName> + 'a {
    open.members.iter().filter_map(|member| member.parse().ok()).filter(|name| watched(topology, name))
}

/// Whether the configuration no longer names the subject.
fn gone(topology: &Topology, subject: &Subject) -> bool {
    match subject {
        Subject::Fleet => false,
        Subject::Vantage { vantage } | Subject::UnroutableAt { vantage } => !topology.vantages.contains_key(vantage),
        Subject::Name { name } => !watched(topology, name),
        Subject::NameAt { vantage, name } => !topology.vantages.contains_key(vantage) || !watched(topology, name),
        Subject::Endpoint { resolver } => !topology.resolvers.contains_key(resolver),
        Subject::Service { service } => !topology.services.contains_key(service),
        Subject::Node { node } => !topology.nodes.contains_key(node),
    }
}

/// The places that could not use an endpoint, as far as they still do.
fn endpoint_health(topology: &Topology, judgement: &Judgement, open: &Open, resolver: &ResolverName) -> Health {
    let places = open.members.iter().filter_map(|member| member.parse::<VantageName>().ok());
    let users = places.filter(|place| in_use(topology, place) == Some(resolver)).map(|place| {
        judgement.endpoint(&place, resolver).map_or(Health::Unknown, |judged| match judged.verdict {
            EndpointVerdict::Ok => Health::Well,
            EndpointVerdict::InsufficientEvidence => Health::Unknown,
            EndpointVerdict::Rewrites
            | EndpointVerdict::Throttled
            | EndpointVerdict::Misconfigured
            | EndpointVerdict::NoPath
            | EndpointVerdict::Refused
            | EndpointVerdict::PmtuBlackhole
            | EndpointVerdict::TlsFailed
            | EndpointVerdict::HttpFailed
            | EndpointVerdict::Silent
            | EndpointVerdict::ServingStale
            | EndpointVerdict::AliveNotResolving
            | EndpointVerdict::StaleCacheMasking => Health::Sick,
        })
    });
    // Nobody uses it any more: nobody suffers.
    worst(users.chain(std::iter::once(Health::Well)))
}

fn worst(parts: impl IntoIterator<Item = Health>) -> Health {
    let mut worst = None;
    for part in parts {
        worst = Some(match (worst, part) {
            (Some(Health::Sick), _) | (_, Health::Sick) => Health::Sick,
            (Some(Health::Unknown), _) | (_, Health::Unknown) => Health::Unknown,
            (Some(Health::Well) | None, Health::Well) => Health::Well,
        });
    }
    worst.unwrap_or(Health::Unknown)
}

fn answer_health(verdict: AnswerVerdict) -> Health {
    match verdict {
        AnswerVerdict::Ok | AnswerVerdict::SteeredByVantage | AnswerVerdict::FamilyUnusable => Health::Well,
        AnswerVerdict::InsufficientEvidence => Health::Unknown,
        AnswerVerdict::NotObtained
        | AnswerVerdict::Injected
        | AnswerVerdict::Forged
        | AnswerVerdict::BogusAtResolver
        | AnswerVerdict::Stub
        | AnswerVerdict::PathPartial
        | AnswerVerdict::Servfail
        | AnswerVerdict::Refused
        | AnswerVerdict::Denied
        | AnswerVerdict::CanaryGone
        | AnswerVerdict::Filtered
        | AnswerVerdict::Private
        | AnswerVerdict::Empty
        | AnswerVerdict::DanglingCname
        | AnswerVerdict::PartlyDead
        | AnswerVerdict::Impostor
        | AnswerVerdict::UnroutableHere
        | AnswerVerdict::DeadEverywhere => Health::Sick,
    }
}

fn live_health(topology: &Topology, judgement: &Judgement, vantage: &VantageName, name: &DomainName) -> Health {
    let answer = live_resolver(topology).and_then(|live| judgement.answer(vantage, name, live));
    answer.map_or(Health::Unknown, |answer| answer_health(answer.verdict))
}

/// Whether the native answer for a name at a vantage is usable: what the live resolver would serve
/// without a pin. That is the answer of its configured upstream; without one, of every endpoint.
#[must_use]
pub fn native_health(topology: &Topology, judgement: &Judgement, vantage: &VantageName, name: &DomainName) -> Health {
    worst(native_resolvers(topology, vantage).map(|resolver| {
        judgement.answer(vantage, name, resolver).map_or(Health::Unknown, |a| answer_health(a.verdict))
    }))
}

/// Resolvers whose answers stand for the native answer at a vantage.
pub fn native_resolvers<'a>(topology: &'a Topology, vantage: &VantageName) -> impl Iterator<Item = &'a ResolverName> {
    let upstream = topology.vantages.get(vantage).and_then(|v| v.upstream.clone());
    topology
        .resolvers
        .iter()
        .filter(move |(name, resolver)| match &upstream {
            Some(upstream) => *name == upstream,
            None => resolver.role != Role::Live,
        })
        .map(|(name, _)| name)
}

fn node_health(judgement: &Judgement, node: &NodeName) -> Health {
    judgement.nodes.get(node).map_or(Health::Unknown, |judged| match judged.verdict {
        NodeVerdict::Ok => Health::Well,
        NodeVerdict::InsufficientEvidence => Health::Unknown,
        NodeVerdict::UnroutableFromSome
        | NodeVerdict::PathPartial
        | NodeVerdict::UnroutableForAudience
        | NodeVerdict::ImpostorEverywhere
        | NodeVerdict::CertInvalidEverywhere
        | NodeVerdict::OpenButDead
        | NodeVerdict::RefusingEverywhere
        | NodeVerdict::DeadEverywhere => Health::Sick,
    })
}
