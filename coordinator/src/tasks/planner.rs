//! From incidents to plans, or to the reason why there is none. Every decision is stored once: a
//! reason that stays the same is not written again.

use std::collections::BTreeMap;
use std::time::Duration;

use parallax_decide::guard::{self, Facts, Refusal};
use parallax_decide::incident::{IncidentId, Open};
use parallax_decide::names::ServiceName;
use parallax_decide::plan::{self, Decision, NoPlan, Plan, PlanId, PlanRecord, PlanStatus, Record, Situation};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Mode;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::errands::Errands;
use super::moment::Moment;
use super::readings::{Readings, Spot};
use crate::store::incident::Happened;
use crate::store::{self, StoreError};

/// A reading that a new plan is checked against is at most this old.
const READING_AGE_MAX: Duration = Duration::from_secs(5);

/// A look for a new plan is not repeated sooner than this.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A proposal waits this long for a person. The evidence is checked again when it is approved.
const PROPOSAL_LIFE: Duration = Duration::from_secs(15 * 60);

/// After a plan that ended without a change, the next one for the same item waits this long, twice
/// as long after each further one.
const RETRY_WAIT: Duration = Duration::from_secs(5);

/// But no longer than this.
const RETRY_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Two lines about the same item are at least this far apart, so that a wavering reason cannot fill
/// the timeline.
const HOLD_LINES_GAP: Duration = Duration::from_secs(2);

/// Why nothing is planned, as the timeline has it.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Why {
    /// The planner's reason.
    NoPlan(NoPlan),
    /// The guards', or a recent failure.
    Guarded(Guarded),
}

#[derive(Debug, Serialize)]
#[serde(tag = "because", rename_all = "snake_case")]
enum Guarded {
    /// Guards refused the plan.
    Guard { refusals: Vec<Refusal> },
    /// The last plans for the item came to nothing.
    RecentFailure { plan: PlanId, status: PlanStatus, until: Timestamp },
}

/// What was last said about each item.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    held: BTreeMap<(IncidentId, String), (Value, Option<Timestamp>)>,
}

impl Planner {
    /// Starts from the store.
    pub(crate) async fn load(connection: &mut PgConnection) -> Result<Self, StoreError> {
        let holds = store::incident::last_holds(connection).await?;
        Ok(Self { held: holds.into_iter().map(|(item, why)| (item, (why, None))).collect() })
    }

    /// Decides for every open incident. True: something was stored.
    pub(crate) async fn step(
        &mut self,
        moment: &Moment<'_>,
        open: &[&Open],
        records: &BTreeMap<ServiceName, Record>,
        readings: &mut Readings,
        errands: &mut Errands,
    ) -> Result<bool, StoreError> {
        self.held.retain(|(id, _), _| open.iter().any(|incident| incident.id == *id));
        if open.is_empty() {
            return Ok(false);
        }
        let since = moment.now.minus(moment.topology.policy.relapse_window);
        let mut connection = moment.app.pool.acquire().await?;
        let relapses = store::plan::relapses_since(&mut connection, since).await?;
        drop(connection);
        let (mut stored, none) = (false, BTreeMap::new());
        for incident in open {
            let plans: Vec<PlanRecord> = moment.of(incident.id).map(|stored| stored.record.clone()).collect();
            let situation = Situation {
                topology: moment.topology,
                fold: moment.fold,
                judgement: moment.judgement,
                incident,
                plans: &plans,
                records,
                relapses: relapses.get(&incident.subject.key()).unwrap_or(&none),
            };
            for decision in plan::plan(situation) {
                stored |= match decision {
                    // The plan itself says so.
                    Decision::Hold { why: NoPlan::InFlight, .. } => false,
                    // After a start nobody has looked yet: that is no news.
                    Decision::Hold { item, why: NoPlan::RecordUnknown }
                        if readings.awaits(moment.topology, &item, moment.now) =>
                    {
                        false
                    }
                    Decision::Hold { item, why } => self.hold(moment, incident.id, item, Why::NoPlan(why)).await?,
                    Decision::Plan(plan) => self.make(moment, incident.id, *plan, &plans, readings, errands).await?,
                };
            }
        }
        Ok(stored)
    }

    async fn make(
        &mut self,
        moment: &Moment<'_>,
        incident: IncidentId,
        mut plan: Plan,
        plans: &[PlanRecord],
        readings: &mut Readings,
        errands: &mut Errands,
    ) -> Result<bool, StoreError> {
        if let Some((last, until)) = failed_lately(plans, &plan.item).filter(|(_, until)| moment.now < *until) {
            let why = Guarded::RecentFailure { plan: last.id, status: last.status, until };
            return self.hold(moment, incident, plan.item, Why::Guarded(why)).await;
        }
        let spot = Spot::of(&plan);
        let Some(found) = readings.fresh(&spot, moment.now, READING_AGE_MAX) else {
            readings.want(&spot, LOOK_AGAIN, moment.now, errands);
            return Ok(false);
        };
        let record = found.record();
        let facts = Facts {
            topology: moment.topology,
            judgement: moment.judgement,
            frozen: moment.frozen,
            epoch_current: true,
            found: record.as_ref(),
            changes_made: moment.changes_made(incident, &plan.item),
            driver_busy: moment.driver_busy(None, &plan),
            // A proposal may be made; whether it may be applied is asked again then.
            approved_by_person: plan.mode != Mode::Act,
        };
        let refusals: Vec<Refusal> = guard::refusals(&plan, facts).into_iter().collect();
        if refusals == [Refusal::DriverBusy] {
            // It is its turn in a moment.
            return Ok(false);
        }
        if !refusals.is_empty() {
            return self.hold(moment, incident, plan.item, Why::Guarded(Guarded::Guard { refusals })).await;
        }
        if plan.mode != Mode::Act {
            plan.expires_at = moment.now.plus(PROPOSAL_LIFE);
        }
        let mut transaction = moment.begin().await?;
        let Some(id) = store::plan::insert(&mut transaction, incident, moment.epoch, moment.now, &plan).await? else {
            return Ok(false);
        };
        let detail =
            json!({ "plan": id, "item": plan.item, "purpose": plan.purpose, "mode": plan.mode, "change": plan.change });
        store::incident::event(&mut transaction, incident, moment.now, Happened::Planned, &detail).await?;
        transaction.commit().await?;
        tracing::info!(plan = id.0, incident = incident.0, item = %plan.item, purpose = %plan.purpose, mode = ?plan.mode, "plan made");
        Ok(true)
    }

    /// Writes why nothing is planned, if that is news.
    async fn hold(
        &mut self,
        moment: &Moment<'_>,
        incident: IncidentId,
        item: String,
        why: Why,
    ) -> Result<bool, StoreError> {
        let why = serde_json::to_value(why)
            .map_err(|error| StoreError::content("incident_event", "detail", incident.0, error))?;
        let key = (incident, item);
        if let Some((last, at)) = self.held.get(&key)
            && (*last == why || at.is_some_and(|at| moment.now.since(at) < HOLD_LINES_GAP))
        {
            return Ok(false);
        }
        let detail = json!({ "item": key.1, "why": why });
        let mut transaction = moment.begin().await?;
        store::incident::event(&mut transaction, incident, moment.now, Happened::NoPlan, &detail).await?;
        transaction.commit().await?;
        self.held.insert(key, (why, Some(moment.now)));
        Ok(true)
    }
}

/// The newest plan for the item if it came to nothing, and until when the next one waits.
fn failed_lately<'a>(plans: &'a [PlanRecord], item: &str) -> Option<(&'a PlanRecord, Timestamp)> {
    let about = plans.iter().rev().filter(|record| record.plan.item == item);
    let failed: Vec<&PlanRecord> = about.take_while(|record| came_to_nothing(record.status)).collect();
    let newest = failed.first()?;
    let doublings = u32::try_from(failed.len() - 1).unwrap_or(u32::MAX).min(16);
    let wait = RETRY_WAIT.saturating_mul(1 << doublings).min(RETRY_WAIT_MAX);
    Some((newest, newest.created_at.plus(wait)))
}

fn came_to_nothing(status: PlanStatus) -> bool {
    match status {
        PlanStatus::Failed | PlanStatus::Refused | PlanStatus::Yielded | PlanStatus::Expired => true,
        PlanStatus::Proposed
        | PlanStatus::Approved
        | PlanStatus::Applying
        | PlanStatus::Applied
        | PlanStatus::Verified
        | PlanStatus::RolledBack
        | PlanStatus::Undone => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parallax_decide::change::Change;
    use parallax_decide::names::Addresses;
    use parallax_decide::plan::{PlanPurpose, PlanReason};

    fn record(id: i64, status: PlanStatus, created_s: i64) -> PlanRecord {
        let set = |text: &str| Addresses::one(text.parse().unwrap()).unwrap();
        let change = Change::Repoint {
            name: "fi.montana.quest".parse().unwrap(),
            expects: set("95.216.10.10"),
            sets: set("49.12.20.20"),
            ttl_s: 5,
        };
        PlanRecord {
            id: PlanId(id),
            incident: IncidentId(1),
            epoch: 1,
            created_at: Timestamp(created_s * 1000),
            status,
            applied_at: None,
            verified_at: None,
            plan: Plan {
                purpose: PlanPurpose::Remedy,
                undoes: None,
                driver: "auth".parse().unwrap(),
                vantage: None,
                item: "fi".to_owned(),
                change,
                reason: PlanReason::ProofFailed { why: String::new() },
                expires_at: Timestamp(0),
                mode: Mode::Act,
            },
        }
    }

    #[test]
    fn the_next_plan_waits_twice_as_long_after_each_one_that_came_to_nothing() {
        use PlanStatus::{Expired, Failed, Refused, Verified, Yielded};
        let cases: &[(&[PlanStatus], Option<i64>)] = &[
            (&[], None),
            (&[Verified], None),
            (&[Failed], Some(5)),
            (&[Failed, Refused], Some(10)),
            (&[Failed, Failed, Yielded, Expired], Some(40)),
            (&[Failed, Failed, Verified, Failed], Some(5)),
            (&[Failed; 30], Some(3600)),
        ];
        for (statuses, wait_s) in cases {
            let plans: Vec<PlanRecord> =
                statuses.iter().zip(1..).map(|(status, id)| record(id, *status, 100)).collect();
            let until = failed_lately(&plans, "fi").map(|(_, until)| until);
            assert_eq!(until, wait_s.map(|s| Timestamp((100 + s) * 1000)), "{statuses:?}");
            assert_eq!(failed_lately(&plans, "de"), None);
        }
    }
}
