//! Proof after a change, from the client's side: the vantage's own resolver serves the new answer,
//! and the address works from there. Only what was measured after the change counts.

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::fold::Fold;
use crate::judge::{Judgement, live_resolver};
use crate::names::{DomainName, VantageName};
use crate::observation::{Family, ObservationId, Outcome, Says, Target};
use crate::plan::{PlanPurpose, PlanRecord};
use crate::time::Timestamp;
use crate::topology::Topology;

/// A vantage whose own resolver serves the planned answer, and which can use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Where.
    pub vantage: VantageName,
    /// When the later of the two observations was made.
    pub at: Timestamp,
    /// Shows the answer.
    pub resolution: ObservationId,
    /// Shows that it can be used; `None` only for a rollback, which restores what was there before,
    /// usable or not.
    pub connection: Option<ObservationId>,
}

/// How far the proof has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case")]
pub enum Proof {
    /// Every vantage concerned has seen it.
    Proven,
    /// These have not yet; ask them.
    Wait {
        /// Who.
        missing: Vec<VantageName>,
    },
    /// Nobody can use it, and time is up or the node it leads to is gone: take it back.
    Undo {
        /// Who has not seen it.
        missing: Vec<VantageName>,
    },
}

/// The proof of one applied plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Who has seen it.
    pub seen: Vec<Seen>,
    /// What follows.
    pub proof: Proof,
}

/// Looks for the proof of an applied plan. `None` while it is not applied.
#[must_use]
pub fn verify(topology: &Topology, fold: &Fold, judgement: &Judgement, record: &PlanRecord) -> Option<Verification> {
    let applied_at = record.applied_at?;
    let mut seen = Vec::new();
    let mut missing = Vec::new();
    for vantage in concerned(topology, judgement, record) {
        match sees(topology, fold, record, vantage, applied_at) {
            Some(sight) => seen.push(sight),
            None => missing.push(vantage.clone()),
        }
    }
    let patience = topology.policy.verify_within + std::time::Duration::from_secs(ttl_s(&record.plan.change).into());
    let late = judgement.at.since(applied_at) > patience;
    let proof = if missing.is_empty() && !seen.is_empty() {
        Proof::Proven
    } else if (late || hopeless(topology, judgement, record)) && seen.is_empty() && !missing.is_empty() {
        Proof::Undo { missing }
    } else {
        // A change that some can use is not taken back because others have not seen it yet.
        Proof::Wait { missing }
    };
    Some(Verification { seen, proof })
}

/// Whether the node that a change leads to is found gone by now: no proof will come, and nothing else is planned while one is
/// waited for. A rollback leads where it must, whatever is there.
fn hopeless(topology: &Topology, judgement: &Judgement, record: &PlanRecord) -> bool {
    let leads_to = |address| record.plan.change.sets().is_some_and(|sets| sets.as_set().contains(&address));
    record.plan.purpose != PlanPurpose::Rollback
        && record.plan.vantage.is_none()
        && topology.nodes.iter().any(|(name, node)| {
            leads_to(node.address) && judgement.nodes.get(name).is_some_and(|judged| judged.verdict.gone())
        })
}

fn ttl_s(change: &Change) -> u32 {
    match change {
        Change::Pin { ttl_s, .. } | Change::Unpin { ttl_s, .. } | Change::Repoint { ttl_s, .. } => *ttl_s,
    }
}

/// The vantages whose clients are concerned: the one place of a pin; for a record every vantage
/// that can speak now. One that is silent or cut off cannot hold up the proof.
fn concerned<'a>(topology: &'a Topology, judgement: &'a Judgement, record: &'a PlanRecord) -> Vec<&'a VantageName> {
    match &record.plan.vantage {
        Some(vantage) => vec![vantage],
        None => {
            topology.vantages.keys().filter(|v| judgement.vantages.get(*v).is_some_and(|j| j.may_accuse())).collect()
        }
    }
}

fn sees(
    topology: &Topology,
    fold: &Fold,
    record: &PlanRecord,
    vantage: &VantageName,
    applied_at: Timestamp,
) -> Option<Seen> {
    let change = &record.plan.change;
    let live = live_resolver(topology)?;
    let state = fold.vantage(vantage)?;
    let name: &DomainName = change.name();
    let answer = [Family::V4, Family::V6]
        .into_iter()
        .filter_map(|family| state.answers.get(&(name.clone(), live.clone(), family)))
        .find(|answer| answer.outcome == Outcome::Answered && answer.at >= applied_at)?;
    // A pin or a repoint must be served as it is; after an unpin the native answer is what it is.
    if change.sets().is_some_and(|sets| !answer.addresses.is_subset(sets.as_set())) {
        return None;
    }
    let used = answer.addresses.iter().find_map(|address| {
        let run = state.reach.get(&(Target::Name(name.clone()), *address))?;
        let (at, id) = run.last_success?;
        (at >= applied_at && run.outcome.says() == Says::Works).then_some((at, id))
    });
    if used.is_none() && record.plan.purpose != PlanPurpose::Rollback {
        return None;
    }
    Some(Seen {
        vantage: vantage.clone(),
        at: used.map_or(answer.at, |(at, _)| at.max(answer.at)),
        resolution: answer.id,
        connection: used.map(|(_, id)| id),
    })
}
