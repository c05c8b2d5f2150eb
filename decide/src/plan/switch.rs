//! Switches of a place's resolver to another endpoint. No driver makes them yet: what would heal is offered to whoever
//! looks after the resolver, and only what was measured there, lately, to do better.

use crate::call::filtering_wanted;
use crate::endpoint::in_use;
use crate::judge::live_resolver;
use crate::names::{DomainName, ResolverName, VantageName};
use crate::plan::{Decision, NoPlan, Situation};
use crate::topology::{Resolver, Role, Topology, Transport};
use crate::verdict::{AnswerVerdict, EndpointVerdict};

/// Other encrypted endpoints that validate, in the order of the chain. Security is never lowered: plain DNS and what does
/// not validate is not in it.
pub(super) fn chain<'a>(topology: &'a Topology, vantage: &VantageName) -> Vec<&'a ResolverName> {
    let used = in_use(topology, vantage);
    let mut chain: Vec<(u8, &ResolverName)> = topology
        .resolvers
        .iter()
        .filter(|(name, resolver)| Some(*name) != used && encrypted(resolver) && resolver.validates)
        .filter_map(|(name, resolver)| match resolver.role {
            Role::Primary => Some((0, name)),
            Role::Reserve(order) => Some((order, name)),
            Role::Live | Role::ObserveOnly => None,
        })
        .collect();
    chain.sort();
    chain.into_iter().map(|(_, name)| name).collect()
}

fn encrypted(resolver: &Resolver) -> bool {
    match resolver.transport {
        Transport::Doh | Transport::Dot => true,
        Transport::Live | Transport::Plain => false,
    }
}

/// Decides about one name that the resolver in use gives no good answer for.
pub(super) fn for_name(situation: Situation<'_>, vantage: &VantageName, name: &DomainName, item: String) -> Decision {
    let live = live_resolver(situation.topology);
    let answer = live.and_then(|live| situation.judgement.answer(vantage, name, live));
    let why = match answer.map(|answer| answer.verdict) {
        None => NoPlan::FindingGone,
        Some(verdict) if !heals(verdict) => NoPlan::NotifyOnly,
        Some(AnswerVerdict::Filtered) if filtering_wanted(situation.topology, Some(vantage)) => NoPlan::NotifyOnly,
        Some(_) => match candidate(situation, vantage, name) {
            Some(to) => NoPlan::SwitchByHand { vantage: vantage.clone(), to: to.clone(), then_flush: false },
            None => NoPlan::NoProvenTarget,
        },
    };
    Decision::Hold { item, why }
}

/// Whether another resolver may do better than one with this answer.
fn heals(verdict: AnswerVerdict) -> bool {
    match verdict {
        AnswerVerdict::Injected
        | AnswerVerdict::Forged
        | AnswerVerdict::BogusAtResolver
        | AnswerVerdict::Servfail
        | AnswerVerdict::Refused
        | AnswerVerdict::Denied
        | AnswerVerdict::Filtered
        | AnswerVerdict::Private
        | AnswerVerdict::Stub
        | AnswerVerdict::Empty
        | AnswerVerdict::DanglingCname
        | AnswerVerdict::Impostor
        | AnswerVerdict::UnroutableHere
        | AnswerVerdict::DeadEverywhere => true,
        AnswerVerdict::InsufficientEvidence
        | AnswerVerdict::NotObtained
        | AnswerVerdict::CanaryGone
        | AnswerVerdict::FamilyUnusable
        | AnswerVerdict::PartlyDead
        | AnswerVerdict::SteeredByVantage
        | AnswerVerdict::Ok
        | AnswerVerdict::PathPartial => false,
    }
}

/// The first endpoint of the chain whose answer for the name works from there, and that breaks no other name.
pub(super) fn candidate<'a>(
    situation: Situation<'a>,
    vantage: &VantageName,
    name: &DomainName,
) -> Option<&'a ResolverName> {
    let Situation { topology, judgement, .. } = situation;
    let gives = |resolver: &ResolverName, name: &DomainName| {
        judgement.answer(vantage, name, resolver).map(|answer| answer.verdict)
    };
    let live = live_resolver(topology)?;
    let unfit = |resolver: &ResolverName| {
        judgement
            .endpoint(vantage, resolver)
            .is_some_and(|endpoint| endpoint.verdict.dead() || endpoint.verdict == EndpointVerdict::Rewrites)
    };
    let breaks = |resolver: &ResolverName| {
        topology.canaries.keys().any(|canary| {
            let usable = |resolver| gives(resolver, canary).map(AnswerVerdict::usable);
            usable(live) == Some(true) && usable(resolver) == Some(false)
        })
    };
    let helps = |resolver: &ResolverName| {
        matches!(gives(resolver, name), Some(AnswerVerdict::Ok | AnswerVerdict::SteeredByVantage))
    };
    chain(topology, vantage).into_iter().find(|resolver| helps(resolver) && !unfit(resolver) && !breaks(resolver))
}

/// Decides about the endpoint in use at one vantage.
pub(super) fn for_endpoint(situation: Situation<'_>, vantage: &VantageName, resolver: &ResolverName) -> Decision {
    let Situation { topology, judgement, .. } = situation;
    let item = vantage.to_string();
    let Some(judged) = judgement.endpoint(vantage, resolver) else {
        return Decision::Hold { item, why: NoPlan::FindingGone };
    };
    let fit = |candidate: &&ResolverName| {
        judgement.endpoint(vantage, candidate).is_some_and(|endpoint| endpoint.verdict == EndpointVerdict::Ok)
    };
    let why = if !judged.verdict.dead() && judged.verdict != EndpointVerdict::Rewrites {
        NoPlan::NotifyOnly
    } else if situation.changes_made(&item) >= topology.policy.changes_max {
        NoPlan::BudgetSpent { changes_max: topology.policy.changes_max }
    } else {
        match chain(topology, vantage).into_iter().find(fit) {
            Some(to) => NoPlan::SwitchByHand {
                vantage: vantage.clone(),
                to: to.clone(),
                then_flush: judged.verdict == EndpointVerdict::StaleCacheMasking,
            },
            None => NoPlan::NoProvenTarget,
        }
    };
    Decision::Hold { item, why }
}
