//! From verdicts to incidents: compares, and stores what opens, changes and closes.

use std::collections::{BTreeMap, BTreeSet};

use parallax_decide::incident::{Book, IncidentId, Open, Transition};
use parallax_decide::names::{NodeName, ServiceName};
use parallax_decide::time::Timestamp;
use parallax_decide::topology::Policy;
use sqlx::PgConnection;

use super::moment::Moment;
use crate::judging::follow;
use crate::store::{StoreError, incident};

/// The open incidents.
pub(crate) struct Steward {
    book: Book,
}

impl Steward {
    /// Starts from the store: what is open, and what closed so lately that it can relapse.
    pub(crate) async fn load(
        connection: &mut PgConnection,
        policy: &Policy,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let open = incident::all_open(connection).await?;
        let closed = incident::closed_since(connection, now.minus(policy.relapse_window)).await?;
        Ok(Self { book: Book::new(open).with_closed(closed) })
    }

    /// The open incidents, in order of subject.
    pub(crate) fn open(&self) -> impl Iterator<Item = &Open> {
        self.book.open()
    }

    /// Compares all verdicts and stores what follows for the incidents, each in a transaction of its
    /// own. True: something did.
    pub(crate) async fn step(
        &mut self,
        moment: &Moment<'_>,
        serving: &BTreeMap<ServiceName, NodeName>,
    ) -> Result<bool, StoreError> {
        let in_force: BTreeSet<IncidentId> =
            moment.plans.iter().map(|stored| &stored.record).filter(|r| r.holds_open()).map(|r| r.incident).collect();
        let transitions = follow(&mut self.book, moment.topology, moment.judgement, serving, &in_force);
        let changed = !transitions.is_empty();
        for transition in transitions {
            let mut transaction = moment.begin().await?;
            match &transition {
                Transition::Open { finding } => {
                    let id = incident::open(&mut transaction, moment.now, finding).await?;
                    incident::relapsed(&mut transaction, id, self.book.relapses(&finding.subject)).await?;
                    transaction.commit().await?;
                    tracing::warn!(incident = id.0, kind = %finding.kind, subject = %finding.subject.key(), "incident opened");
                    self.book.opened(id, finding, moment.now);
                }
                Transition::Change { id, finding } => {
                    incident::change(&mut transaction, *id, moment.now, finding).await?;
                    transaction.commit().await?;
                    self.book.changed(finding);
                }
                Transition::Close { id, well_since } => {
                    incident::close(&mut transaction, *id, moment.now, *well_since).await?;
                    transaction.commit().await?;
                    tracing::info!(incident = id.0, "incident closed");
                    self.book.closed(*id, moment.now);
                }
            }
        }
        Ok(changed)
    }
}
