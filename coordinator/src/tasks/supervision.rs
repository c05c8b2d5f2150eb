//! The lease as the supervisor lives it: taken, lost, taken again, given up.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::testing;

/// Waits for a state of the lease; the test runner's own limit ends a wait that is in vain.
async fn until(pool: &PgPool, condition: &'static str) {
    loop {
        let held: Option<bool> = sqlx::query_scalar(condition).fetch_optional(pool).await.unwrap();
        if held == Some(true) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_lost_lease_is_taken_again_under_a_higher_epoch_and_given_up_in_the_end() {
    let app = testing::app().await;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(super::run(Arc::clone(&app), shutdown.clone()));
    until(&app.pool, "select epoch = 1 and expires_at > clock_timestamp() from lease").await;
    // The session that holds the lock ends, as when Postgres is restarted.
    let ended: Vec<bool> = sqlx::query_scalar(
        "select pg_terminate_backend(k.pid) from pg_locks k join pg_database d on d.oid = k.database
         where k.locktype = 'advisory' and k.granted and d.datname = current_database()",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert!(!ended.is_empty());
    until(&app.pool, "select epoch = 2 and expires_at > clock_timestamp() from lease").await;
    shutdown.cancel();
    running.await.unwrap();
    until(&app.pool, "select epoch = 2 and expires_at <= clock_timestamp() from lease").await;
}
