//! The operator's stop of every write.

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use super::{StoreError, timestamp};

/// A stop in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freeze {
    /// Since when.
    pub since: Timestamp,
    /// Who froze.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Whether no person froze, but the database was found to have gone back: it ends only with a reason.
    pub needs_reason: bool,
}

/// The stop in force: one that needs a reason to end before any other, then the oldest; `None`: writes are allowed.
///
/// # Errors
/// When the database refuses.
pub async fn current(connection: &mut PgConnection) -> Result<Option<Freeze>, StoreError> {
    let row = sqlx::query!(
        r#"select at, by, reason, event_id is not null as "needs_reason!"
           from write_freeze where thawed_at is null order by event_id nulls last, id limit 1"#
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Freeze {
        since: timestamp(row.at),
        by: row.by,
        reason: row.reason,
        needs_reason: row.needs_reason,
    }))
}

/// Stops every write. Returns false when they were stopped already; the first reason stays.
///
/// # Errors
/// When the database refuses.
pub async fn freeze(connection: &mut PgConnection, by: &str, reason: &str) -> Result<bool, StoreError> {
    let made = sqlx::query!(
        "insert into write_freeze (by, reason)
         select $1, $2 where not exists (select from write_freeze where thawed_at is null)",
        by,
        reason
    )
    .execute(connection)
    .await?;
    Ok(made.rows_affected() > 0)
}

/// Allows writes again. Returns false when they were allowed already, or when no reason is given and one is needed.
///
/// # Errors
/// When the database refuses.
pub async fn thaw(connection: &mut PgConnection, by: &str, reason: Option<&str>) -> Result<bool, StoreError> {
    let ended = sqlx::query!(
        "update write_freeze set thawed_at = clock_timestamp(), thawed_by = $1, thaw_reason = $2
         where thawed_at is null
           and ($2::text is not null
                or not exists (select from write_freeze where thawed_at is null and event_id is not null))",
        by,
        reason
    )
    .execute(connection)
    .await?;
    Ok(ended.rows_affected() > 0)
}
