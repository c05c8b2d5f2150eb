//! How far each agent's numbering is stored. The cursor moves in the transaction that stores the
//! rows, so that a redelivery finds its numbers taken.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::vantage::VantageId;

/// One start of one agent.
pub type Boot = (VantageId, Uuid);

/// A range of numbers that never arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Whose.
    pub boot: Boot,
    /// First missing number.
    pub first: i64,
    /// Last missing number.
    pub last: i64,
}

/// Reads and locks the cursors of these starts, making new ones at 0. Rows are locked in key
/// order, so that two transactions cannot wait for each other.
///
/// # Errors
/// When the database refuses.
pub async fn lock(connection: &mut PgConnection, boots: &[Boot]) -> Result<BTreeMap<Boot, i64>, StoreError> {
    let (vantages, starts) = columns(boots.iter());
    sqlx::query!(
        "insert into agent_cursor (vantage_id, boot_id, last_sequence)
         select v, b, 0 from unnest($1::smallint[], $2::uuid[]) as n(v, b) order by v, b
         on conflict do nothing",
        &vantages,
        &starts
    )
    .execute(&mut *connection)
    .await?;
    let rows = sqlx::query!(
        "select c.vantage_id, c.boot_id, c.last_sequence
         from agent_cursor c join unnest($1::smallint[], $2::uuid[]) as n(v, b) on c.vantage_id = n.v and c.boot_id = n.b
         order by c.vantage_id, c.boot_id
         for update of c",
        &vantages,
        &starts
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| ((VantageId(row.vantage_id), row.boot_id), row.last_sequence)).collect())
}

/// Moves cursors forward.
///
/// # Errors
/// When the database refuses.
pub async fn advance(connection: &mut PgConnection, cursors: &BTreeMap<Boot, i64>) -> Result<(), StoreError> {
    let (vantages, starts) = columns(cursors.keys());
    let last: Vec<i64> = cursors.values().copied().collect();
    sqlx::query!(
        "update agent_cursor c set last_sequence = n.last, updated_at = clock_timestamp()
         from unnest($1::smallint[], $2::uuid[], $3::bigint[]) as n(v, b, last)
         where c.vantage_id = n.v and c.boot_id = n.b and c.last_sequence < n.last",
        &vantages,
        &starts,
        &last
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Records numbers that never arrived.
///
/// # Errors
/// When the database refuses.
pub async fn record_gaps(connection: &mut PgConnection, gaps: &[Gap]) -> Result<(), StoreError> {
    if gaps.is_empty() {
        return Ok(());
    }
    let (vantages, starts) = columns(gaps.iter().map(|gap| &gap.boot));
    let first: Vec<i64> = gaps.iter().map(|gap| gap.first).collect();
    let last: Vec<i64> = gaps.iter().map(|gap| gap.last).collect();
    sqlx::query!(
        "insert into observation_gap (vantage_id, boot_id, first_sequence, last_sequence)
         select * from unnest($1::smallint[], $2::uuid[], $3::bigint[], $4::bigint[])
         on conflict do nothing",
        &vantages,
        &starts,
        &first,
        &last
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn columns<'a>(boots: impl Iterator<Item = &'a Boot>) -> (Vec<i16>, Vec<Uuid>) {
    boots.map(|(vantage, boot)| (vantage.0, *boot)).unzip()
}
