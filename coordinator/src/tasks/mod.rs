//! What runs on the one coordinator that holds the lease.
//!
//! [`run`] takes the lease, starts the loops of `start`, renews, and stops the loops the moment
//! the lease is lost. Each loop is a file of its own here:
//!
//! - [`retention`]: days of the log, made ahead and dropped. [`tally`]: hourly figures.
//! - [`deciding`]: from observations to changed records. One tick of its `engine` calls in this order:
//!   `reader` (log to fold), `detector` (verdicts), `executor` (approved plans to changes, by `errands`
//!   to `drivers` and agents), `verifier` (proof, or the way back), `renewer` (standing pins),
//!   `readings` (what DNS holds), `steward` (incidents), `asker` (evidence that is missing),
//!   `planner` (plans, or why there is none). All of them see the same `moment`.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::PgConnection;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::monotonic;
use crate::installation;
use crate::state::App;
use crate::store::{StoreError, lease, within};

mod asker;
pub mod deciding;
mod detector;
mod drivers;
mod engine;
mod errands;
mod executor;
mod moment;
mod planner;
mod reader;
mod readings;
mod renewer;
pub mod retention;
mod steward;
#[cfg(test)]
mod supervision;
pub mod tally;
#[cfg(test)]
mod tests;
mod verifier;
mod watcher;

/// Pause between renewals: a fifth of the lease's life, so that four may fail.
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// Pause between attempts to take the lease: how fast a killed holder is followed.
const TRY_EVERY: Duration = Duration::from_millis(250);

/// A renewal that takes longer than this counts as failed; the loops stop well before the lease
/// ends for others.
const RENEW_WITHIN: Duration = Duration::from_secs(3);

/// The lease, as the loops see it. Clones are the same lease.
#[derive(Debug, Clone)]
pub struct LeaseHeld {
    /// Pass it to [`lease::fence`] first in every transaction that writes.
    pub epoch: i64,
    /// Ends when the lease is lost or the coordinator stops: every loop must then return.
    pub lost: CancellationToken,
    /// Until when it surely lasts.
    pub term: Term,
}

/// Until when the lease surely lasts, by the monotonic clock. A process that was frozen looks here right
/// before it changes something outside the database: it wakes before it can learn that its lease was
/// taken. Clones are the same term.
#[derive(Debug, Clone)]
pub struct Term(Arc<Mutex<Instant>>);

impl Term {
    /// From the moment at which the lease was asked for.
    #[must_use]
    pub fn from(asked: Instant) -> Self {
        Self(Arc::new(Mutex::new(asked + lease::LIFE)))
    }

    /// Whether it has ended, unless it was renewed without our knowledge.
    #[must_use]
    pub fn is_over(&self) -> bool {
        monotonic() >= *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extend(&self, asked: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = asked + lease::LIFE;
    }
}

/// Starts the loops that run under a lease. A loop is an `async fn run(app, held)` that returns
/// when `held.lost` is cancelled; the lease is given up only after all of them have returned.
fn start(app: &Arc<App>, held: &LeaseHeld) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    loops.spawn(retention::run(Arc::clone(app), held.clone()));
    loops.spawn(tally::run(Arc::clone(app), held.clone()));
    loops.spawn(deciding::run(Arc::clone(app), held.clone()));
    loops
}

/// Takes the lease again and again, and runs the loops while it is held. Returns after `shutdown`.
pub async fn run(app: Arc<App>, shutdown: CancellationToken) {
    let mut said = None;
    while !shutdown.is_cancelled() {
        let error = attempt(&app, &shutdown).await.err().map(|error| error.to_string());
        // Once, and not four times a second while the database is away.
        if let Some(error) = error.as_ref().filter(|error| said.as_ref() != Some(*error)) {
            tracing::warn!(%error, "tasks are not running: no lease");
        }
        said = error;
        tokio::select! {
            () = tokio::time::sleep(TRY_EVERY) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// One try: returns at once when another coordinator holds the lease, else when it is lost.
async fn attempt(app: &Arc<App>, shutdown: &CancellationToken) -> Result<(), StoreError> {
    // The lock lives in this session: it is not given back to the pool while the lease is held.
    let mut connection = app.pool.acquire().await?;
    let begun = monotonic();
    let floor = app.epoch_seen.load(Ordering::Relaxed);
    let acquired = within(RENEW_WITHIN, lease::acquire(&mut connection, app.instance, floor)).await;
    if !matches!(acquired, Ok(None)) {
        // Whatever happens from here on, the session must end with the lock in it. Also after an
        // error: the lock was perhaps taken before it.
        connection.close_on_drop();
    }
    let Some(epoch) = acquired? else {
        let current = within(RENEW_WITHIN, lease::current(&mut connection)).await?;
        app.epoch_seen.fetch_max(current, Ordering::Relaxed);
        return Ok(());
    };
    // Before anything is decided: a database that went back is frozen, and the epoch is remembered before it is used.
    within(RENEW_WITHIN, installation::look(app, &mut connection)).await?;
    app.epoch_seen.fetch_max(epoch, Ordering::Relaxed);
    tracing::info!(epoch, "this coordinator runs the tasks");
    let held = LeaseHeld { epoch, lost: shutdown.child_token(), term: Term::from(begun) };
    let mut loops = start(app, &held);
    let kept = tokio::select! {
        kept = keep(app, &mut connection, &held, begun) => kept,
        // A lease that is kept while nobody decides would look alive, and keep others away.
        () = broken(&mut loops, &held.lost) => Err(StoreError::StaleEpoch { epoch }),
    };
    held.lost.cancel();
    while loops.join_next().await.is_some() {}
    if kept.is_ok() && shutdown.is_cancelled() {
        within(RENEW_WITHIN, lease::release(&mut connection, app.instance, epoch)).await?;
        tracing::info!(epoch, "the lease is given up");
    }
    kept
}

/// Returns when a loop has ended that nobody told to: it panicked, or found the lease gone.
async fn broken(loops: &mut JoinSet<()>, lost: &CancellationToken) {
    let ended = loops.join_next().await;
    if lost.is_cancelled() {
        std::future::pending::<()>().await;
    }
    if let Some(Err(error)) = ended {
        tracing::error!(%error, "a task broke off; the lease is given up");
    }
}

/// Renews until the shutdown (`Ok`), or until the lease is lost.
async fn keep(
    app: &App,
    connection: &mut PgConnection,
    held: &LeaseHeld,
    mut renewed: Instant,
) -> Result<(), StoreError> {
    loop {
        let begun = monotonic();
        let left = lease::LIFE.saturating_sub(renewed.elapsed()).min(RENEW_WITHIN);
        let renewal = lease::renew(connection, app.instance, held.epoch);
        match within(left, renewal).await? {
            Some(now) => app.clock.align(now),
            None => return Err(StoreError::StaleEpoch { epoch: held.epoch }),
        }
        renewed = begun;
        held.term.extend(begun);
        tokio::select! {
            () = tokio::time::sleep(RENEW_EVERY) => {}
            () = held.lost.cancelled() => return Ok(()),
        }
    }
}
