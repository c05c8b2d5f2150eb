//! Whose a key is.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use sqlx::types::Json;
use time::OffsetDateTime;
use uuid::Uuid;

use super::{Row, VantageRow};
use crate::store::StoreError;

struct KeyRow {
    id: i16,
    name: String,
    first_seen_at: Option<OffsetDateTime>,
    last_seen_at: Option<OffsetDateTime>,
    agent_version: Option<String>,
    revoked_at: Option<OffsetDateTime>,
    admitted_at: Option<OffsetDateTime>,
    keys_from: Option<OffsetDateTime>,
    retired_at: Option<OffsetDateTime>,
    labels: Json<BTreeMap<String, String>>,
    last_remote: Option<String>,
    last_coordinator: Option<Uuid>,
    key_revoked: bool,
}

/// The vantage of a key, and whether the key was revoked: of several certificates for it the one with this
/// serial number counts (the two together are a certificate's key), else the latest one. One statement: ten thousand agents ask it when they come back at once.
///
/// # Errors
/// When the database refuses, or holds a name that is none.
pub async fn of_key(
    connection: &mut PgConnection,
    key_sha256: &[u8; 32],
    serial: Option<&[u8]>,
) -> Result<Option<(VantageRow, bool)>, StoreError> {
    let found = sqlx::query_as!(
        KeyRow,
        r#"select v.id, v.name, v.first_seen_at, v.last_seen_at, v.agent_version, v.revoked_at, v.admitted_at, v.keys_from,
                  v.retired_at, v.labels as "labels: Json<BTreeMap<String, String>>", v.last_remote, v.last_coordinator,
                  exists (select from agent_certificate r where r.key_sha256 = $1 and r.revoked_at is not null)
                      as "key_revoked!"
           from agent_certificate c join vantage v on v.id = c.vantage_id
           where c.key_sha256 = $1
           order by (c.serial is not distinct from $2) desc, c.recorded_at desc limit 1"#,
        key_sha256.as_slice(),
        serial
    )
    .fetch_optional(connection)
    .await?;
    let Some(row) = found else { return Ok(None) };
    let key_revoked = row.key_revoked;
    let row = Row {
        id: row.id,
        name: row.name,
        first_seen_at: row.first_seen_at,
        last_seen_at: row.last_seen_at,
        agent_version: row.agent_version,
        revoked_at: row.revoked_at,
        admitted_at: row.admitted_at,
        keys_from: row.keys_from,
        retired_at: row.retired_at,
        labels: row.labels,
        last_remote: row.last_remote,
        last_coordinator: row.last_coordinator,
    };
    Ok(Some((row.try_into()?, key_revoked)))
}
