//! Reads the log of observations and folds it into the state that judging reads.

use parallax_decide::fold::Fold;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Policy, Topology};
use sqlx::PgConnection;

use crate::judging::{self, PAGE_MAX};
use crate::store::StoreError;
use crate::store::log::{Position, observations_after, set_aside};
use crate::store::session::clones_since;

/// Pages read in one tick; when there are more, nothing is judged before they are read as well.
const PAGES_MAX: usize = 25;

/// A place in the log and what was folded up to there.
pub(crate) struct Reader {
    fold: Fold,
    position: Position,
}

impl Reader {
    /// Starts so far back that everything that can still matter is read again.
    pub(crate) fn new(policy: &Policy, now: Timestamp) -> Self {
        let (fold, position) = judging::begin(policy, now, now);
        Self { fold, position }
    }

    /// The state that judging reads.
    pub(crate) fn fold(&self) -> &Fold {
        &self.fold
    }

    /// Folds what is new. False: there is more.
    pub(crate) async fn read(
        &mut self,
        connection: &mut PgConnection,
        topology: &Topology,
    ) -> Result<bool, StoreError> {
        for _ in 0..PAGES_MAX {
            let page = observations_after(connection, self.position, PAGE_MAX).await?;
            judging::fold(&mut self.fold, topology, &page);
            if let Some(first) = page.unreadable.first() {
                let (count, id) = (page.unreadable.len(), first.id.0);
                tracing::error!(count, id, why = %first.why, "rows of the log cannot be read; they decide nothing");
                set_aside(connection, &page.unreadable).await?;
            }
            let read = i64::try_from(page.rows).unwrap_or(i64::MAX);
            if let Some(behind) = page.behind {
                self.position = behind;
            }
            if read < PAGE_MAX {
                // Streams show it, and no row of the log does.
                for (vantage, at) in clones_since(connection, self.position.from).await? {
                    self.fold.note_clone(topology, &vantage, at);
                }
                return Ok(true);
            }
        }
        Ok(false)
    }
}
