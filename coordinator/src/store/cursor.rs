//! How far each agent's numbering is stored. The cursor moves in the transaction that stores the
//! rows, so that a redelivery finds its numbers taken.

use std::collections::BTreeMap;

use parallax_decide::observation::Lane;
use sqlx::PgConnection;
use uuid::Uuid;

use super::StoreError;
use super::vantage::VantageId;

/// One numbering: a lane of one start of one agent.
pub type Numbering = (VantageId, Uuid, Lane);

/// A range of numbers that never arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Whose.
    pub numbering: Numbering,
    /// First missing number.
    pub first: i64,
    /// Last missing number.
    pub last: i64,
}

/// Reads and locks the cursors of these numberings, making new ones at 0. Rows are locked in key
/// order, so that two transactions cannot wait for each other.
///
/// # Errors
/// When the database refuses.
pub async fn lock(
    connection: &mut PgConnection,
    numberings: &[Numbering],
) -> Result<BTreeMap<Numbering, i64>, StoreError> {
    let found = lock_known(connection, numberings).await?;
    let missing: Vec<&Numbering> = numberings.iter().filter(|one| !found.contains_key(one)).collect();
    if missing.is_empty() {
        return Ok(found);
    }
    // The first batch of a start in its lane. The conflict is left for two coordinators in the same moment.
    let (vantages, starts, lanes) = columns(missing.into_iter());
    sqlx::query!(
        "insert into agent_cursor (vantage_id, boot_id, lane, last_sequence)
         select v, b, l, 0 from unnest($1::smallint[], $2::uuid[], $3::text[]) as n(v, b, l) order by v, b, l
         on conflict do nothing",
        &vantages,
        &starts,
        &lanes
    )
    .execute(&mut *connection)
    .await?;
    lock_known(connection, numberings).await
}

async fn lock_known(
    connection: &mut PgConnection,
    numberings: &[Numbering],
) -> Result<BTreeMap<Numbering, i64>, StoreError> {
    let (vantages, starts, lanes) = columns(numberings.iter());
    let rows = sqlx::query!(
        "select c.vantage_id, c.boot_id, c.lane, c.last_sequence
         from agent_cursor c
         join unnest($1::smallint[], $2::uuid[], $3::text[]) as n(v, b, l)
           on c.vantage_id = n.v and c.boot_id = n.b and c.lane = n.l
         order by c.vantage_id, c.boot_id, c.lane
         for update of c",
        &vantages,
        &starts,
        &lanes
    )
    .fetch_all(connection)
    .await?;
    let mut cursors = BTreeMap::new();
    for row in rows {
        let lane = Lane::from_word(&row.lane).ok_or_else(|| {
            StoreError::content("agent_cursor", "lane", row.boot_id, format!("'{}' is no lane", row.lane))
        })?;
        cursors.insert((VantageId(row.vantage_id), row.boot_id, lane), row.last_sequence);
    }
    Ok(cursors)
}

/// Moves cursors forward.
///
/// # Errors
/// When the database refuses.
pub async fn advance(connection: &mut PgConnection, cursors: &BTreeMap<Numbering, i64>) -> Result<(), StoreError> {
    let (vantages, starts, lanes) = columns(cursors.keys());
    let last: Vec<i64> = cursors.values().copied().collect();
    sqlx::query!(
        "update agent_cursor c set last_sequence = n.last, updated_at = clock_timestamp()
         from unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[]) as n(v, b, l, last)
         where c.vantage_id = n.v and c.boot_id = n.b and c.lane = n.l and c.last_sequence < n.last",
        &vantages,
        &starts,
        &lanes,
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
    let (vantages, starts, lanes) = columns(gaps.iter().map(|gap| &gap.numbering));
    let first: Vec<i64> = gaps.iter().map(|gap| gap.first).collect();
    let last: Vec<i64> = gaps.iter().map(|gap| gap.last).collect();
    sqlx::query!(
        "insert into observation_gap (vantage_id, boot_id, lane, first_sequence, last_sequence)
         select * from unnest($1::smallint[], $2::uuid[], $3::text[], $4::bigint[], $5::bigint[])
         on conflict do nothing",
        &vantages,
        &starts,
        &lanes,
        &first,
        &last
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn columns<'a>(numberings: impl Iterator<Item = &'a Numbering>) -> (Vec<i16>, Vec<Uuid>, Vec<String>) {
    let (mut vantages, mut starts, mut lanes) = (Vec::new(), Vec::new(), Vec::new());
    for (vantage, boot, lane) in numberings {
        vantages.push(vantage.0);
        starts.push(*boot);
        lanes.push(lane.word().to_owned());
    }
    (vantages, starts, lanes)
}
