//! The newest path to each address, as each vantage found it.

use std::net::IpAddr;

use parallax_decide::observation::Outcome;
use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::PgConnection;

use crate::store::{StoreError, offset, timestamp};

/// Paths one incident shows.
const PATHS_MAX: i64 = 32;

/// A hop of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hop {
    /// How many routers away.
    pub ttl: u64,
    /// Who answered; none: nobody.
    pub address: Option<IpAddr>,
    /// How long the answer took, in microseconds.
    pub rtt_us: Option<u64>,
}

/// A path that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRow {
    /// Observation.
    pub observation: i64,
    /// Where from.
    pub vantage: String,
    /// When the search ended.
    pub at: Timestamp,
    /// Where to.
    pub address: IpAddr,
    /// How it ended; none: a word of another version.
    pub outcome: Option<Outcome>,
    /// The hops in order.
    pub hops: Vec<Hop>,
    /// Smallest MTU that is known, in bytes.
    pub mtu: Option<u64>,
}

/// The newest path of each vantage to each of these addresses, received in this time.
///
/// # Errors
/// When the database refuses.
pub async fn newest(
    connection: &mut PgConnection,
    addresses: &[IpAddr],
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<PathRow>, StoreError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let rows = sqlx::query!(
        r#"select distinct on (v.name, o.address)
                  o.id, v.name as vantage, o.observed_at, o.address as "address!: IpAddr", o.outcome,
                  o.detail as "detail: Value"
           from observation o join vantage v on v.id = o.vantage_id
           where o.kind = 'path' and o.address = any($1::text[]::inet[]) and o.received_at between $2 and $3
           order by v.name, o.address, o.id desc
           limit $4"#,
        &addresses,
        offset(from),
        offset(until),
        PATHS_MAX
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let detail = row.detail.unwrap_or_default();
            PathRow {
                observation: row.id,
                vantage: row.vantage,
                at: timestamp(row.observed_at),
                address: row.address,
                outcome: Outcome::from_word(&row.outcome),
                hops: detail.get("hops").and_then(Value::as_array).into_iter().flatten().filter_map(hop).collect(),
                mtu: detail.get("path_mtu").and_then(Value::as_u64),
            }
        })
        .collect())
}

fn hop(value: &Value) -> Option<Hop> {
    Some(Hop {
        ttl: value.get("ttl")?.as_u64()?,
        address: value.get("address").and_then(Value::as_str).and_then(|text| text.parse().ok()),
        rtt_us: value.get("rtt_us").and_then(Value::as_u64),
    })
}
