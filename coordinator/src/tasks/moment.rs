//! What every part of the engine looks at in one tick.

use parallax_decide::fold::Fold;
use parallax_decide::incident::IncidentId;
use parallax_decide::judge::Judgement;
use parallax_decide::plan::{PlanId, PlanRecord, PlanStatus};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Topology;
use sqlx::{Postgres, Transaction};

use crate::state::App;
use crate::store::plan::StoredPlan;
use crate::store::{StoreError, lease};

/// One moment.
#[derive(Clone, Copy)]
pub(crate) struct Moment<'a> {
    /// The coordinator.
    pub app: &'a App,
    /// The configuration.
    pub topology: &'a Topology,
    /// What agents said.
    pub fold: &'a Fold,
    /// The verdicts.
    pub judgement: &'a Judgement,
    /// Every plan of an open incident, oldest first.
    pub plans: &'a [StoredPlan],
    /// Whether an operator froze every write.
    pub frozen: bool,
    /// Epoch of the lease.
    pub epoch: i64,
    /// When.
    pub now: Timestamp,
}

impl<'a> Moment<'a> {
    /// A plan of an open incident.
    pub(crate) fn plan(&self, id: PlanId) -> Option<&'a StoredPlan> {
        self.plans.iter().find(|stored| stored.record.id == id)
    }

    /// The plans of one incident, oldest first.
    pub(crate) fn of(&self, incident: IncidentId) -> impl Iterator<Item = &'a StoredPlan> {
        self.plans.iter().filter(move |stored| stored.record.incident == incident)
    }

    /// How many changes an incident has made to one name or service.
    pub(crate) fn changes_made(&self, incident: IncidentId, item: &str) -> u32 {
        let about = self.of(incident).filter(|stored| stored.record.plan.item == item);
        u32::try_from(about.filter(|stored| stored.record.counts()).count()).unwrap_or(u32::MAX)
    }

    /// Whether a plan other than this one is on its way to the same driver.
    pub(crate) fn driver_busy(&self, but: Option<PlanId>, record: &parallax_decide::plan::Plan) -> bool {
        self.plans.iter().map(|stored| &stored.record).any(|other| {
            Some(other.id) != but
                && on_its_way(other)
                && other.plan.driver == record.driver
                && other.plan.vantage == record.vantage
        })
    }

    /// Begins a transaction that fails when the lease has moved on, and keeps the lease until it ends.
    ///
    /// # Errors
    /// [`StoreError::StaleEpoch`], or when the database refuses.
    pub(crate) async fn begin(&self) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut transaction = self.app.pool.begin().await?;
        lease::fence(&mut transaction, self.epoch).await?;
        Ok(transaction)
    }
}

/// Whether a plan occupies its driver.
fn on_its_way(record: &PlanRecord) -> bool {
    match record.status {
        PlanStatus::Approved | PlanStatus::Applying => true,
        PlanStatus::Proposed
        | PlanStatus::Applied
        | PlanStatus::Verified
        | PlanStatus::Failed
        | PlanStatus::Refused
        | PlanStatus::Yielded
        | PlanStatus::RolledBack
        | PlanStatus::Expired
        | PlanStatus::Undone => false,
    }
}
