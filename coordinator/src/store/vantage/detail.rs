//! What is known of one vantage, for people.

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::VantageId;
use crate::store::{StoreError, timestamp};

/// How far back gaps are counted, in days.
pub const GAP_DAYS: i32 = 7;

/// Certificates listed at most, the latest.
const CERTIFICATES_MAX: i64 = 10;

/// It.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// When a batch of it was last stored.
    pub stored_at: Option<Timestamp>,
    /// Gaps in its numbering within [`GAP_DAYS`].
    pub gaps: i64,
    /// Observations that never arrived, in those gaps.
    pub missing: i64,
    /// Messages and observations that were refused, ever.
    pub refused: i64,
    /// Names it had before.
    pub former_names: Vec<String>,
    /// Its certificates, the latest first.
    pub certificates: Vec<CertificateRow>,
}

/// A certificate, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRow {
    /// Serial number, hexadecimal.
    pub serial: String,
    /// SHA-256 of its key, hexadecimal.
    pub key_sha256: String,
    /// How it came to be.
    pub how: String,
    /// Valid until.
    pub not_after: Timestamp,
    /// When it was recorded.
    pub recorded_at: Timestamp,
    /// Address it was issued to or first shown from.
    pub remote: Option<String>,
    /// When it was refused for good.
    pub revoked_at: Option<Timestamp>,
}

struct Row {
    serial: String,
    key_sha256: String,
    how: String,
    not_after: OffsetDateTime,
    recorded_at: OffsetDateTime,
    remote: Option<String>,
    revoked_at: Option<OffsetDateTime>,
}

/// Reads it.
///
/// # Errors
/// When the database refuses.
pub async fn read(connection: &mut PgConnection, id: VantageId) -> Result<Detail, StoreError> {
    let counts = sqlx::query!(
        r#"select (select max(updated_at) from agent_cursor where vantage_id = $1) as stored_at,
                  (select count(*) from observation_gap
                   where vantage_id = $1 and noticed_at > now() - make_interval(days => $2)) as "gaps!",
                  (select coalesce(sum(last_sequence - first_sequence + 1), 0)::bigint from observation_gap
                   where vantage_id = $1 and noticed_at > now() - make_interval(days => $2)) as "missing!",
                  (select coalesce(sum(count), 0)::bigint from ingest_refusal where vantage_id = $1) as "refused!""#,
        id.0,
        GAP_DAYS
    )
    .fetch_one(&mut *connection)
    .await?;
    let former_names = sqlx::query_scalar!(
        "select name from vantage_former_name where vantage_id = $1 order by until desc limit 20",
        id.0
    )
    .fetch_all(&mut *connection)
    .await?;
    let certificates = sqlx::query_as!(
        Row,
        r#"select encode(serial, 'hex') as "serial!", encode(key_sha256, 'hex') as "key_sha256!", how, not_after,
                  recorded_at, remote, revoked_at
           from agent_certificate where vantage_id = $1 order by recorded_at desc limit $2"#,
        id.0,
        CERTIFICATES_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(Detail {
        stored_at: counts.stored_at.map(timestamp),
        gaps: counts.gaps,
        missing: counts.missing,
        refused: counts.refused,
        former_names,
        certificates: certificates
            .into_iter()
            .map(|row| CertificateRow {
                serial: row.serial,
                key_sha256: row.key_sha256,
                how: row.how,
                not_after: timestamp(row.not_after),
                recorded_at: timestamp(row.recorded_at),
                remote: row.remote,
                revoked_at: row.revoked_at.map(timestamp),
            })
            .collect(),
    })
}
