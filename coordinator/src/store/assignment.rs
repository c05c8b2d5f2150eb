//! The version of each vantage's assignment.

use sqlx::PgConnection;

use super::StoreError;
use super::vantage::VantageId;

/// The version for content of this SHA-256: the stored one if the content is the same, else a higher one.
///
/// # Errors
/// When the database refuses.
pub async fn version(
    connection: &mut PgConnection,
    vantage: VantageId,
    content_sha256: &[u8; 32],
) -> Result<u64, StoreError> {
    // A fleet that comes back has the same assignment as before: reading that costs no write.
    let stored = sqlx::query_scalar!(
        "select version from assignment where vantage_id = $1 and content_sha256 = $2",
        vantage.0,
        content_sha256.as_slice()
    )
    .fetch_optional(&mut *connection)
    .await?;
    if let Some(version) = stored {
        return u64::try_from(version).map_err(|error| StoreError::content("assignment", "version", vantage.0, error));
    }
    let version = sqlx::query_scalar!(
        "insert into assignment as a (vantage_id, version, content_sha256)
         values ($1, extract(epoch from clock_timestamp())::bigint, $2)
         on conflict (vantage_id) do update set
             version = case when a.content_sha256 = excluded.content_sha256 then a.version
                            else greatest(a.version + 1, excluded.version) end,
             changed_at = case when a.content_sha256 = excluded.content_sha256 then a.changed_at
                               else excluded.changed_at end,
             content_sha256 = excluded.content_sha256
         returning version",
        vantage.0,
        content_sha256.as_slice()
    )
    .fetch_one(connection)
    .await?;
    u64::try_from(version).map_err(|error| StoreError::content("assignment", "version", vantage.0, error))
}
