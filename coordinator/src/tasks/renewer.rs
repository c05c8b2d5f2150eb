//! Keeps standing pins alive: an agent removes a pin that is not renewed, so that one whose
//! coordinator is gone for good does not stay for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use parallax_decide::change::Change;
use parallax_decide::plan::{PlanId, PlanStatus};
use parallax_decide::time::Timestamp;
use serde_json::json;

use super::errands::{Errands, Outcome};
use super::moment::Moment;
use crate::store::StoreError;
use crate::store::plan::{self, Step, StoredPlan};

/// A renewal that failed is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Renewals under way.
#[derive(Debug, Default)]
pub(crate) struct Renewer {
    tried: BTreeMap<PlanId, Timestamp>,
    outcomes: Vec<(PlanId, Outcome, Timestamp)>,
}

impl Renewer {
    /// Takes in how a renewal ended.
    pub(crate) fn renewed(&mut self, plan: PlanId, outcome: Outcome, at: Timestamp) {
        self.outcomes.push((plan, outcome, at));
    }

    /// Sends every pin that stands and is past the middle of its life again. True: something was stored.
    pub(crate) async fn step(&mut self, moment: &Moment<'_>, errands: &mut Errands) -> Result<bool, StoreError> {
        let mut stored = false;
        for (id, outcome, at) in std::mem::take(&mut self.outcomes) {
            match outcome {
                Outcome::Applied | Outcome::Already => {
                    let mut transaction = moment.begin().await?;
                    plan::event(&mut transaction, id, at, Step::Renewed, &json!({ "epoch": moment.epoch })).await?;
                    transaction.commit().await?;
                    stored = true;
                }
                Outcome::Conflict(why)
                | Outcome::Refused(why)
                | Outcome::Failed(why)
                | Outcome::Uncertain(why)
                | Outcome::NotSent(why) => {
                    tracing::warn!(plan = id.0, %why, "pin not renewed; it ends at its expiry unless a later try succeeds");
                }
            }
        }
        if stored || moment.frozen {
            return Ok(stored);
        }
        self.tried.retain(|_, at| moment.now.since(*at) < AGAIN_AFTER);
        let half_life = moment.topology.policy.pin_life / 2;
        for pin in moment.plans.iter().filter(|stored| stands(stored)) {
            let id = pin.record.id;
            let due = pin.renewed_at.max(pin.record.applied_at).is_some_and(|at| moment.now.since(at) >= half_life);
            if due && !self.tried.contains_key(&id) && !errands.busy(id) {
                errands.renew(&pin.record);
                self.tried.insert(id, moment.now);
            }
        }
        Ok(false)
    }
}

fn stands(stored: &StoredPlan) -> bool {
    matches!(stored.record.plan.change, Change::Pin { .. }) && stored.record.status == PlanStatus::Verified
}
