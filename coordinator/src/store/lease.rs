//! Exactly one coordinator runs the tasks.
//!
//! Two things make the lease: a session's advisory lock, which Postgres gives up the moment the
//! holder's connection ends (so a killed holder is followed at once), and a row with an expiry,
//! which catches a holder that hangs with its connection open. The row's epoch rises with each
//! take-over; every write of a task carries it and [`fence`] refuses a stale one.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{StoreError, timestamp};

/// Life of the lease without renewal.
pub const LIFE: Duration = Duration::from_secs(5);

/// Key of the advisory lock.
const LOCK_KEY: i64 = 0x7061_7261_0001;

/// Tries to take the lease on this session, which must then be kept for renewals. `None`: another
/// one holds it. A holder whose lease has expired is cut from its session, so that a next try
/// succeeds.
///
/// `floor` is the highest epoch that this coordinator knows of: a standby that was promoted may lack the
/// last take-over, and an epoch that was used is never used again.
///
/// # Errors
/// When the database refuses.
pub async fn acquire(connection: &mut PgConnection, holder: Uuid, floor: i64) -> Result<Option<i64>, StoreError> {
    let locked = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, LOCK_KEY)
        .fetch_one(&mut *connection)
        .await?;
    if !locked {
        evict_expired(connection).await?;
        return Ok(None);
    }
    let epoch = sqlx::query_scalar!(
        "insert into lease as l (name, holder, epoch, expires_at)
         values ('tasks', $1, $3::bigint + 1, clock_timestamp() + $2 * interval '1 second')
         on conflict (name) do update set
             holder = excluded.holder, epoch = greatest(l.epoch, $3::bigint) + 1, expires_at = excluded.expires_at
         returning epoch",
        holder,
        LIFE.as_secs_f64(),
        floor
    )
    .fetch_one(connection)
    .await?;
    Ok(Some(epoch))
}

/// Epoch of the lease as it stands; 0 before the first.
///
/// # Errors
/// When the database refuses.
pub async fn current(connection: &mut PgConnection) -> Result<i64, StoreError> {
    let epoch = sqlx::query_scalar!("select epoch from lease where name = 'tasks'").fetch_optional(connection).await?;
    Ok(epoch.unwrap_or(0))
}

/// Extends the lease and returns the database's time. `None`: it was taken over.
///
/// # Errors
/// When the database refuses.
pub async fn renew(connection: &mut PgConnection, holder: Uuid, epoch: i64) -> Result<Option<Timestamp>, StoreError> {
    let now = sqlx::query_scalar!(
        r#"update lease set expires_at = clock_timestamp() + $3 * interval '1 second'
           where name = 'tasks' and holder = $1 and epoch = $2
           returning clock_timestamp() as "now!""#,
        holder,
        epoch,
        LIFE.as_secs_f64()
    )
    .fetch_optional(connection)
    .await?;
    Ok(now.map(timestamp))
}

/// Gives the lease up, so that another coordinator need not wait.
///
/// # Errors
/// When the database refuses.
pub async fn release(connection: &mut PgConnection, holder: Uuid, epoch: i64) -> Result<(), StoreError> {
    sqlx::query!(
        "update lease set expires_at = clock_timestamp() where name = 'tasks' and holder = $1 and epoch = $2",
        holder,
        epoch
    )
    .execute(&mut *connection)
    .await?;
    sqlx::query_scalar!("select pg_advisory_unlock($1)", LOCK_KEY).fetch_one(connection).await?;
    Ok(())
}

/// Call first in every transaction that writes for a task: it fails when the epoch is stale, and
/// keeps the lease from changing hands until the transaction ends.
///
/// # Errors
/// [`StoreError::StaleEpoch`], or when the database refuses.
pub async fn fence(connection: &mut PgConnection, epoch: i64) -> Result<(), StoreError> {
    let current = sqlx::query_scalar!("select epoch from lease where name = 'tasks' for share")
        .fetch_optional(connection)
        .await?;
    if current == Some(epoch) { Ok(()) } else { Err(StoreError::StaleEpoch { epoch }) }
}

/// Ends the session of a holder that did not renew in time, and the transactions in which it was
/// frozen: their fence keeps the lease's row where it is.
async fn evict_expired(connection: &mut PgConnection) -> Result<(), StoreError> {
    let evicted = sqlx::query_scalar!(
        r#"select pg_terminate_backend(k.pid) as "done!"
           from pg_locks k join pg_database d on d.oid = k.database
           left join pg_stat_activity a on a.pid = k.pid
           where k.granted and d.datname = current_database() and k.pid <> pg_backend_pid()
             and ((k.locktype = 'advisory' and k.objsubid = 1 and (k.classid::bigint << 32) + k.objid::bigint = $1)
                  or (k.locktype = 'relation' and k.relation = 'lease'::regclass
                      and a.state = 'idle in transaction' and a.state_change < clock_timestamp() - interval '1 second'))
             and exists (select from lease where name = 'tasks' and expires_at < clock_timestamp())"#,
        LOCK_KEY
    )
    .fetch_all(connection)
    .await?;
    if !evicted.is_empty() {
        tracing::warn!("the holder of the lease did not renew it; its session is ended");
    }
    Ok(())
}
