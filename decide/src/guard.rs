//! Independent checks that judge any plan when it is made and again right before it is applied.
//! They share no code with the planner: a mistake there must not pass here.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::change::{Change, Standing};
use crate::judge::{Judgement, live_resolver};
use crate::node::ACCUSERS_MIN;
use crate::observation::{Proof, Target};
use crate::plan::{Plan, PlanPurpose, Record};
use crate::topology::{Mode, Topology};
use crate::verdict::{AnswerVerdict, NodeVerdict};

/// Why a plan must not be applied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Refusal {
    /// An operator froze every write.
    Frozen,
    /// The fleet cannot judge.
    FleetFrozen,
    /// The policy or driver only observes or proposes.
    NotAllowedToAct,
    /// Too old.
    Expired,
    /// Made under an older lease.
    StaleEpoch,
    /// The incident made all the changes to this name or service that it may.
    BudgetSpent,
    /// Another plan of the same driver is on its way.
    DriverBusy,
    /// The record holds something that is neither expected nor set.
    ForeignRecord {
        /// What it holds.
        found: BTreeSet<IpAddr>,
    },
    /// The record could not be read.
    RecordUnknown,
    /// The target is not proven, recently, from the side that suffers.
    TargetNotProven,
    /// What the plan would replace is not shown to be dead by enough independent witnesses.
    NotAccused,
    /// The change goes beyond the scope of its evidence: a record for a local fault, or a pin
    /// elsewhere than where it hurts.
    ScopeTooWide,
}

/// What the guards look at besides the plan itself.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The configuration.
    pub topology: &'a Topology,
    /// The verdicts of this moment.
    pub judgement: &'a Judgement,
    /// Whether an operator froze every write.
    pub frozen: bool,
    /// Whether the plan's epoch is that of the lease held now.
    pub epoch_current: bool,
    /// What the driver found just now; `None` where nothing is pinned.
    pub found: Option<&'a Record>,
    /// Changes the incident has made to the plan's name or service.
    pub changes_made: u32,
    /// Whether another plan of the same driver is on its way.
    pub driver_busy: bool,
    /// Whether a person approved it.
    pub approved_by_person: bool,
}

/// Everything that speaks against applying the plan now; empty: it may be applied.
#[must_use]
pub fn refusals(plan: &Plan, facts: Facts<'_>) -> BTreeSet<Refusal> {
    let mut refusals = BTreeSet::new();
    let mut refuse = |when: bool, refusal: Refusal| {
        if when {
            refusals.insert(refusal);
        }
    };
    let policy = &facts.topology.policy;
    refuse(facts.frozen, Refusal::Frozen);
    refuse(facts.judgement.fleet.frozen(), Refusal::FleetFrozen);
    refuse(plan.mode != Mode::Act && !facts.approved_by_person, Refusal::NotAllowedToAct);
    refuse(facts.judgement.at > plan.expires_at, Refusal::Expired);
    refuse(!facts.epoch_current, Refusal::StaleEpoch);
    let counts = plan.purpose == PlanPurpose::Remedy;
    refuse(counts && facts.changes_made >= policy.changes_max, Refusal::BudgetSpent);
    refuse(facts.driver_busy, Refusal::DriverBusy);
    match facts.found {
        Some(Record::Unknown) => refuse(true, Refusal::RecordUnknown),
        Some(Record::Strange(found)) => refuse(true, Refusal::ForeignRecord { found: found.clone() }),
        Some(Record::Found(found)) => {
            let foreign = plan.change.standing(Some(found)) == Standing::Foreign;
            refuse(foreign, Refusal::ForeignRecord { found: found.as_set().clone() });
        }
        None => {
            let foreign = plan.change.standing(None) == Standing::Foreign;
            refuse(foreign, Refusal::ForeignRecord { found: BTreeSet::new() });
        }
    }
    refuse(!scope_fits(plan), Refusal::ScopeTooWide);
    // A rollback restores what was there; it needs no proof of its own.
    if plan.purpose != PlanPurpose::Rollback {
        refuse(!target_proven(plan, facts), Refusal::TargetNotProven);
    }
    if plan.purpose == PlanPurpose::Remedy {
        refuse(!accused(plan, facts), Refusal::NotAccused);
    }
    refusals
}

/// Pins are made by the agent where it hurts, records by the coordinator.
fn scope_fits(plan: &Plan) -> bool {
    match plan.change {
        Change::Pin { .. } | Change::Unpin { .. } => plan.vantage.is_some(),
        Change::Repoint { .. } => plan.vantage.is_none(),
    }
}

fn target_proven(plan: &Plan, facts: Facts<'_>) -> bool {
    let policy = &facts.topology.policy;
    let young = |at| facts.judgement.at.since(at) <= policy.proof_age_max;
    match &plan.change {
        Change::Pin { name, addresses, .. } => plan.vantage.as_ref().is_some_and(|vantage| {
            addresses.iter().all(|address| {
                let key = (vantage.clone(), Target::Name(name.clone()), address);
                facts.judgement.reach.get(&key).is_some_and(|reach| reach.proven() && reach.at.is_some_and(young))
            })
        }),
        // The native answer must be usable where it comes back.
        Change::Unpin { name, .. } => plan.vantage.as_ref().is_some_and(|vantage| {
            facts.judgement.endpoint_answers(facts.topology, vantage, name).any(|(_, answer)| answer.verdict.usable())
        }),
        Change::Repoint { sets, .. } => sets.iter().all(|address| {
            let provers = facts.judgement.reach.iter().filter(|((_, target, tried), reach)| {
                *tried == address && matches!(target, Target::Node(_)) && reach.proven() && reach.at.is_some_and(young)
            });
            let domains: BTreeSet<_> = provers
                .filter_map(|((vantage, _, _), _)| facts.topology.vantages.get(vantage))
                .map(|place| &place.failure_domain)
                .collect();
            domains.len() >= policy.fallback_provers_min
        }),
    }
}

fn audience_failover(plan: &Plan, facts: Facts<'_>) -> bool {
    facts.topology.services.iter().any(|(name, service)| name.as_str() == plan.item && service.audience_failover)
}

fn accused(plan: &Plan, facts: Facts<'_>) -> bool {
    match &plan.change {
        Change::Pin { name, .. } => {
            plan.vantage.as_ref().zip(live_resolver(facts.topology)).is_some_and(|(v, live)| {
                facts
                    .judgement
                    .answer(v, name, live)
                    .is_some_and(|answer| matches!(answer.verdict, AnswerVerdict::UnroutableHere | AnswerVerdict::Stub))
            })
        }
        Change::Unpin { .. } => true,
        Change::Repoint { expects, .. } => expects.iter().all(|address| {
            // Who lives outside the audience is no witness for it, once a person or the record's policy says so.
            let audience_decides = (facts.approved_by_person || audience_failover(plan, facts))
                && facts.topology.nodes.iter().any(|(name, node)| {
                    let judged = facts.judgement.nodes.get(name).map(|judged| judged.verdict);
                    node.address == address && judged == Some(NodeVerdict::UnroutableForAudience)
                });
            let about = facts
                .judgement
                .reach
                .iter()
                .filter(|((_, target, tried), _)| *tried == address && matches!(target, Target::Node(_)));
            // Where the node proves its life, only who shows that is a living witness.
            let proves = facts.topology.nodes.values().any(|node| node.address == address && node.proof);
            let mut domains = BTreeSet::new();
            for ((vantage, _, _), reach) in about {
                let of_audience = facts.topology.vantages.get(vantage).is_some_and(|place| place.audience);
                if audience_decides && !of_audience {
                    continue;
                }
                let alive = reach.proven() || reach.partial();
                if reach.held || (alive && (!proves || reach.proof == Some(Proof::Valid))) {
                    return false;
                }
                if reach.dead() {
                    domains.extend(facts.topology.vantages.get(vantage).map(|place| &place.failure_domain));
                }
            }
            domains.len() >= ACCUSERS_MIN
        }),
    }
}
