//! The loop that decides: an engine's tick whenever agents said something new, an errand came back,
//! or a moment has passed.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::sleep;

use super::LeaseHeld;
use super::drivers;
use super::engine::Engine;
use crate::clock::monotonic;
use crate::hub::News;
use crate::state::App;
use crate::store::StoreError;

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
    let mut failures = 0_u32;
    loop {
        let begun = monotonic();
        // From before the tick: what is committed meanwhile is perhaps not in it.
        let mut news = app.hub.news();
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
                        () = observations(&mut news) => {}
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

/// Returns when observations were committed, by whatever coordinator. The relay listens for all of them; while it
/// cannot, the timer alone drives the ticks.
async fn observations(news: &mut broadcast::Receiver<News>) {
    loop {
        match news.recv().await {
            Ok(News::Observations) | Err(RecvError::Lagged(_)) => return,
            Ok(News::Vantages | News::Verdicts | News::Incidents | News::Plans) => {}
            // The hub lives as long as we do.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;
    use tokio_util::task::AbortOnDropHandle;

    use super::*;
    use crate::store::commit::OBSERVATIONS_CHANNEL;
    use crate::{relay, testing};

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
        let mut news = app.hub.news();
        let relay = relay::run(Arc::clone(&app), "one".to_owned(), CancellationToken::new());
        let _listening = AbortOnDropHandle::new(tokio::spawn(relay));
        for _ in 0..20 {
            while cut_off(&app).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // Told to nobody. The loss of the session is what makes the relay look again.
            sqlx::query("select pg_notify($1, '1')").bind(OBSERVATIONS_CHANNEL).execute(&app.pool).await.unwrap();
            observations(&mut news).await;
        }
    }
}
