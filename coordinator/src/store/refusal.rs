//! Messages and observations that were refused, counted by reason.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::StoreError;
use super::vantage::VantageId;

/// Longest detail that is kept, in characters: it quotes what a peer sent.
pub const DETAIL_MAX: usize = 200;

/// One refusal to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Who sent it.
    pub vantage: VantageId,
    /// Word for the kind of fault.
    pub reason: &'static str,
    /// What was wrong with this one, for people.
    pub detail: String,
}

/// Counts refusals.
///
/// # Errors
/// When the database refuses.
pub async fn count(connection: &mut PgConnection, refused: &[Refused]) -> Result<(), StoreError> {
    // One row a key: an upsert may not touch the same row twice.
    let mut sums: BTreeMap<(VantageId, &str), (i64, &str)> = BTreeMap::new();
    for one in refused {
        let sum = sums.entry((one.vantage, one.reason)).or_insert((0, ""));
        *sum = (sum.0 + 1, &one.detail);
    }
    if sums.is_empty() {
        return Ok(());
    }
    let vantages: Vec<i16> = sums.keys().map(|(vantage, _)| vantage.0).collect();
    let reasons: Vec<String> = sums.keys().map(|(_, reason)| (*reason).to_owned()).collect();
    let counts: Vec<i64> = sums.values().map(|(count, _)| *count).collect();
    let details: Vec<String> = sums.values().map(|(_, detail)| storable(detail)).collect();
    sqlx::query!(
        "insert into ingest_refusal as r (vantage_id, reason, count, last_detail)
         select * from unnest($1::smallint[], $2::text[], $3::bigint[], $4::text[])
         on conflict (vantage_id, reason) do update set
             count = r.count + excluded.count, last_at = clock_timestamp(), last_detail = excluded.last_detail",
        &vantages,
        &reasons,
        &counts,
        &details
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Postgres takes no zero byte in a text, and a hostile one shall not fill the table.
fn storable(detail: &str) -> String {
    detail.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(DETAIL_MAX).collect()
}
