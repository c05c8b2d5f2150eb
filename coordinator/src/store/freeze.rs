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
}

/// The stop in force, the oldest first if several people froze; `None`: writes are allowed.
///
/// # Errors
/// When the database refuses.
pub async fn current(connection: &mut PgConnection) -> Result<Option<Freeze>, StoreError> {
    let row = sqlx::query!("select at, by, reason from write_freeze where thawed_at is null order by id limit 1")
        .fetch_optional(connection)
        .await?;
    Ok(row.map(|row| Freeze { since: timestamp(row.at), by: row.by, reason: row.reason }))
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

/// Allows writes again. Returns false when they were allowed already.
///
/// # Errors
/// When the database refuses.
pub async fn thaw(connection: &mut PgConnection, by: &str) -> Result<bool, StoreError> {
    let ended = sqlx::query!(
        "update write_freeze set thawed_at = clock_timestamp(), thawed_by = $1 where thawed_at is null",
        by
    )
    .execute(connection)
    .await?;
    Ok(ended.rows_affected() > 0)
}
