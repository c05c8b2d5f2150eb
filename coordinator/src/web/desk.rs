//! What handlers share. Readers of the page may never take what ingest and tasks need: few of them
//! read at a time, each for a bounded time, and the matrix is read once for all who ask at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::trouble::Trouble;
use crate::clock::monotonic;
use crate::report::matrix::{self, Matrix};
use crate::state::App;
use crate::store::{self, StoreError};

/// Connections to the database that pages and API may hold, of the pool's twelve.
const READERS_MAX: usize = 4;

/// Longest time one answer may wait for the database.
pub(super) const READ_WITHIN: Duration = Duration::from_secs(5);

/// How old a matrix may be that another reader has just been shown.
const SHARED_FOR: Duration = Duration::from_millis(400);

/// Open event streams of one coordinator.
const STREAMS_MAX: usize = 100;

/// What handlers share.
#[derive(Debug, Clone)]
pub struct Desk(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    app: Arc<App>,
    shutdown: CancellationToken,
    readers: Semaphore,
    streams: Arc<Semaphore>,
    matrix: Mutex<Option<(Instant, Arc<Matrix>)>>,
}

impl Desk {
    /// A desk.
    #[must_use]
    pub fn new(app: Arc<App>, shutdown: CancellationToken) -> Self {
        Self(Arc::new(Inner {
            app,
            shutdown,
            readers: Semaphore::new(READERS_MAX),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            matrix: Mutex::new(None),
        }))
    }

    /// The coordinator.
    #[must_use]
    pub fn app(&self) -> &Arc<App> {
        &self.0.app
    }

    /// Ends when the coordinator ends.
    #[must_use]
    pub fn shutdown(&self) -> CancellationToken {
        self.0.shutdown.clone()
    }

    /// A place among the event streams; none when all are taken.
    #[must_use]
    pub fn stream(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.streams).try_acquire_owned().ok()
    }

    /// Reads from the database, when its turn comes and within the time there is.
    ///
    /// # Errors
    /// When the database is away, slow, or holds what this version cannot read.
    pub async fn read<T>(
        &self,
        read: impl AsyncFnOnce(&mut PgConnection) -> Result<T, StoreError>,
    ) -> Result<T, Trouble> {
        let reading = async {
            let _turn = self.0.readers.acquire().await.map_err(|_| Trouble::Slow)?;
            let pool = &self.0.app.pool;
            let mut connection = pool.acquire().await.map_err(|error| Trouble::from(StoreError::from(error)))?;
            let mut bounded = store::begin_bounded(&mut connection, READ_WITHIN).await?;
            let answer = read(&mut bounded).await;
            if answer.as_ref().is_err_and(StoreError::is_stale_statement) {
                // The schema was changed under a session that knew the old one. The next reader finds fresh ones.
                drop(bounded);
                drop(connection);
                store::forget_statements(pool).await;
            }
            answer.map_err(Trouble::from)
        };
        tokio::time::timeout(READ_WITHIN, reading).await.unwrap_or(Err(Trouble::Slow))
    }

    /// The matrix of this moment.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub async fn matrix(&self) -> Result<Arc<Matrix>, Trouble> {
        let waiting = self.0.matrix.lock();
        // Who waits for another's reading waits no longer than for an own one.
        let mut shared = tokio::time::timeout(READ_WITHIN, waiting).await.map_err(|_| Trouble::Slow)?;
        if let Some((at, matrix)) = &*shared
            && at.elapsed() < SHARED_FOR
        {
            return Ok(Arc::clone(matrix));
        }
        let fresh = Arc::new(self.read(async |connection: &mut PgConnection| matrix::read(connection).await).await?);
        *shared = Some((monotonic(), Arc::clone(&fresh)));
        Ok(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[tokio::test]
    async fn a_reader_that_gave_up_leaves_no_statement_running_and_the_next_has_no_such_limit() {
        let app = testing::app().await;
        let desk = Desk::new(Arc::clone(&app), CancellationToken::new());
        let limit = |row: Result<String, sqlx::Error>| row.map_err(StoreError::from);
        let bounded = desk
            .read(async |connection: &mut PgConnection| {
                limit(sqlx::query_scalar("show statement_timeout").fetch_one(connection).await)
            })
            .await
            .unwrap();
        assert_eq!(bounded, "5s");
        let free: String = sqlx::query_scalar("show statement_timeout").fetch_one(&app.pool).await.unwrap();
        assert_eq!(free, "0");
        let overdue = desk
            .read(async |connection: &mut PgConnection| {
                sqlx::query("set local statement_timeout = '20ms'").execute(&mut *connection).await?;
                sqlx::query("select pg_sleep(60)").execute(connection).await?;
                Ok(())
            })
            .await
            .unwrap_err();
        assert!(matches!(overdue, Trouble::Slow), "{overdue:?}");
    }
}
