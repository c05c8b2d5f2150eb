//! Pins: a name to a reachable address on the branch's own resolver, and back.

use std::net::IpAddr;

use crate::change::Change;
use crate::elsewhere::Given;
use crate::incident::{Health, native_health, native_resolvers};
use crate::names::{Addresses, DomainName, DriverName, ResolverName, VantageName};
use crate::observation::Target;
use crate::plan::switch;
use crate::plan::{Decision, NoPlan, Plan, PlanPurpose, PlanReason, PlanRecord, PlanStatus, ReturnWaits, Situation};
use crate::topology::{Mode, Role, Transport, Vantage};
use crate::verdict::AnswerVerdict;

/// Decides about one name that is or was unroutable at a vantage.
#[must_use]
pub fn decide(situation: Situation<'_>, vantage: &VantageName, name: &DomainName) -> Decision {
    match try_decide(situation, vantage, name) {
        Ok(plan) => Decision::Plan(Box::new(plan)),
        Err(why) => Decision::Hold { item: name.to_string(), why },
    }
}

fn try_decide(situation: Situation<'_>, vantage: &VantageName, name: &DomainName) -> Result<Plan, NoPlan> {
    let place = situation.topology.vantages.get(vantage).ok_or(NoPlan::NoDriver)?;
    let driver = place.pin_driver.as_ref().ok_or(NoPlan::NoDriver)?;
    let item = name.as_str();
    if situation.about(item).any(|record| record.status.in_flight()) {
        return Err(NoPlan::InFlight);
    }
    if situation.about(item).any(|record| record.status == PlanStatus::Proposed) {
        return Err(NoPlan::WaitsForPerson);
    }
    let pinned = situation
        .about(item)
        .rev()
        .find(|record| record.status == PlanStatus::Verified && record.plan.change.sets().is_some());
    match pinned {
        Some(pin) => back(situation, vantage, place, name, driver, pin),
        None => there(situation, vantage, place, name, driver),
    }
}

/// Whether an address that works there may be served in place of an answer with this verdict.
fn pinnable(verdict: AnswerVerdict) -> bool {
    [AnswerVerdict::UnroutableHere, AnswerVerdict::Stub].contains(&verdict)
}

fn there(
    situation: Situation<'_>,
    vantage: &VantageName,
    place: &Vantage,
    name: &DomainName,
    driver: &DriverName,
) -> Result<Plan, NoPlan> {
    let policy = &situation.topology.policy;
    let live = crate::judge::live_resolver(situation.topology).ok_or(NoPlan::NoDriver)?;
    let answer = situation.judgement.answer(vantage, name, live).ok_or(NoPlan::FindingGone)?;
    if !pinnable(answer.verdict) {
        return Err(NoPlan::FindingGone);
    }
    if situation.changes_made(name.as_str()) >= policy.changes_max {
        return Err(NoPlan::BudgetSpent { changes_max: policy.changes_max });
    }
    let resolvers = counterfactual(situation, vantage, name)?;
    // It heals names that nobody watches as well.
    if place.switch_by_hand
        && let Some(to) = switch::candidate(situation, vantage, name)
    {
        return Err(NoPlan::SwitchByHand { vantage: vantage.clone(), to: to.clone(), then_flush: false });
    }
    let target = Target::Name(name.clone());
    let tried: Vec<&Addresses> = situation
        .about(name.as_str())
        .filter(|record| record.status == PlanStatus::RolledBack)
        .filter_map(|record| record.plan.change.sets())
        .collect();
    let proven_here = |address: &IpAddr| {
        let reach = situation.judgement.reach.get(&(vantage.clone(), target.clone(), *address))?;
        let at = reach.at.filter(|at| situation.judgement.at.since(*at) <= policy.proof_age_max)?;
        reach.proven().then_some(at)
    };
    let given = Given::of(situation.judgement);
    let candidate = given
        .to_others(vantage, name)
        .filter(|address| !tried.iter().any(|set| set.as_set().contains(address)))
        .find_map(|address| proven_here(&address).map(|proven_at| (address, proven_at)));
    let (address, proven_at) = candidate.ok_or(NoPlan::NoProvenTarget)?;
    let addresses = Addresses::one(address).map_err(|_| NoPlan::NoProvenTarget)?;
    let given_at = given.provers(vantage, name, address).cloned().collect();
    Ok(Plan {
        purpose: PlanPurpose::Remedy,
        undoes: None,
        driver: driver.clone(),
        vantage: Some(vantage.clone()),
        item: name.to_string(),
        change: Change::Pin { name: name.clone(), addresses, ttl_s: policy.pin_ttl_s },
        reason: PlanReason::ProvenHere { address, proven_at, given_at, resolvers },
        expires_at: situation.expiry(),
        mode: place.pin_mode,
    })
}

/// What every encrypted resolver that could be switched to gives at this vantage. A pin is planned
/// only when each is known; plain ones are listed when known and never waited for.
fn counterfactual(
    situation: Situation<'_>,
    vantage: &VantageName,
    name: &DomainName,
) -> Result<std::collections::BTreeMap<ResolverName, AnswerVerdict>, NoPlan> {
    let mut known = std::collections::BTreeMap::new();
    let mut missing = std::collections::BTreeSet::new();
    for (resolver, kind) in &situation.topology.resolvers {
        let switchable = match (kind.transport, kind.role) {
            (Transport::Doh | Transport::Dot, Role::Primary | Role::Reserve(_)) => true,
            (Transport::Live | Transport::Plain, _) | (_, Role::Live | Role::ObserveOnly) => false,
        };
        if kind.role == Role::Live {
            continue;
        }
        match situation.judgement.answer(vantage, name, resolver) {
            // Nothing it gives works from there: whose fault that is may stay open.
            Some(answer) if answer.verdict != AnswerVerdict::InsufficientEvidence || answer.all_dead() => {
                known.insert(resolver.clone(), answer.verdict);
            }
            Some(_) | None if switchable => {
                missing.insert(resolver.clone());
            }
            Some(_) | None => {}
        }
    }
    if missing.is_empty() { Ok(known) } else { Err(NoPlan::ResolversUnknown { resolvers: missing }) }
}

fn back(
    situation: Situation<'_>,
    vantage: &VantageName,
    place: &Vantage,
    name: &DomainName,
    driver: &DriverName,
    pin: &PlanRecord,
) -> Result<Plan, NoPlan> {
    let policy = &situation.topology.policy;
    let waits = |until| NoPlan::Standing { until };
    if native_health(situation.topology, situation.judgement, vantage, name) != Health::Well {
        return Err(waits(ReturnWaits::NativeNotUsable));
    }
    let target = Target::Name(name.clone());
    let state = situation.fold.vantage(vantage);
    let mut addresses = std::collections::BTreeSet::new();
    for resolver in native_resolvers(situation.topology, vantage) {
        if let Some(answer) = situation.judgement.answer(vantage, name, resolver) {
            addresses.extend(&answer.proven);
        }
    }
    let long_enough = |address: &IpAddr| {
        state
            .and_then(|s| s.reach.get(&(target.clone(), *address)))
            .is_some_and(|run| run.successes >= policy.return_rounds && run.good_for() >= policy.return_span)
    };
    if addresses.is_empty() || !addresses.iter().all(long_enough) {
        return Err(waits(ReturnWaits::GoodRounds));
    }
    let until = situation.dwell_until(name.as_str(), pin.applied_at.unwrap_or(pin.created_at));
    if situation.judgement.at < until {
        return Err(waits(ReturnWaits::Dwell { until }));
    }
    Ok(Plan {
        purpose: PlanPurpose::Return,
        undoes: Some(pin.id),
        driver: driver.clone(),
        vantage: Some(vantage.clone()),
        item: name.to_string(),
        change: pin.plan.change.undo(),
        reason: PlanReason::NativeUsable { addresses },
        expires_at: situation.expiry(),
        // Taking away what automation put there needs no more leave than putting it.
        mode: place.pin_mode.max(Mode::Propose),
    })
}
