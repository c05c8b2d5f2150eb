//! Repoints: a service's address record to another node, and back to native.

use std::collections::BTreeSet;

use crate::change::Change;
use crate::names::{Addresses, NodeName, ServiceName, VantageName};
use crate::observation::Target;
use crate::plan::{Decision, NoPlan, Plan, PlanPurpose, PlanReason, PlanStatus, Record, ReturnWaits, Situation};
use crate::topology::{Mode, Node, Service};
use crate::verdict::NodeVerdict;

/// Decides about one service.
#[must_use]
pub fn decide(situation: Situation<'_>, service: &ServiceName) -> Decision {
    match try_decide(situation, service) {
        Ok(plan) => Decision::Plan(Box::new(plan)),
        Err(why) => Decision::Hold { item: service.to_string(), why },
    }
}

/// The node whose address a record holds, if it is exactly one of the service's nodes.
#[must_use]
pub fn serving<'a>(
    situation: Situation<'a>,
    service: &'a Service,
    record: &Addresses,
) -> Option<(&'a NodeName, &'a Node)> {
    nodes_of(service).find_map(|name| {
        let node = situation.topology.nodes.get(name)?;
        (record.as_set().len() == 1 && record.as_set().contains(&node.address)).then_some((name, node))
    })
}

/// Native first, then the fallbacks in order.
fn nodes_of(service: &Service) -> impl Iterator<Item = &NodeName> {
    std::iter::once(&service.native).chain(&service.fallbacks)
}

fn try_decide(situation: Situation<'_>, name: &ServiceName) -> Result<Plan, NoPlan> {
    let service = situation.topology.services.get(name).ok_or(NoPlan::NoDriver)?;
    if situation.about(name.as_str()).any(|record| record.status.in_flight()) {
        return Err(NoPlan::InFlight);
    }
    if situation.about(name.as_str()).any(|record| record.status == PlanStatus::Proposed) {
        return Err(NoPlan::WaitsForPerson);
    }
    let record = match situation.records.get(name) {
        Some(Record::Found(addresses)) => addresses,
        Some(Record::Strange(found)) => return Err(NoPlan::ForeignRecord { found: found.clone() }),
        Some(Record::Unknown) | None => return Err(NoPlan::RecordUnknown),
    };
    let Some((from, from_node)) = serving(situation, service, record) else {
        return Err(NoPlan::ForeignRecord { found: record.as_set().clone() });
    };
    let judged = situation.judgement.nodes.get(from).ok_or(NoPlan::FindingGone)?;
    if judged.verdict.gone() {
        return away(situation, name, service, from, from_node, service.mode);
    }
    if judged.verdict == NodeVerdict::UnroutableForAudience {
        // Somebody reaches it: without leave given beforehand a person decides.
        let mode = if service.audience_failover { service.mode } else { service.mode.min(Mode::Propose) };
        return away(situation, name, service, from, from_node, mode);
    }
    if *from != service.native {
        return back(situation, name, service, from_node);
    }
    match judged.verdict {
        // Somebody still reaches it: the public record stays.
        NodeVerdict::UnroutableFromSome | NodeVerdict::PathPartial => Err(NoPlan::NotifyOnly),
        NodeVerdict::Ok
        | NodeVerdict::UnroutableForAudience
        | NodeVerdict::InsufficientEvidence
        | NodeVerdict::ImpostorEverywhere
        | NodeVerdict::CertInvalidEverywhere
        | NodeVerdict::OpenButDead
        | NodeVerdict::RefusingEverywhere
        | NodeVerdict::DeadEverywhere => Err(NoPlan::FindingGone),
    }
}

fn away(
    situation: Situation<'_>,
    name: &ServiceName,
    service: &Service,
    from: &NodeName,
    from_node: &Node,
    mode: Mode,
) -> Result<Plan, NoPlan> {
    let policy = &situation.topology.policy;
    if situation.changes_made(name.as_str()) >= policy.changes_max {
        return Err(NoPlan::BudgetSpent { changes_max: policy.changes_max });
    }
    let verdict = situation.judgement.nodes.get(from).map(|judged| judged.verdict);
    let audience_alone = verdict == Some(NodeVerdict::UnroutableForAudience);
    // Those proven by most vantages; the configured order breaks ties.
    let mut best: Option<(&NodeName, &Node, Vec<VantageName>)> = None;
    for candidate in nodes_of(service).filter(|candidate| *candidate != from) {
        let Some(node) = situation.topology.nodes.get(candidate) else { continue };
        if !situation.judgement.nodes.get(candidate).is_some_and(|judged| may_serve(judged.verdict)) {
            continue;
        }
        // It was tried in this incident and helped nobody.
        let failed = situation.about(name.as_str()).any(|record| {
            let sets = record.plan.change.sets();
            record.status == PlanStatus::RolledBack && sets.is_some_and(|sets| sets.as_set().contains(&node.address))
        });
        if failed {
            continue;
        }
        let mut provers = provers(situation, candidate, node);
        if audience_alone {
            provers.retain(|vantage| situation.topology.vantages.get(vantage).is_some_and(|place| place.audience));
        }
        let better = best.as_ref().is_none_or(|(_, _, most)| provers.len() > most.len());
        let networks = domains(situation, &provers);
        if networks >= policy.fallback_provers_min && better {
            best = Some((candidate, node, provers));
        }
    }
    let (to, to_node, provers) = best.ok_or(NoPlan::NoProvenTarget)?;
    let judged = situation.judgement.nodes.get(from).ok_or(NoPlan::FindingGone)?;
    let reason = PlanReason::NodeGone {
        from: from.clone(),
        verdict: judged.verdict,
        accusers: judged.accusers.keys().cloned().collect(),
        to: to.clone(),
        provers,
    };
    let plan = finish(situation, name, service, from_node, to_node, reason, PlanPurpose::Remedy)?;
    Ok(Plan { mode, ..plan })
}

/// Vantages that proved the node recently enough for a change.
fn provers(situation: Situation<'_>, name: &NodeName, node: &Node) -> Vec<VantageName> {
    let recent = |vantage: &VantageName| {
        let key = (vantage.clone(), Target::Node(name.clone()), node.address);
        situation.judgement.reach.get(&key).is_some_and(|reach| {
            let young = |at| situation.judgement.at.since(at) <= situation.topology.policy.proof_age_max;
            reach.proven() && reach.at.is_some_and(young)
        })
    };
    situation.topology.vantages.keys().filter(|vantage| recent(vantage)).cloned().collect()
}

/// In how many failure domains these vantages are.
fn domains(situation: Situation<'_>, vantages: &[VantageName]) -> usize {
    let places = vantages.iter().filter_map(|name| situation.topology.vantages.get(name));
    places.map(|place| &place.failure_domain).collect::<BTreeSet<_>>().len()
}

/// Whether a node may take over from one that is gone. That one place does not reach it keeps nobody from it: those who
/// prove it are counted, and what it replaces serves nobody at all.
fn may_serve(verdict: NodeVerdict) -> bool {
    match verdict {
        NodeVerdict::Ok
        | NodeVerdict::PathPartial
        | NodeVerdict::UnroutableForAudience
        | NodeVerdict::UnroutableFromSome => true,
        NodeVerdict::InsufficientEvidence
        | NodeVerdict::ImpostorEverywhere
        | NodeVerdict::CertInvalidEverywhere
        | NodeVerdict::OpenButDead
        | NodeVerdict::RefusingEverywhere
        | NodeVerdict::DeadEverywhere => false,
    }
}

fn back(situation: Situation<'_>, name: &ServiceName, service: &Service, from_node: &Node) -> Result<Plan, NoPlan> {
    let policy = &situation.topology.policy;
    let waits = |until| NoPlan::Standing { until };
    let native = situation.topology.nodes.get(&service.native).ok_or(NoPlan::NoDriver)?;
    if situation.judgement.nodes.get(&service.native).is_none_or(|judged| judged.verdict != NodeVerdict::Ok) {
        return Err(waits(ReturnWaits::NativeNotUsable));
    }
    let key = (Target::Node(service.native.clone()), native.address);
    let steady = |vantage: &VantageName| {
        situation
            .fold
            .vantage(vantage)
            .and_then(|state| state.reach.get(&key))
            .is_some_and(|run| run.successes >= policy.return_rounds && run.good_for() >= policy.return_span)
    };
    // Where it proves its life, nothing less brings users back to it.
    let vouched = |vantage: &VantageName| {
        let key = (vantage.clone(), Target::Node(service.native.clone()), native.address);
        situation.judgement.reach.get(&key).is_some_and(|reach| reach.vouches(native))
    };
    let provers: Vec<VantageName> = provers(situation, &service.native, native)
        .into_iter()
        .filter(|vantage| steady(vantage) && vouched(vantage))
        .collect();
    if domains(situation, &provers) < policy.fallback_provers_min {
        return Err(waits(ReturnWaits::GoodRounds));
    }
    let changed_at = situation.about(name.as_str()).filter_map(|record| record.applied_at).max();
    if let Some(until) =
        changed_at.map(|at| situation.dwell_until(name.as_str(), at)).filter(|until| situation.judgement.at < *until)
    {
        return Err(waits(ReturnWaits::Dwell { until }));
    }
    let reason = PlanReason::NativeBack { node: service.native.clone(), provers };
    finish(situation, name, service, from_node, native, reason, PlanPurpose::Return)
}

fn finish(
    situation: Situation<'_>,
    name: &ServiceName,
    service: &Service,
    from: &Node,
    to: &Node,
    reason: PlanReason,
    purpose: PlanPurpose,
) -> Result<Plan, NoPlan> {
    let set = |node: &Node| Addresses::one(node.address).map_err(|_| NoPlan::NoProvenTarget);
    let (expects, sets) = (set(from)?, set(to)?);
    let undoes = match purpose {
        PlanPurpose::Return => {
            situation.about(name.as_str()).rev().find(|record| record.status == PlanStatus::Verified).map(|r| r.id)
        }
        PlanPurpose::Remedy | PlanPurpose::Rollback => None,
    };
    Ok(Plan {
        purpose,
        undoes,
        driver: service.driver.clone(),
        vantage: None,
        item: name.to_string(),
        change: Change::Repoint { name: service.hostname.clone(), expects, sets, ttl_s: service.ttl_s },
        reason,
        expires_at: situation.expiry(),
        mode: service.mode,
    })
}
