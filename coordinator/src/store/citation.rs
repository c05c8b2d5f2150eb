//! Copies of what incidents and proofs rest on: a day of the log goes, these stay.

use std::time::Duration;

use parallax_decide::observation::ObservationId;
use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use super::{StoreError, offset};

/// How old an observation may be when it is cited: days of the log in which it is looked for. What
/// can still decide anything is younger by far.
const AGE_MAX: Duration = Duration::from_secs(3 * 24 * 3600);

/// Copies observations that are cited now. Those that have a copy keep it. Part of a transaction.
///
/// # Errors
/// When the database refuses.
pub async fn keep(connection: &mut PgConnection, at: Timestamp, ids: &[ObservationId]) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = ids.iter().map(|id| id.0).collect();
    sqlx::query!(
        "insert into cited_observation
             (id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id, duration_us, kind,
              subject, resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts, attempts_connected, detail)
         select id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id, duration_us, kind,
                subject, resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts, attempts_connected, detail
         from observation where id = any($1) and received_at >= $2
         on conflict do nothing",
        &ids,
        offset(at.minus(AGE_MAX))
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Copies what is cited of the rows received in this time and has no copy yet: a second look, before
/// a day goes. Returns how many were missing.
///
/// # Errors
/// When the database refuses.
pub async fn keep_all(connection: &mut PgConnection, from: Timestamp, until: Timestamp) -> Result<u64, StoreError> {
    // Almost always there is none, and then no row of the day is read.
    let missing: Vec<i64> = sqlx::query_scalar!(
        r#"select distinct n.id as "id!" from (
               select observation_id as id from incident_evidence
               union all select resolution_id from plan_proof
               union all select connection_id from plan_proof where connection_id is not null
           ) as n
           where not exists (select from cited_observation c where c.id = n.id)"#
    )
    .fetch_all(&mut *connection)
    .await?;
    if missing.is_empty() {
        return Ok(0);
    }
    let kept = sqlx::query!(
        "insert into cited_observation
             (id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id, duration_us, kind,
              subject, resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts, attempts_connected, detail)
         select id, received_at, observed_at, vantage_id, boot_id, lane, sequence, late, purpose, task_id, duration_us, kind,
                subject, resolver, family, address, port, outcome, stage, addresses, ttl_s, attempts, attempts_connected, detail
         from observation where id = any($1) and received_at >= $2 and received_at < $3
         on conflict do nothing",
        &missing,
        offset(from),
        offset(until)
    )
    .execute(connection)
    .await?;
    Ok(kept.rows_affected())
}
