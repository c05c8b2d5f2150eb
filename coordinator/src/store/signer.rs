//! Keys that sign orders, as this installation has used them: what agents may know. The keys themselves lie beside the
//! authority.

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use super::certificate::LATE_DAYS_MAX;
use super::{StoreError, timestamp};

/// How long a coordinator takes at most to see a new key on disk and to tell the agents of it: ten seconds, and room.
/// Seconds.
const TOLD_WITHIN_S: f64 = 60.0;

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignerRow {
    /// Ed25519, 32 bytes.
    pub public_key: Vec<u8>,
    /// Since when it is known.
    pub noted_at: Timestamp,
    /// It is trusted no more.
    pub is_retired: bool,
    /// Vantages that may come back and were not seen since it was noted: their agents have not heard of it.
    pub not_told: i64,
}

/// All of them, the oldest first.
///
/// # Errors
/// When the database refuses.
pub async fn all(connection: &mut PgConnection) -> Result<Vec<SignerRow>, StoreError> {
    let rows = sqlx::query!(
        r#"select s.public_key, s.noted_at, s.retired_at is not null as "is_retired!",
                  (select count(*) from vantage v
                   where v.revoked_at is null and v.retired_at is null
                     and coalesce(v.last_seen_at, '-infinity') < s.noted_at + $1 * interval '1 second'
                     and exists (select from agent_certificate c
                                 where c.vantage_id = v.id and c.revoked_at is null
                                   and c.not_after > clock_timestamp() - make_interval(days => $2))
                     -- Who joined since then was told in the answer.
                     and not exists (select from agent_certificate c
                                     where c.vantage_id = v.id and c.how = 'join' and c.recorded_at > s.noted_at + $1 * interval '1 second'))
                      as "not_told!"
           from signer s order by s.noted_at, s.public_key"#,
        TOLD_WITHIN_S,
        LATE_DAYS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| SignerRow {
            public_key: row.public_key,
            noted_at: timestamp(row.noted_at),
            is_retired: row.is_retired,
            not_told: row.not_told,
        })
        .collect())
}

/// Notes those that are in use; what is known stays as it is.
///
/// # Errors
/// When the database refuses.
pub async fn note(connection: &mut PgConnection, public_keys: &[Vec<u8>]) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into signer (public_key) select * from unnest($1::bytea[]) on conflict do nothing",
        public_keys
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Notes that one is trusted no more.
///
/// # Errors
/// When the database refuses.
pub async fn retire(connection: &mut PgConnection, public_key: &[u8]) -> Result<(), StoreError> {
    sqlx::query!(
        "update signer set retired_at = coalesce(retired_at, clock_timestamp()) where public_key = $1",
        public_key
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Takes these for the keys of this installation, and every other for retired. Call inside a transaction.
///
/// # Errors
/// When the database refuses.
pub async fn reset(connection: &mut PgConnection, public_keys: &[Vec<u8>]) -> Result<(), StoreError> {
    note(&mut *connection, public_keys).await?;
    sqlx::query!(
        "update signer set retired_at = case when public_key = any($1) then null else coalesce(retired_at, clock_timestamp()) end",
        public_keys
    )
    .execute(connection)
    .await?;
    Ok(())
}
