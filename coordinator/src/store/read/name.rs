//! What was measured of one name around a moment.

use std::net::IpAddr;

use parallax_decide::observation::Outcome;
use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use crate::store::{StoreError, offset, timestamp};

/// Facts read for one name.
pub const FACTS_MAX: i64 = 5_000;

/// The newest answer of a resolver for one family at a vantage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// Observation.
    pub id: i64,
    /// Where.
    pub vantage: String,
    /// Resolver that was asked.
    pub resolver: String,
    /// 4 or 6.
    pub family: i16,
    /// When it ended.
    pub at: Timestamp,
    /// How; none: a word of another version.
    pub outcome: Option<Outcome>,
    /// Addresses in answer order.
    pub addresses: Vec<IpAddr>,
    /// TTL, seconds.
    pub ttl_s: Option<i32>,
}

/// The newest answers for a name, received between two times.
///
/// # Errors
/// When the database refuses.
pub async fn resolved(
    connection: &mut PgConnection,
    name: &str,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Resolved>, StoreError> {
    let rows = sqlx::query!(
        r#"select distinct on (vantage, resolver, family) id as "id!", vantage as "vantage!", resolver as "resolver!",
                  family as "family!", at as "at!", outcome as "outcome!", addresses as "addresses: Vec<IpAddr>", ttl_s
           from v_observation
           where received_at > $2 and received_at <= $3 and kind = 'resolution' and subject = $1 and not late
           order by vantage, resolver, family, id desc limit $4"#,
        name,
        offset(from),
        offset(to),
        FACTS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Resolved {
            id: row.id,
            vantage: row.vantage,
            resolver: row.resolver,
            family: row.family,
            at: timestamp(row.at),
            outcome: Outcome::from_word(&row.outcome),
            addresses: row.addresses.unwrap_or_default(),
            ttl_s: row.ttl_s,
        })
        .collect())
}

/// Names of which a verdict was ever stored, at most so many.
///
/// # Errors
/// When the database refuses.
pub async fn known(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"select distinct coalesce(detail ->> 'hostname', name) as "name!" from v_configured
           where kind in ('canary', 'service') order by 1 limit $1"#,
        FACTS_MAX
    )
    .fetch_all(connection)
    .await?)
}
