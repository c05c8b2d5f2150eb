//! From an approved plan to a changed record, exactly once.
//!
//! ```text
//! approved -- look, guard --> journal "intent", applying -- send --> applied
//!                                   ^                        |
//!                                   +---- look again <-------+ perhaps applied, or we were killed
//! ```
//!
//! What is perhaps applied is never sent blindly again: first somebody looks. If it stands, it is
//! applied; if the old set stands, the same change is sent again while the plan lives; anything else
//! is somebody else's and is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parallax_decide::change::Standing;
use parallax_decide::guard::{self, Facts, Refusal};
use parallax_decide::plan::{PlanId, PlanPurpose, PlanRecord, PlanStatus};
use parallax_decide::time::Timestamp;
use serde_json::{Value, json};

use super::errands::{Errands, Outcome};
use super::moment::Moment;
use super::readings::{Found, Readings, Spot};
use crate::store::StoreError;
use crate::store::incident::{self, Happened};
use crate::store::plan::{self, Step, StoredPlan};

/// First pause before a plan is looked at again; doubled each time.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Longest such pause.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// What is under way, as far as the store need not know.
#[derive(Debug, Default)]
pub(crate) struct Executor {
    found: BTreeMap<PlanId, Found>,
    outcomes: Vec<(PlanId, Outcome, Timestamp)>,
    waits: BTreeMap<PlanId, (u32, Timestamp)>,
}

impl Executor {
    /// Takes in what somebody found for a plan.
    pub(crate) fn looked(&mut self, plan: PlanId, found: Found) {
        self.found.insert(plan, found);
    }

    /// Takes in how a change ended.
    pub(crate) fn changed(&mut self, plan: PlanId, outcome: Outcome, at: Timestamp) {
        self.outcomes.push((plan, outcome, at));
    }

    /// Goes one step on with every plan. True: something was stored.
    pub(crate) async fn step(
        &mut self,
        moment: &Moment<'_>,
        readings: &mut Readings,
        errands: &mut Errands,
    ) -> Result<bool, StoreError> {
        let mut stored = false;
        for (id, outcome, at) in std::mem::take(&mut self.outcomes) {
            if let Some(plan) = moment.plan(id) {
                self.settle(moment, plan, outcome, at, readings).await?;
                stored = true;
            }
        }
        if stored {
            return Ok(true);
        }
        let live: BTreeSet<PlanId> = moment.plans.iter().map(|plan| plan.record.id).collect();
        self.waits.retain(|id, _| live.contains(id));
        self.found.retain(|id, _| live.contains(id));
        for plan in moment.plans {
            stored |= match plan.record.status {
                PlanStatus::Proposed if late(moment, &plan.record) => {
                    self.end(moment, &plan.record, PlanStatus::Expired, &json!({})).await?;
                    true
                }
                PlanStatus::Approved if late(moment, &plan.record) => {
                    let last = self.found.get(&plan.record.id).map(Found::detail);
                    self.end(moment, &plan.record, PlanStatus::Expired, &json!({ "last": last })).await?;
                    true
                }
                PlanStatus::Approved | PlanStatus::Applying if !moment.frozen && !errands.busy(plan.record.id) => {
                    self.proceed(moment, plan, errands, readings).await?
                }
                PlanStatus::Proposed
                | PlanStatus::Approved
                | PlanStatus::Applying
                | PlanStatus::Applied
                | PlanStatus::Verified
                | PlanStatus::Failed
                | PlanStatus::Refused
                | PlanStatus::Yielded
                | PlanStatus::RolledBack
                | PlanStatus::Expired
                | PlanStatus::Undone => false,
            };
        }
        Ok(stored)
    }

    /// One step of a plan that is approved, or perhaps applied.
    async fn proceed(
        &mut self,
        moment: &Moment<'_>,
        stored: &StoredPlan,
        errands: &mut Errands,
        readings: &mut Readings,
    ) -> Result<bool, StoreError> {
        let record = &stored.record;
        if record.epoch != moment.epoch {
            take_over(moment, record).await?;
            return Ok(true);
        }
        let Some(found) = self.found.get(&record.id).cloned() else {
            if self.waits.get(&record.id).is_none_or(|(_, until)| moment.now >= *until) {
                errands.look(Spot::of(&record.plan), Some(record.id));
            }
            return Ok(false);
        };
        let Some(standing) = found.standing(&record.plan.change) else {
            self.wait(record.id, moment.now);
            return Ok(false);
        };
        self.found.remove(&record.id);
        let sent_before = record.status == PlanStatus::Applying;
        // What was journalled, and the way back from a change that helps nobody, is not given up for
        // a refusal that may pass.
        let patient = sent_before || record.plan.purpose == PlanPurpose::Rollback;
        match standing {
            Standing::Foreign => {
                self.end(moment, record, PlanStatus::Yielded, &found.detail()).await?;
            }
            // Our own write, of which we never heard.
            Standing::AlreadySet if sent_before => {
                let mut transaction = moment.begin().await?;
                plan::event(&mut transaction, record.id, moment.now, Step::Read, &found.detail()).await?;
                transaction.commit().await?;
                self.settle(moment, stored, Outcome::Already, moment.now, readings).await?;
            }
            Standing::AsExpected if sent_before && late(moment, record) => {
                self.end(moment, record, PlanStatus::Expired, &found.detail()).await?;
            }
            Standing::AsExpected | Standing::AlreadySet => {
                let refusals = refusals(moment, stored, &found);
                if refusals.is_empty() {
                    send(moment, record, &found, errands).await?;
                } else if patient {
                    self.wait(record.id, moment.now);
                    return Ok(false);
                } else {
                    self.end(moment, record, PlanStatus::Refused, &json!({ "refusals": refusals })).await?;
                }
            }
        }
        Ok(true)
    }

    /// Stores how a change ended.
    async fn settle(
        &mut self,
        moment: &Moment<'_>,
        stored: &StoredPlan,
        outcome: Outcome,
        at: Timestamp,
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let record = &stored.record;
        let id = record.id;
        let step = match outcome {
            Outcome::Applied => Step::Applied,
            Outcome::Already => Step::Already,
            Outcome::Conflict(why) => {
                return self.end(moment, record, PlanStatus::Yielded, &json!({ "why": why })).await;
            }
            Outcome::Refused(why) | Outcome::Failed(why) => {
                return self.end(moment, record, PlanStatus::Failed, &json!({ "why": why })).await;
            }
            Outcome::Uncertain(why) => return self.again(moment, record, Step::Uncertain, &why).await,
            Outcome::NotSent(why) => return self.again(moment, record, Step::Failed, &why).await,
        };
        let counted = record.plan.purpose != PlanPurpose::Return;
        let mut transaction = moment.begin().await?;
        if !plan::applied(&mut transaction, id, at, counted).await? {
            return Ok(());
        }
        let detail = json!({ "plan": id, "item": record.plan.item, "purpose": record.plan.purpose, "change": record.plan.change });
        plan::event(&mut transaction, id, at, step, &json!({ "epoch": moment.epoch })).await?;
        if let (PlanPurpose::Rollback, Some(undone)) = (record.plan.purpose, record.plan.undoes) {
            plan::advance(&mut transaction, undone, PlanStatus::Applied, PlanStatus::RolledBack).await?;
        }
        incident::count_changes(&mut transaction, record.incident).await?;
        incident::event(&mut transaction, record.incident, at, Happened::Applied, &detail).await?;
        transaction.commit().await?;
        self.waits.remove(&id);
        readings.set(&record.plan.change, &Spot::of(&record.plan), at);
        tracing::warn!(plan = id.0, incident = record.incident.0, item = %record.plan.item, already = step == Step::Already, "change made and read back");
        Ok(())
    }

    /// Journals that nobody knows yet, or that nothing could be sent; it is tried again.
    async fn again(
        &mut self,
        moment: &Moment<'_>,
        record: &PlanRecord,
        step: Step,
        why: &str,
    ) -> Result<(), StoreError> {
        let mut transaction = moment.begin().await?;
        plan::event(&mut transaction, record.id, moment.now, step, &json!({ "why": why, "again": true })).await?;
        transaction.commit().await?;
        tracing::warn!(plan = record.id.0, item = %record.plan.item, %why, "change not confirmed; looking before trying again");
        self.found.remove(&record.id);
        self.wait(record.id, moment.now);
        Ok(())
    }

    /// Ends a plan that changed nothing.
    async fn end(
        &mut self,
        moment: &Moment<'_>,
        record: &PlanRecord,
        to: PlanStatus,
        detail: &Value,
    ) -> Result<(), StoreError> {
        let (step, happened) = match to {
            PlanStatus::Yielded => (Step::Conflict, Happened::Yielded),
            PlanStatus::Refused => (Step::Refused, Happened::PlanFailed),
            PlanStatus::Expired => (Step::Expired, Happened::PlanFailed),
            PlanStatus::Failed
            | PlanStatus::Proposed
            | PlanStatus::Approved
            | PlanStatus::Applying
            | PlanStatus::Applied
            | PlanStatus::Verified
            | PlanStatus::RolledBack
            | PlanStatus::Undone => (Step::Failed, Happened::PlanFailed),
        };
        let mut transaction = moment.begin().await?;
        if !plan::advance(&mut transaction, record.id, record.status, to).await? {
            return Ok(());
        }
        plan::event(&mut transaction, record.id, moment.now, step, detail).await?;
        let line = json!({ "plan": record.id, "item": record.plan.item, "status": to, "detail": detail });
        // A proposal that nobody took up is no failure.
        if record.status != PlanStatus::Proposed {
            let rollback = record.plan.purpose == PlanPurpose::Rollback;
            let happened = if rollback { Happened::RollbackUnproven } else { happened };
            incident::event(&mut transaction, record.incident, moment.now, happened, &line).await?;
            if let (true, PlanStatus::Yielded, Some(undone)) = (rollback, to, record.plan.undoes) {
                // Somebody has put something else there: what was to be taken back is gone already.
                plan::advance(&mut transaction, undone, PlanStatus::Applied, PlanStatus::Yielded).await?;
            }
            tracing::warn!(plan = record.id.0, incident = record.incident.0, item = %record.plan.item, status = %to, %detail, "plan ended without a change");
        }
        transaction.commit().await?;
        self.found.remove(&record.id);
        self.waits.remove(&record.id);
        Ok(())
    }

    fn wait(&mut self, id: PlanId, now: Timestamp) {
        self.found.remove(&id);
        let (tries, until) = self.waits.entry(id).or_insert((0, now));
        *until = now.plus(AGAIN_AFTER.saturating_mul(1 << (*tries).min(16)).min(AGAIN_AFTER_MAX));
        *tries = tries.saturating_add(1);
    }
}

fn late(moment: &Moment<'_>, record: &PlanRecord) -> bool {
    moment.now > record.plan.expires_at
}

/// Everything that speaks against applying the plan now, with what was just found.
fn refusals(moment: &Moment<'_>, stored: &StoredPlan, found: &Found) -> BTreeSet<Refusal> {
    let record = found.record();
    let facts = Facts {
        topology: moment.topology,
        judgement: moment.judgement,
        frozen: moment.frozen,
        epoch_current: stored.record.epoch == moment.epoch,
        found: record.as_ref(),
        changes_made: moment.changes_made(stored.record.incident, &stored.record.plan.item),
        driver_busy: moment.driver_busy(Some(stored.record.id), &stored.record.plan),
        approved_by_person: stored.approved_by_person(),
    };
    guard::refusals(&stored.record.plan, facts)
}

/// Journals the change, then sends it.
async fn send(
    moment: &Moment<'_>,
    record: &PlanRecord,
    found: &Found,
    errands: &mut Errands,
) -> Result<(), StoreError> {
    let again = record.status == PlanStatus::Applying;
    let mut transaction = moment.begin().await?;
    if !plan::advance(&mut transaction, record.id, record.status, PlanStatus::Applying).await? {
        return Ok(());
    }
    let mut detail = json!({ "epoch": moment.epoch, "change": record.plan.change, "again": again });
    if let (Some(detail), Value::Object(found)) = (detail.as_object_mut(), found.detail()) {
        detail.extend(found);
    }
    plan::event(&mut transaction, record.id, moment.now, Step::Intent, &detail).await?;
    transaction.commit().await?;
    errands.change(record);
    Ok(())
}

/// Goes on with a plan of an earlier holder of the lease.
async fn take_over(moment: &Moment<'_>, record: &PlanRecord) -> Result<(), StoreError> {
    let mut transaction = moment.begin().await?;
    plan::take_over(&mut transaction, record.id, moment.epoch).await?;
    let detail = json!({ "from_epoch": record.epoch, "epoch": moment.epoch });
    plan::event(&mut transaction, record.id, moment.now, Step::TakenOver, &detail).await?;
    transaction.commit().await?;
    tracing::info!(plan = record.id.0, from_epoch = record.epoch, epoch = moment.epoch, "plan taken over");
    Ok(())
}
