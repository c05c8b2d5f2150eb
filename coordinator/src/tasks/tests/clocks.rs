//! Clocks that jump under several coordinators. The lease knows the database's clock for its end and the monotonic
//! clock for how long a holder may trust it; no wall clock of a coordinator has a part in it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::{Config, builtin};
use crate::state::App;
use crate::store::{StoreError, lease};
use crate::{tasks, testing};

const DAY: Duration = Duration::from_secs(86_400);

#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
struct Lease {
    epoch: i64,
    holder: Uuid,
    ends_s: f64,
}

/// The lease when this is true of it. At every look at most one session has its lock.
async fn lease_when(pool: &PgPool, is: impl Fn(&Lease) -> bool) -> Lease {
    loop {
        let locked: i64 = sqlx::query_scalar(
            "select count(*) from pg_locks k join pg_database d on d.oid = k.database
             where d.datname = current_database() and k.locktype = 'advisory' and k.granted and k.objsubid = 1
               and (k.classid::bigint << 32) + k.objid::bigint = 123563833098241",
        )
        .fetch_one(pool)
        .await
        .unwrap();
        assert!(locked <= 1, "two hold the lease");
        let found: Option<Lease> =
            sqlx::query_as("select epoch, holder, extract(epoch from expires_at)::float8 as ends_s from lease")
                .fetch_optional(pool)
                .await
                .unwrap();
        match found.filter(|lease| is(lease)) {
            Some(lease) => return lease,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A jump of the database's clock, as the lease sees it.
async fn jump(pool: &PgPool, hours: i32) {
    sqlx::query("update lease set expires_at = expires_at - make_interval(hours => $1)")
        .bind(hours)
        .execute(pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn clocks_that_jump_give_no_second_holder_and_no_epoch_twice() {
    let options = testing::fresh().await;
    let config = || Config::parse(builtin::DEFAULT, "default").unwrap();
    let mut all: Vec<(Arc<App>, JoinHandle<()>)> = Vec::new();
    let shutdown = CancellationToken::new();
    for _ in 0..3 {
        let app = testing::app_at(options.clone(), config()).await;
        all.push((Arc::clone(&app), tokio::spawn(tasks::run(app, shutdown.clone()))));
    }
    let pool = crate::store::pool(options);
    let first = lease_when(&pool, |_| true).await;
    // Everybody's own clock, a day ahead and a day back: it is renewed as before.
    for ahead in [true, false] {
        for (app, _) in &all {
            let now = app.clock.now();
            app.clock.align(if ahead { now.plus(DAY) } else { now.minus(DAY) });
        }
        let mut last = first.clone();
        for _ in 0..2 {
            last = lease_when(&pool, |now| now.ends_s != last.ends_s).await;
        }
        assert_eq!((last.epoch, last.holder), (first.epoch, first.holder));
    }
    // The database's clock, an hour ahead: for the others the lease is long over. A renewal may come first.
    let taken = loop {
        jump(&pool, 1).await;
        let sought = lease_when(&pool, |now| now.epoch > first.epoch);
        if let Ok(taken) = tokio::time::timeout(Duration::from_millis(400), sought).await {
            break taken;
        }
    };
    let mut connection = pool.acquire().await.unwrap();
    let stale = lease::fence(&mut connection, first.epoch).await.unwrap_err();
    assert!(matches!(stale, StoreError::StaleEpoch { .. }), "{stale}");
    drop(connection);
    // And an hour back, in which moment the holder dies: nobody waits for that hour.
    jump(&pool, -1).await;
    let holder = lease_when(&pool, |now| now.epoch >= taken.epoch).await;
    let (_, dying) = all.iter().find(|(app, _)| app.instance == holder.holder).unwrap();
    dying.abort();
    let next = lease_when(&pool, |now| now.epoch > holder.epoch).await;
    assert_ne!(next.holder, holder.holder);
    shutdown.cancel();
    for (_, running) in all {
        let _ = running.await;
    }
}
