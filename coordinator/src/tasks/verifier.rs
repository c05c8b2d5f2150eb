//! Proof from the client's side after a change, and the way back when there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parallax_decide::judge::live_resolver;
use parallax_decide::names::VantageName;
use parallax_decide::observation::Purpose;
use parallax_decide::plan::{Plan, PlanId, PlanPurpose, PlanReason, PlanRecord, PlanStatus};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use parallax_decide::verify::{self, Proof, Seen};
use serde_json::json;

use super::asker::connected;
use super::moment::Moment;
use crate::hub::{Task, Work};
use crate::store::StoreError;
use crate::store::incident::{self, Happened};
use crate::store::plan::{self, Step, StoredPlan};

/// A vantage that does not see a change yet is asked again this soon; later ever more seldom.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// The pause between two questions is this part of the time since the change.
const ASK_AGAIN_PART: u32 = 10;

/// An agent gives up on a question after this long.
const ASK_DEADLINE: Duration = Duration::from_secs(8);

/// A rollback may still be applied this long after it was planned: it makes good what we did.
const ROLLBACK_LIFE: Duration = Duration::from_secs(3600);

/// What is being proven, as far as the store need not know.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    asked: BTreeMap<(PlanId, VantageName), Timestamp>,
    seen: BTreeMap<PlanId, BTreeSet<VantageName>>,
}

impl Verifier {
    /// Looks for the proof of every applied plan. True: something was stored.
    pub(crate) async fn step(&mut self, moment: &Moment<'_>) -> Result<bool, StoreError> {
        let applied: Vec<&StoredPlan> =
            moment.plans.iter().filter(|stored| stored.record.status == PlanStatus::Applied).collect();
        self.asked.retain(|(id, _), _| applied.iter().any(|stored| stored.record.id == *id));
        self.seen.retain(|id, _| applied.iter().any(|stored| stored.record.id == *id));
        let mut stored = false;
        for plan in applied {
            stored |= self.prove(moment, plan).await?;
        }
        Ok(stored)
    }

    async fn prove(&mut self, moment: &Moment<'_>, stored: &StoredPlan) -> Result<bool, StoreError> {
        let record = &stored.record;
        let Some(verification) = verify::verify(moment.topology, moment.fold, moment.judgement, record) else {
            return Ok(false);
        };
        let known = self.seen.entry(record.id).or_default();
        let new: Vec<Seen> = verification.seen.into_iter().filter(|seen| !known.contains(&seen.vantage)).collect();
        let mut wrote = false;
        if !new.is_empty() {
            wrote = note(moment, record, &new).await?;
            known.extend(new.into_iter().map(|seen| seen.vantage));
        }
        match verification.proof {
            Proof::Proven => finish(moment, record).await,
            Proof::Wait { missing } => {
                self.ask(moment, record, &missing);
                Ok(wrote)
            }
            Proof::Undo { missing } => {
                let undone = match record.plan.purpose {
                    PlanPurpose::Remedy | PlanPurpose::Return => undo(moment, stored, &missing).await?,
                    PlanPurpose::Rollback => give_up(moment, stored, &missing).await?,
                };
                Ok(wrote || undone)
            }
        }
    }

    /// Asks those who have not seen it, while there is reason to hope; after that their own rounds tell.
    fn ask(&mut self, moment: &Moment<'_>, record: &PlanRecord, missing: &[VantageName]) {
        let (Some(applied_at), Some(live)) = (record.applied_at, live_resolver(moment.topology)) else { return };
        let elapsed = moment.now.since(applied_at);
        if elapsed > moment.topology.policy.verify_within {
            return;
        }
        let gap = ASK_AGAIN.max(elapsed / ASK_AGAIN_PART);
        let connected = connected(moment);
        for vantage in missing.iter().filter(|vantage| connected.contains(*vantage)) {
            let key = (record.id, vantage.clone());
            if self.asked.get(&key).is_some_and(|at| moment.now.since(*at) < gap) {
                continue;
            }
            let name = record.plan.change.name().clone();
            let work = Work::Resolve { name, resolver: live.clone(), connect: true };
            let task = Task { purpose: Purpose::Verify, deadline: ASK_DEADLINE, work };
            if let Err(error) = moment.app.hub.send_task(vantage, task, moment.epoch) {
                tracing::debug!(%error, "a proof was not asked for");
            }
            self.asked.insert(key, moment.now);
        }
    }
}

/// Stores who sees it.
async fn note(moment: &Moment<'_>, record: &PlanRecord, seen: &[Seen]) -> Result<bool, StoreError> {
    let mut transaction = moment.begin().await?;
    let new = plan::seen(&mut transaction, record.id, seen).await?;
    for sight in seen.iter().filter(|sight| new.contains(&sight.vantage)) {
        plan::event(&mut transaction, record.id, moment.now, Step::Proof, &json!(sight)).await?;
    }
    transaction.commit().await?;
    Ok(!new.is_empty())
}

/// It is proven.
async fn finish(moment: &Moment<'_>, record: &PlanRecord) -> Result<bool, StoreError> {
    let mut transaction = moment.begin().await?;
    if !plan::verified(&mut transaction, record.id, moment.now).await? {
        return Ok(false);
    }
    if record.plan.purpose == PlanPurpose::Return {
        plan::undone(&mut transaction, record.incident, &record.plan.item).await?;
    }
    let detail = json!({ "plan": record.id, "item": record.plan.item, "purpose": record.plan.purpose });
    plan::event(&mut transaction, record.id, moment.now, Step::Verified, &json!({})).await?;
    incident::event(&mut transaction, record.incident, moment.now, Happened::Proven, &detail).await?;
    transaction.commit().await?;
    tracing::info!(plan = record.id.0, incident = record.incident.0, item = %record.plan.item, "change proven from the client's side");
    Ok(true)
}

/// Nobody can use it: plans to take it back, once.
async fn undo(moment: &Moment<'_>, stored: &StoredPlan, missing: &[VantageName]) -> Result<bool, StoreError> {
    let record = &stored.record;
    if stored.proof_failed {
        return Ok(false);
    }
    let missing: Vec<&str> = missing.iter().map(VantageName::as_str).collect();
    let rollback = Plan {
        purpose: PlanPurpose::Rollback,
        undoes: Some(record.id),
        driver: record.plan.driver.clone(),
        vantage: record.plan.vantage.clone(),
        item: record.plan.item.clone(),
        change: record.plan.change.undo(),
        reason: PlanReason::ProofFailed { why: format!("not usable at {}", missing.join(", ")) },
        expires_at: moment.now.plus(ROLLBACK_LIFE),
        // Whoever was allowed to make the change is allowed to take it back.
        mode: Mode::Act,
    };
    let mut transaction = moment.begin().await?;
    let inserted = plan::insert(&mut transaction, record.incident, moment.epoch, moment.now, &rollback).await?;
    // Its driver is busy with another plan: its turn comes.
    let Some(id) = inserted else { return Ok(false) };
    let detail = json!({ "plan": record.id, "item": record.plan.item, "missing": missing, "rollback": id });
    plan::event(&mut transaction, record.id, moment.now, Step::ProofFailed, &detail).await?;
    incident::event(&mut transaction, record.incident, moment.now, Happened::ProofFailed, &detail).await?;
    transaction.commit().await?;
    tracing::warn!(
        plan = record.id.0,
        rollback = id.0,
        incident = record.incident.0,
        "change not proven in time; it is taken back"
    );
    Ok(true)
}

/// Not even the way back can be proven: people must look. Said once.
async fn give_up(moment: &Moment<'_>, stored: &StoredPlan, missing: &[VantageName]) -> Result<bool, StoreError> {
    let record = &stored.record;
    if stored.proof_failed {
        return Ok(false);
    }
    let detail = json!({ "plan": record.id, "item": record.plan.item, "missing": missing });
    let mut transaction = moment.begin().await?;
    plan::event(&mut transaction, record.id, moment.now, Step::ProofFailed, &detail).await?;
    incident::event(&mut transaction, record.incident, moment.now, Happened::RollbackUnproven, &detail).await?;
    transaction.commit().await?;
    tracing::error!(
        plan = record.id.0,
        incident = record.incident.0,
        "a rollback is made but not proven; people must look"
    );
    Ok(true)
}
