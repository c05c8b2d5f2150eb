//! The loop that decides: an engine's tick whenever agents said something new, an errand came back,
//! or a moment has passed.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::LeaseHeld;
use super::drivers;
use super::engine::Engine;
use crate::clock::monotonic;
use crate::state::App;
use crate::store::StoreError;
use crate::store::commit::OBSERVATIONS_CHANNEL;

/// Shortest pause between two ticks: many small batches are folded together.
const TICK_GAP: Duration = Duration::from_millis(50);

/// A tick over thousands of vantages takes a while; the pause after it is so many times that, so that deciding leaves most
/// of a processor to the streams.
const TICK_REST: u32 = 3;

/// The longest such pause: what is decided must not become old.
const TICK_REST_MAX: Duration = Duration::from_secs(2);

/// Longest pause: time alone changes verdicts too.
const TICK_EVERY: Duration = Duration::from_millis(250);

/// Longest pause after errors; it doubles from [`TICK_EVERY`].
const TICK_AFTER_ERROR_MAX: Duration = Duration::from_secs(5);

/// Runs until the lease is lost.
pub async fn run(app: Arc<App>, held: LeaseHeld) {
    tokio::select! {
        () = decide(&app, &held) => {}
        () = held.lost.cancelled() => {}
    }
}

/// Returns only when another coordinator has taken over.
async fn decide(app: &Arc<App>, held: &LeaseHeld) {
    let mut engine = Engine::new(Arc::clone(app), drivers::configured(app), held.epoch, held.term.clone());
    let news = Arc::new(Notify::new());
    let _listening = AbortOnDropHandle::new(tokio::spawn(listen(Arc::clone(app), Arc::clone(&news))));
    let mut failures = 0_u32;
    loop {
        let begun = monotonic();
        match engine.tick().await {
            Ok(again) => {
                if failures > 0 {
                    tracing::info!(failures, "deciding again, rebuilt from the log");
                    failures = 0;
                }
                let took = begun.elapsed();
                sleep(if again { TICK_GAP } else { (took * TICK_REST).clamp(TICK_GAP, TICK_REST_MAX) }).await;
                if !again {
                    tokio::select! {
                        () = news.notified() => {}
                        () = engine.errand() => {}
                        () = sleep(TICK_EVERY.saturating_sub(TICK_GAP)) => {}
                    }
                }
            }
            Err(error @ StoreError::StaleEpoch { .. }) => {
                tracing::warn!(%error, "this coordinator decides nothing more");
                return;
            }
            Err(error) => {
                if failures == 0 {
                    tracing::error!(%error, "nothing is decided until the database works again");
                }
                sleep(TICK_EVERY.saturating_mul(1 << failures.min(8)).min(TICK_AFTER_ERROR_MAX)).await;
                failures = failures.saturating_add(1);
            }
        }
    }
}

/// Tells of commits. When it cannot listen, the timer alone drives the ticks.
async fn listen(app: Arc<App>, news: Arc<Notify>) {
    loop {
        match listen_once(&app, &news).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "cannot listen for commits; the timer drives the ticks"),
        }
        sleep(TICK_AFTER_ERROR_MAX).await;
    }
}

async fn listen_once(app: &App, news: &Notify) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(&app.pool).await?;
    listener.listen(OBSERVATIONS_CHANNEL).await?;
    loop {
        // `None`: the connection was lost and will be made anew at the next call.
        listener.try_recv().await?;
        news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Its sessions that listen, cut off; how many there were.
    async fn cut_off(app: &App) -> usize {
        let cut: Vec<bool> = sqlx::query_scalar(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen%'",
        )
        .fetch_all(&app.pool)
        .await
        .unwrap();
        cut.len()
    }

    #[tokio::test]
    async fn b88_what_is_told_while_the_listener_is_cut_off_is_looked_for_all_the_same() {
        let app = testing::app().await;
        let news = Arc::new(Notify::new());
        let _listening = AbortOnDropHandle::new(tokio::spawn(listen(Arc::clone(&app), Arc::clone(&news))));
        for _ in 0..20 {
            while cut_off(&app).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Told to nobody. The loss of the session is what makes the loop look again; what is told after
            // that look and before the next session listens, it finds by its timer.
            sqlx::query("select pg_notify($1, '1')").bind(OBSERVATIONS_CHANNEL).execute(&app.pool).await.unwrap();
            news.notified().await;
        }
    }
}
