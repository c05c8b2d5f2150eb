//! Days of the log: made ahead of time, and dropped when they have been kept long enough. Hourly
//! figures too, in small steps.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use super::LeaseHeld;
use crate::state::App;
use crate::store::upkeep::{self, Job};
use crate::store::{StoreError, figures, lease, partition};

/// Days are made three ahead, so that an hour's delay, or a day's, harms nothing.
const EVERY: Duration = Duration::from_secs(3600);

/// Pause after a run that failed, or that left something to do.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Days dropped in one run; the next follows soon.
const DAYS_MAX: usize = 100;

/// Pause between two days, and between two steps of the figures: whoever writes comes first.
const BREATH: Duration = Duration::from_millis(200);

/// Rows of the figures removed in one step: far less than a second of work.
const ROWS_MAX: i64 = 5_000;

/// Steps of the figures in one run.
const STEPS_MAX: usize = 500;

/// More than a day behind is worth an error: something keeps upkeep from its work.
const BEHIND_MAX: Duration = Duration::from_secs(24 * 3600);

/// Runs until the lease is lost.
pub async fn run(app: Arc<App>, held: LeaseHeld) {
    loop {
        let pause = tokio::select! {
            pause = work(&app, held.epoch) => pause,
            // A database that hangs must not keep the lease from being taken again.
            () = held.lost.cancelled() => return,
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = app.room.shorten.notified() => {}
            () = held.lost.cancelled() => return,
        }
    }
}

/// One run; returns the pause after it.
async fn work(app: &App, epoch: i64) -> Duration {
    let days =
        async { days(&mut own_session(app).await?, app.room.keep(app.config.load().retain.results), epoch).await }
            .await;
    let days = said(app, Job::Days, days).await;
    let hourly = async { hourly(&mut *app.pool.acquire().await?, app, epoch).await }.await;
    let hourly = said(app, Job::Hourly, hourly).await;
    if days && hourly { EVERY } else { AGAIN_AFTER }
}

/// Notes how a job went. True: it is done for now.
async fn said(app: &App, job: Job, went: Result<Duration, StoreError>) -> bool {
    let (behind, error) = match &went {
        Ok(behind) => (*behind, None),
        Err(error) => (Duration::ZERO, Some(error.to_string())),
    };
    let job_word = job.word();
    if let Some(error) = &error {
        tracing::error!(job = job_word, %error, "upkeep of the database failed; it is tried again in a minute");
    } else if behind > BEHIND_MAX {
        let behind_h = behind.as_secs() / 3600;
        tracing::error!(job = job_word, behind_h, "what should be gone by now is still there; upkeep goes on");
    }
    let noted = async { upkeep::note(&mut *app.pool.acquire().await?, job, behind, error.as_deref()).await };
    if let Err(error) = noted.await {
        tracing::warn!(job = job_word, %error, "how upkeep stands cannot be noted");
    }
    error.is_none() && behind.is_zero()
}

/// A session that no other work gets: its settings are changed, and some statements stand alone.
async fn own_session(app: &App) -> Result<PgConnection, StoreError> {
    Ok(PgConnection::connect_with(&app.pool.connect_options()).await?)
}

/// Makes the coming days, and drops those whose time has come and whose rows are in the hourly figures. Returns how far it is behind in the end.
pub(crate) async fn days(connection: &mut PgConnection, keep: Duration, epoch: i64) -> Result<Duration, StoreError> {
    let made = partition::ensure(&mut *connection).await?;
    if made > 0 {
        tracing::info!(made, "made partitions of the log");
    }
    let due = partition::due(&mut *connection, keep).await?;
    for day in due.due.into_iter().take(DAYS_MAX) {
        check_lease(&mut *connection, epoch).await?;
        if !partition::is_counted(&mut *connection, day).await? {
            // The days behind it wait as well: rows are counted in the order in which they came.
            tracing::warn!(%day, "a day of the log is kept beyond its time: the hourly figures have not counted all of it");
            break;
        }
        partition::remove(&mut *connection, day).await?;
        tracing::info!(%day, "dropped a day of the log, as configured");
        sleep(BREATH).await;
    }
    Ok(partition::due(connection, keep).await?.behind)
}

/// Removes hourly figures whose time has come. Returns how far it is behind in the end.
async fn hourly(connection: &mut PgConnection, app: &App, epoch: i64) -> Result<Duration, StoreError> {
    let Some(keep) = app.config.load().retain.hourly else { return Ok(Duration::ZERO) };
    let before = app.clock.now().minus(keep);
    let mut oldest = None;
    for _ in 0..STEPS_MAX {
        let mut transaction = connection.begin().await?;
        lease::fence(&mut transaction, epoch).await?;
        let (more, still) = figures::forget(&mut transaction, before, ROWS_MAX).await?;
        transaction.commit().await?;
        oldest = still;
        if !more {
            break;
        }
        sleep(BREATH).await;
    }
    Ok(oldest.map_or(Duration::ZERO, |oldest| before.since(oldest)))
}

/// Ends upkeep whose lease has gone. Only a look: what cannot be in a transaction cannot be fenced,
/// and a day that is due is due for every holder.
async fn check_lease(connection: &mut PgConnection, epoch: i64) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    lease::fence(&mut transaction, epoch).await?;
    transaction.rollback().await?;
    Ok(())
}
