//! Verdicts of all vantages compared. One finding a cause: names that fail together at one vantage
//! are one finding with its members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::call::{self, Call};
use crate::elsewhere::WITNESSES_MAX;
use crate::endpoint::{EndpointJudgement, in_use};
use crate::judge::{Judgement, live_resolver};
use crate::names::{DomainName, NodeName, ResolverName, ServiceName, VantageName};
use crate::node::NodeJudgement;
use crate::observation::ObservationId;
use crate::topology::Topology;
use crate::vantage::VantageJudgement;
use crate::verdict::{AnswerVerdict, EndpointVerdict, FleetVerdict, NodeVerdict, VantageVerdict};

/// What a finding is about: the key by which an incident is found again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "about", rename_all = "snake_case")]
pub enum Subject {
    /// The whole fleet.
    Fleet,
    /// A vantage itself.
    Vantage {
        /// Which.
        vantage: VantageName,
    },
    /// Names that cannot be used at one vantage although they can elsewhere.
    UnroutableAt {
        /// Where.
        vantage: VantageName,
    },
    /// A name, wherever it is asked for.
    Name {
        /// Which.
        name: DomainName,
    },
    /// A name at one vantage.
    NameAt {
        /// Where.
        vantage: VantageName,
        /// Which.
        name: DomainName,
    },
    /// The endpoint in use at places that cannot use it.
    Endpoint {
        /// Which resolver.
        resolver: ResolverName,
    },
    /// A service of ours, by the node that serves it or should.
    Service {
        /// Which.
        service: ServiceName,
    },
    /// A node that serves nothing at the moment and is native to nothing.
    Node {
        /// Which.
        node: NodeName,
    },
}

impl Subject {
    /// A short text that identifies it among open incidents.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Fleet => "fleet".to_owned(),
            Self::Vantage { vantage } => format!("vantage/{vantage}"),
            Self::UnroutableAt { vantage } => format!("unroutable/{vantage}"),
            Self::Name { name } => format!("name/{name}"),
            Self::NameAt { vantage, name } => format!("name/{name}@{vantage}"),
            Self::Endpoint { resolver } => format!("endpoint/{resolver}"),
            Self::Service { service } => format!("service/{service}"),
            Self::Node { node } => format!("node/{node}"),
        }
    }

    /// What it is about, by its own name: a vantage, a name, a service or a node.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Fleet => "fleet",
            Self::Vantage { vantage } | Self::UnroutableAt { vantage } => vantage.as_str(),
            Self::Name { name } | Self::NameAt { name, .. } => name.as_str(),
            Self::Endpoint { resolver } => resolver.as_str(),
            Self::Service { service } => service.as_str(),
            Self::Node { node } => node.as_str(),
        }
    }

    /// The one vantage it holds at, if it is local.
    #[must_use]
    pub fn vantage(&self) -> Option<&VantageName> {
        match self {
            Self::Vantage { vantage } | Self::UnroutableAt { vantage } | Self::NameAt { vantage, .. } => Some(vantage),
            Self::Fleet | Self::Name { .. } | Self::Endpoint { .. } | Self::Service { .. } | Self::Node { .. } => None,
        }
    }
}

/// A finding: a subject, what was found, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// The finding's word: that of the verdict it rests on.
    pub kind: String,
    /// Names it affects, or the vantage or node itself.
    pub members: BTreeSet<String>,
    /// Why, as data.
    pub reason: Reason,
    /// What it calls for besides a change.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub calls: BTreeSet<Call>,
    /// Observations it rests on, with what each shows.
    pub evidence: Vec<(ObservationId, Shows)>,
}

/// What a cited observation shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// The answer a resolver gave, or a connection that failed at the vantage that suffers.
    FailsHere,
    /// The same address used from elsewhere, or failing there too.
    SeenElsewhere,
    /// What another resolver gives at the vantage that suffers.
    OtherResolver,
    /// A node that is dead or alive at some vantage.
    NodeProbe,
    /// A control of a vantage.
    Control,
}

/// Why, as data. Text for people is rendered from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Reason {
    /// Names whose addresses are dead here and proven elsewhere.
    UnroutableHere {
        /// By name.
        names: BTreeMap<DomainName, Unroutable>,
    },
    /// A name whose addresses are dead at several vantages and proven nowhere.
    DeadEverywhere {
        /// Vantages that were given the dead answer.
        vantages: BTreeSet<VantageName>,
        /// The dead addresses.
        addresses: BTreeSet<IpAddr>,
    },
    /// An answer that does not help a client, whatever the reason.
    AnswerUnusable {
        /// Its verdict.
        verdict: AnswerVerdict,
        /// Its addresses.
        addresses: BTreeSet<IpAddr>,
        /// Those dead here.
        dead: BTreeSet<IpAddr>,
    },
    /// An endpoint that places use and that does not resolve for them.
    Endpoint {
        /// Which resolver.
        resolver: ResolverName,
        /// What each of them found; at most [`WITNESSES_MAX`] of each verdict.
        places: BTreeMap<VantageName, EndpointJudgement>,
        /// Others for whom it works: at most [`WITNESSES_MAX`].
        reached_at: Vec<VantageName>,
    },
    /// A node.
    Node {
        /// Which.
        node: NodeName,
        /// What was found.
        judgement: NodeJudgement,
    },
    /// A vantage.
    Vantage {
        /// What was found.
        judgement: VantageJudgement,
    },
    /// The fleet.
    Fleet {
        /// What was found.
        verdict: FleetVerdict,
    },
}

/// One name that is unroutable at a vantage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unroutable {
    /// What the live resolver hands out.
    pub addresses: BTreeSet<IpAddr>,
    /// Who reaches which of these same addresses.
    pub proven_at: BTreeMap<IpAddr, Vec<VantageName>>,
    /// What every other resolver asked from here gives, and whether that would help: the answer to
    /// "would another resolver help?".
    pub resolvers: BTreeMap<ResolverName, OtherResolver>,
}

/// What another resolver gives for the name at the same vantage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherResolver {
    /// The verdict of its answer.
    pub verdict: AnswerVerdict,
    /// Its addresses.
    pub addresses: BTreeSet<IpAddr>,
}

/// Compares everything. `serving` tells which node each service's record points to now, where known.
#[must_use]
pub fn compare(topology: &Topology, judgement: &Judgement, serving: &BTreeMap<ServiceName, NodeName>) -> Vec<Finding> {
    if judgement.fleet.frozen() {
        // Whole-fleet states come first: nothing else can be concluded.
        return vec![Finding {
            subject: Subject::Fleet,
            kind: judgement.fleet.word().to_owned(),
            members: BTreeSet::new(),
            reason: Reason::Fleet { verdict: judgement.fleet },
            calls: BTreeSet::new(),
            evidence: judgement.vantages.values().flat_map(|v| shown(&v.evidence, Shows::Control)).collect(),
        }];
    }
    let mut findings = vantages(judgement);
    findings.extend(answers(topology, judgement));
    findings.extend(endpoints(topology, judgement));
    findings.extend(nodes(topology, judgement, serving));
    for finding in &mut findings {
        finding.calls = call::of(topology, finding.subject.vantage(), &finding.reason);
    }
    findings
}

fn shown(ids: &[ObservationId], shows: Shows) -> Vec<(ObservationId, Shows)> {
    ids.iter().map(|id| (*id, shows)).collect()
}

/// What an answer rests on: what this vantage saw, and what others saw of the same addresses.
fn shown_by(answer: &Answer, here: Shows) -> Vec<(ObservationId, Shows)> {
    let elsewhere = shown(&answer.evidence_elsewhere, Shows::SeenElsewhere);
    shown(&answer.evidence, here).into_iter().chain(elsewhere).collect()
}

fn vantages(judgement: &Judgement) -> Vec<Finding> {
    let faulty = |v: VantageVerdict| match v {
        VantageVerdict::Silent
        | VantageVerdict::Suspect
        | VantageVerdict::Captive
        | VantageVerdict::UplinkDown
        | VantageVerdict::Intercepted
        | VantageVerdict::ClockSkewed => true,
        VantageVerdict::Late | VantageVerdict::Unmeasured | VantageVerdict::Degraded | VantageVerdict::Ok => false,
    };
    let findings = judgement.vantages.iter().filter(|(_, j)| faulty(j.verdict)).map(|(vantage, j)| Finding {
        subject: Subject::Vantage { vantage: vantage.clone() },
        kind: j.verdict.word().to_owned(),
        members: BTreeSet::from([vantage.to_string()]),
        reason: Reason::Vantage { judgement: j.clone() },
        calls: BTreeSet::new(),
        evidence: shown(&j.evidence, Shows::Control),
    });
    findings.collect()
}

fn answers(topology: &Topology, judgement: &Judgement) -> Vec<Finding> {
    let Some(live) = live_resolver(topology) else { return Vec::new() };
    let mut unroutable: BTreeMap<&VantageName, Finding> = BTreeMap::new();
    let mut dead: BTreeMap<&DomainName, Finding> = BTreeMap::new();
    let mut others = Vec::new();
    // A service's host name is judged through its nodes; only canaries are judged as answers.
    let live_answers =
        judgement.answers.iter().filter(|((_, name, r), _)| r == live && topology.canaries.contains_key(name));
    for ((vantage, name, _), answer) in live_answers {
        match answer.verdict {
            AnswerVerdict::Ok
            | AnswerVerdict::SteeredByVantage
            | AnswerVerdict::InsufficientEvidence
            | AnswerVerdict::FamilyUnusable => {}
            // The verdict on what is behind the live resolver rules, unless that is well.
            AnswerVerdict::NotObtained if upstream(topology, judgement, vantage).is_some_and(|well| !well) => {}
            AnswerVerdict::UnroutableHere => {
                let finding = unroutable.entry(vantage).or_insert_with(|| Finding {
                    subject: Subject::UnroutableAt { vantage: vantage.clone() },
                    kind: answer.verdict.word().to_owned(),
                    members: BTreeSet::new(),
                    reason: Reason::UnroutableHere { names: BTreeMap::new() },
                    calls: BTreeSet::new(),
                    evidence: Vec::new(),
                });
                finding.members.insert(name.as_str().to_owned());
                finding.evidence.extend(shown_by(answer, Shows::FailsHere));
                let mut resolvers = BTreeMap::new();
                for (resolver, other) in judgement.endpoint_answers(topology, vantage, name) {
                    let verdict = OtherResolver { verdict: other.verdict, addresses: other.addresses.clone() };
                    resolvers.insert(resolver.clone(), verdict);
                    finding.evidence.extend(shown_by(other, Shows::OtherResolver));
                }
                if let Reason::UnroutableHere { names } = &mut finding.reason {
                    let entry = Unroutable {
                        addresses: answer.addresses.clone(),
                        proven_at: answer.proven_at.clone(),
                        resolvers,
                    };
                    names.insert(name.clone(), entry);
                }
            }
            AnswerVerdict::DeadEverywhere => {
                let finding = dead.entry(name).or_insert_with(|| Finding {
                    subject: Subject::Name { name: name.clone() },
                    kind: answer.verdict.word().to_owned(),
                    members: BTreeSet::from([name.as_str().to_owned()]),
                    reason: Reason::DeadEverywhere { vantages: BTreeSet::new(), addresses: BTreeSet::new() },
                    calls: BTreeSet::new(),
                    evidence: Vec::new(),
                });
                finding.evidence.extend(shown_by(answer, Shows::FailsHere));
                if let Reason::DeadEverywhere { vantages, addresses } = &mut finding.reason {
                    vantages.insert(vantage.clone());
                    addresses.extend(&answer.addresses);
                }
            }
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
            | AnswerVerdict::Impostor => others.push(Finding {
                subject: Subject::NameAt { vantage: vantage.clone(), name: name.clone() },
                kind: if upstream(topology, judgement, vantage) == Some(true)
                    && answer.verdict == AnswerVerdict::NotObtained
                {
                    LIVE_RESOLVER_STUCK.to_owned()
                } else {
                    answer.verdict.word().to_owned()
                },
                members: BTreeSet::from([name.as_str().to_owned()]),
                reason: Reason::AnswerUnusable {
                    verdict: answer.verdict,
                    addresses: answer.addresses.clone(),
                    dead: answer.dead.clone(),
                },
                calls: BTreeSet::new(),
                evidence: shown_by(answer, Shows::FailsHere),
            }),
        }
    }
    unroutable.into_values().chain(dead.into_values()).chain(others).collect()
}

/// The word for a live resolver that gives no answer while what is behind it works from the same place: for its owner, and
/// no reason to switch the upstream.
pub const LIVE_RESOLVER_STUCK: &str = "live_resolver_stuck";

/// Whether what is behind a place's live resolver is shown to work from there; none where that is not configured.
fn upstream(topology: &Topology, judgement: &Judgement, vantage: &VantageName) -> Option<bool> {
    let resolver = in_use(topology, vantage)?;
    Some(judgement.endpoint(vantage, resolver).is_some_and(|judged| judged.verdict == EndpointVerdict::Ok))
}

/// The endpoints that places use and that do not do what is asked of them.
fn endpoints(topology: &Topology, judgement: &Judgement) -> Vec<Finding> {
    let mut findings: BTreeMap<&ResolverName, Finding> = BTreeMap::new();
    for ((vantage, resolver), judged) in &judgement.endpoints {
        if in_use(topology, vantage) != Some(resolver) || !faulty_endpoint(judged.verdict) {
            continue;
        }
        let finding = findings.entry(resolver).or_insert_with(|| Finding {
            subject: Subject::Endpoint { resolver: resolver.clone() },
            kind: judged.verdict.word().to_owned(),
            members: BTreeSet::new(),
            reason: Reason::Endpoint {
                resolver: resolver.clone(),
                places: BTreeMap::new(),
                reached_at: reached_at(judgement, resolver),
            },
            calls: BTreeSet::new(),
            evidence: Vec::new(),
        });
        finding.members.insert(vantage.to_string());
        if let Reason::Endpoint { places, .. } = &mut finding.reason
            && places.values().filter(|one| one.verdict == judged.verdict).count() < WITNESSES_MAX
        {
            places.insert(vantage.clone(), judged.clone());
            finding.evidence.extend(shown(&judged.evidence, Shows::FailsHere));
        }
    }
    findings.into_values().collect()
}

fn reached_at(judgement: &Judgement, resolver: &ResolverName) -> Vec<VantageName> {
    let works = judgement.endpoints.iter().filter(|((_, one), _)| one == resolver);
    let works = works.filter(|(_, judged)| judged.verdict == EndpointVerdict::Ok);
    works.map(|((vantage, _), _)| vantage.clone()).take(WITNESSES_MAX).collect()
}

/// Whether somebody must look at it.
#[must_use]
pub fn faulty_endpoint(verdict: EndpointVerdict) -> bool {
    verdict.dead()
        || match verdict {
            EndpointVerdict::Rewrites | EndpointVerdict::Throttled | EndpointVerdict::Misconfigured => true,
            EndpointVerdict::InsufficientEvidence
            | EndpointVerdict::Ok
            | EndpointVerdict::NoPath
            | EndpointVerdict::Refused
            | EndpointVerdict::PmtuBlackhole
            | EndpointVerdict::TlsFailed
            | EndpointVerdict::HttpFailed
            | EndpointVerdict::Silent
            | EndpointVerdict::ServingStale
            | EndpointVerdict::AliveNotResolving
            | EndpointVerdict::StaleCacheMasking => false,
        }
}

fn nodes(topology: &Topology, judgement: &Judgement, serving: &BTreeMap<ServiceName, NodeName>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (node, judged) in &judgement.nodes {
        let faulty = match judged.verdict {
            NodeVerdict::Ok | NodeVerdict::InsufficientEvidence => false,
            NodeVerdict::UnroutableFromSome
            | NodeVerdict::PathPartial
            | NodeVerdict::UnroutableForAudience
            | NodeVerdict::ImpostorEverywhere
            | NodeVerdict::CertInvalidEverywhere
            | NodeVerdict::OpenButDead
            | NodeVerdict::RefusingEverywhere
            | NodeVerdict::DeadEverywhere => true,
        };
        if !faulty {
            continue;
        }
        let services: Vec<_> = topology
            .services
            .iter()
            .filter(|(name, service)| service.native == *node || serving.get(*name) == Some(node))
            .collect();
        let finding = |subject, member: String| Finding {
            subject,
            kind: judged.verdict.word().to_owned(),
            members: BTreeSet::from([member]),
            reason: Reason::Node { node: node.clone(), judgement: judged.clone() },
            calls: BTreeSet::new(),
            evidence: shown(&judged.evidence, Shows::NodeProbe),
        };
        for (name, service) in &services {
            let subject = Subject::Service { service: (*name).clone() };
            findings.push(finding(subject, service.hostname.as_str().to_owned()));
        }
        if services.is_empty() {
            findings.push(finding(Subject::Node { node: node.clone() }, node.to_string()));
        }
    }
    findings
}
