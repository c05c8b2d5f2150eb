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

#[tokio::test]
async fn a_loop_that_ends_by_itself_ends_the_lease_and_one_that_was_told_to_does_not() {
    let lost = CancellationToken::new();
    let mut loops = tokio::task::JoinSet::new();
    loops.spawn(async { panic!("as by a fault of ours") });
    loops.spawn(std::future::pending());
    super::broken(&mut loops, &lost).await;
    let told = lost.clone();
    loops.spawn(async move { told.cancelled().await });
    let mut waiting = std::pin::pin!(super::broken(&mut loops, &lost));
    assert!(futures_util::poll!(&mut waiting).is_pending());
    lost.cancel();
    tokio::task::yield_now().await;
    assert!(futures_util::poll!(&mut waiting).is_pending());
}

#[tokio::test]
async fn a_lease_that_could_not_be_taken_leaves_no_lock_behind() {
    let app = testing::app().await;
    // Stands for a database that became read-only between the lock and the row.
    sqlx::query("alter table lease add constraint odd check (epoch > 7)").execute(&app.pool).await.unwrap();
    assert!(super::attempt(&app, &CancellationToken::new()).await.is_err());
    until(&app.pool, "select not exists (select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database()))").await;
}
