//! Counts the log and the verdicts into hourly figures.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::LeaseHeld;
use crate::clock::monotonic;
use crate::state::App;
use crate::store::figures::{self, Step};
use crate::store::upkeep::{self, Job};
use crate::store::{StoreError, forget_statements, lease};

/// Pause when there is nothing more to count: how far the figures may be behind the log.
const EVERY: Duration = Duration::from_secs(20);

/// Shortest pause between two steps of a backlog: deciding and storing come first.
const BREATH: Duration = Duration::from_millis(100);

/// A step takes a while where much is stored; the pause after it is so many times that, so that counting takes a quarter of
/// the database's processor at most and catches up when less is stored.
const REST: u32 = 3;

/// The longest such pause.
const REST_MAX: Duration = Duration::from_secs(5);

/// Pause after an error.
const AFTER_ERROR: Duration = Duration::from_secs(10);

/// Runs until the lease is lost, whatever it is at then: a database that hangs must not keep the lease from being taken
/// again.
pub async fn run(app: Arc<App>, held: LeaseHeld) {
    tokio::select! {
        () = count_on(&app, held.epoch) => {}
        () = held.lost.cancelled() => {}
    }
}

async fn count_on(app: &App, epoch: i64) {
    let mut failed = false;
    loop {
        let begun = monotonic();
        let counted = count(app, epoch).await;
        let pause = match counted {
            Ok(true) => (begun.elapsed() * REST).clamp(BREATH, REST_MAX),
            Ok(false) => EVERY,
            Err(_) => AFTER_ERROR,
        };
        if counted.as_ref().is_err_and(StoreError::is_stale_statement) {
            forget_statements(&app.pool).await;
        }
        if let Some(error) = counted.as_ref().err().filter(|_| !failed) {
            tracing::error!(%error, "hourly figures are not counted; they go on where they were");
            note(app, Duration::ZERO, Some(&error.to_string())).await;
        }
        failed = counted.is_err();
        sleep(pause).await;
    }
}

/// One step of each kind. True: there is more.
pub(crate) async fn count(app: &App, epoch: i64) -> Result<bool, StoreError> {
    let mut transaction = app.pool.begin().await?;
    lease::fence(&mut transaction, epoch).await?;
    let Step { more, behind } = figures::count_log(&mut transaction).await?;
    transaction.commit().await?;
    let mut transaction = app.pool.begin().await?;
    lease::fence(&mut transaction, epoch).await?;
    let hours = figures::count_hour(&mut transaction, app.clock.now()).await?;
    transaction.commit().await?;
    note(app, behind, None).await;
    Ok(more || hours)
}

async fn note(app: &App, behind: Duration, error: Option<&str>) {
    let noted = async { upkeep::note(&mut *app.pool.acquire().await?, Job::Figures, behind, error).await };
    if let Err(error) = noted.await {
        tracing::debug!(%error, "how the figures stand cannot be noted");
    }
}
