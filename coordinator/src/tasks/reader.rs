//! Reads the log of observations and folds it into the state that judging reads.

use std::time::Duration;

use parallax_decide::fold::Fold;
use parallax_decide::time::Timestamp;
use parallax_decide::topology::{Policy, Topology};
use sqlx::PgConnection;

use crate::store::StoreError;
use crate::store::log::{Position, observations_after, set_aside};

/// Observations read at once.
const PAGE_MAX: i64 = 2000;

/// Pages read in one tick; when there are more, nothing is judged before they are read as well.
const PAGES_MAX: usize = 25;

/// Added to what judging can look back to, when the state is rebuilt.
const REBUILD_MARGIN: Duration = Duration::from_secs(60);

/// A place in the log and what was folded up to there.
pub(crate) struct Reader {
    fold: Fold,
    position: Position,
}

impl Reader {
    /// Starts so far back that everything that can still matter is read again.
    pub(crate) fn new(policy: &Policy, now: Timestamp) -> Self {
        Self {
            fold: Fold::listening_since(now),
            position: Position::since(now.minus(policy.looks_back() + REBUILD_MARGIN)),
        }
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
            for observation in &page.observations {
                self.fold.apply(topology, observation);
            }
            if let Some(first) = page.unreadable.first() {
                let (count, id) = (page.unreadable.len(), first.id.0);
                tracing::error!(count, id, why = %first.why, "rows of the log cannot be read; they decide nothing");
                set_aside(connection, &page.unreadable).await?;
            }
            match page.behind {
                Some(behind) => self.position = behind,
                None => return Ok(true),
            }
            if i64::try_from(page.rows).is_ok_and(|read| read < PAGE_MAX) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
