//! What a finding calls for besides a change: a receiver class, evidence to keep, something to put right by hand.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::finding::Reason;
use crate::judge::live_resolver;
use crate::names::VantageName;
use crate::observation::Outcome;
use crate::topology::Topology;
use crate::verdict::{AnswerVerdict, EndpointVerdict, NodeVerdict, VantageVerdict};

/// Something that is called for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum Call {
    /// Those who look after security shall know.
    Security,
    /// Evidence for the network provider of that place: who reaches the addresses and who does not, and the path.
    PathEvidence {
        /// The place that does not.
        vantage: VantageName,
    },
    /// The configuration asks for something that is not so: suspend the canary, or change what the endpoint is asked.
    FixConfiguration,
    /// Nothing that place says counts until it is looked into: somebody holds its identity who should not, or its agent lies.
    Exclude {
        /// Which.
        vantage: VantageName,
    },
    /// That place's clock is wrong.
    FixClock {
        /// Which.
        vantage: VantageName,
    },
    /// The endpoint asks that place to ask less often.
    SlowDown {
        /// Which.
        vantage: VantageName,
    },
}

/// What a finding calls for.
#[must_use]
pub fn of(topology: &Topology, subject_vantage: Option<&VantageName>, reason: &Reason) -> BTreeSet<Call> {
    let path = |vantages: &mut dyn Iterator<Item = &VantageName>| {
        vantages.map(|vantage| Call::PathEvidence { vantage: vantage.clone() }).collect()
    };
    match reason {
        Reason::UnroutableHere { .. } => path(&mut subject_vantage.into_iter()),
        Reason::DeadEverywhere { .. } | Reason::Fleet { .. } => BTreeSet::new(),
        Reason::AnswerUnusable { verdict, .. } => of_answer(topology, subject_vantage, *verdict).into_iter().collect(),
        Reason::Endpoint { places, reached_at, .. } => places
            .iter()
            .filter_map(|(vantage, judged)| {
                of_endpoint(vantage, judged.of_endpoint(), judged.outcome, !reached_at.is_empty())
            })
            .collect(),
        Reason::Node { judgement, .. } => match judgement.verdict {
            NodeVerdict::UnroutableFromSome | NodeVerdict::UnroutableForAudience | NodeVerdict::PathPartial => {
                path(&mut judgement.accusers.keys().chain(&judgement.partial_at))
            }
            NodeVerdict::ImpostorEverywhere => BTreeSet::from([Call::Security]),
            NodeVerdict::Ok
            | NodeVerdict::InsufficientEvidence
            | NodeVerdict::CertInvalidEverywhere
            | NodeVerdict::OpenButDead
            | NodeVerdict::RefusingEverywhere
            | NodeVerdict::DeadEverywhere => BTreeSet::new(),
        },
        Reason::Vantage { judgement } => match (judgement.verdict, subject_vantage) {
            (VantageVerdict::ClockSkewed, Some(vantage)) => {
                BTreeSet::from([Call::FixClock { vantage: vantage.clone() }])
            }
            (VantageVerdict::Suspect, Some(vantage)) => {
                BTreeSet::from([Call::Security, Call::Exclude { vantage: vantage.clone() }])
            }
            (
                VantageVerdict::ClockSkewed
                | VantageVerdict::Suspect
                | VantageVerdict::Silent
                | VantageVerdict::Late
                | VantageVerdict::Unmeasured
                | VantageVerdict::Captive
                | VantageVerdict::UplinkDown
                | VantageVerdict::Intercepted
                | VantageVerdict::Degraded
                | VantageVerdict::Ok,
                _,
            ) => BTreeSet::new(),
        },
    }
}

fn of_answer(topology: &Topology, vantage: Option<&VantageName>, verdict: AnswerVerdict) -> Option<Call> {
    match verdict {
        AnswerVerdict::Injected | AnswerVerdict::Forged | AnswerVerdict::Impostor | AnswerVerdict::Private => {
            Some(Call::Security)
        }
        AnswerVerdict::CanaryGone => Some(Call::FixConfiguration),
        // A canary that the filter is meant to block is no canary.
        AnswerVerdict::Filtered if filtering_wanted(topology, vantage) => Some(Call::FixConfiguration),
        AnswerVerdict::Filtered
        | AnswerVerdict::InsufficientEvidence
        | AnswerVerdict::NotObtained
        | AnswerVerdict::BogusAtResolver
        | AnswerVerdict::Servfail
        | AnswerVerdict::Refused
        | AnswerVerdict::Denied
        | AnswerVerdict::Stub
        | AnswerVerdict::FamilyUnusable
        | AnswerVerdict::Empty
        | AnswerVerdict::DanglingCname
        | AnswerVerdict::PartlyDead
        | AnswerVerdict::SteeredByVantage
        | AnswerVerdict::Ok
        | AnswerVerdict::PathPartial
        | AnswerVerdict::UnroutableHere
        | AnswerVerdict::DeadEverywhere => None,
    }
}

/// Whether what users at a place are given is meant to be filtered: by the live resolver, or by what is behind it.
#[must_use]
pub fn filtering_wanted(topology: &Topology, vantage: Option<&VantageName>) -> bool {
    let upstream = vantage.and_then(|vantage| crate::endpoint::in_use(topology, vantage));
    let wanted = |name| topology.resolvers.get(name).is_some_and(|resolver| resolver.filtering_wanted);
    upstream.into_iter().chain(live_resolver(topology)).any(wanted)
}

fn of_endpoint(vantage: &VantageName, verdict: EndpointVerdict, outcome: Outcome, reached: bool) -> Option<Call> {
    let stranger = matches!(outcome, Outcome::CertificateName | Outcome::CertificateAuthority);
    match verdict {
        EndpointVerdict::Rewrites => Some(Call::Security),
        EndpointVerdict::TlsFailed if stranger => Some(Call::Security),
        EndpointVerdict::NoPath | EndpointVerdict::PmtuBlackhole if reached => {
            Some(Call::PathEvidence { vantage: vantage.clone() })
        }
        EndpointVerdict::Throttled => Some(Call::SlowDown { vantage: vantage.clone() }),
        EndpointVerdict::Misconfigured => Some(Call::FixConfiguration),
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
        | EndpointVerdict::StaleCacheMasking => None,
    }
}
