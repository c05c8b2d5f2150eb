//! Numbers for `/metrics`: few, and each read from the rows it speaks of.

use sqlx::PgConnection;

use crate::store::{StoreError, config_version, upkeep};

/// Kinds and reasons that are listed.
const KINDS_MAX: i64 = 100;

/// Numbers of this moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Open incidents by kind's word.
    pub incidents_open: Vec<(String, i64)>,
    /// Observations settled, stored or refused, ever: numbers of agents less those that never came.
    pub observations: i64,
    /// Observations that never came.
    pub missing: i64,
    /// Refusals by reason's word, ever.
    pub refused: Vec<(String, i64)>,
    /// Plans by purpose and status.
    pub plans: Vec<(String, String, i64)>,
    /// How upkeep stands: job, seconds behind, whether the last attempt failed.
    pub upkeep: Vec<(String, u64, bool)>,
    /// Number of the configuration that came into force last.
    pub configuration: Option<i32>,
    /// Coordinators that refused their newest configuration.
    pub configurations_refused: usize,
}

/// Counts.
///
/// # Errors
/// When the database refuses.
pub async fn counts(connection: &mut PgConnection) -> Result<Counts, StoreError> {
    let incidents_open = sqlx::query!(
        r#"select kind, count(*) as "count!" from incident where closed_at is null group by kind order by kind limit $1"#,
        KINDS_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let settled = sqlx::query!(
        // A sum that does not fit is cut: `/metrics` must answer whatever the rows hold.
        r#"select (select least(coalesce(sum(last_sequence), 0), 9223372036854775807)::bigint
                   from agent_cursor) as "numbered!",
                  (select least(coalesce(sum(last_sequence::numeric - first_sequence + 1), 0), 9223372036854775807)::bigint
                   from observation_gap) as "missing!""#
    )
    .fetch_one(&mut *connection)
    .await?;
    let refused = sqlx::query!(
        r#"select reason, sum(count)::bigint as "count!" from ingest_refusal group by reason order by reason limit $1"#,
        KINDS_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let plans = sqlx::query!(
        r#"select purpose, status, count(*) as "count!" from plan group by purpose, status order by 1, 2 limit $1"#,
        KINDS_MAX
    )
    .fetch_all(&mut *connection)
    .await?;
    let upkeep = upkeep::standing(&mut *connection).await?;
    let configuration = sqlx::query_scalar!("select number from config_in_force order by id desc limit 1")
        .fetch_optional(&mut *connection)
        .await?;
    let configurations_refused = config_version::refusals(connection).await?.len();
    Ok(Counts {
        configuration,
        configurations_refused,
        upkeep: upkeep.into_iter().map(|one| (one.job, one.behind.as_secs(), one.error.is_some())).collect(),
        incidents_open: incidents_open.into_iter().map(|row| (row.kind, row.count)).collect(),
        observations: settled.numbered - settled.missing,
        missing: settled.missing,
        refused: refused.into_iter().map(|row| (row.reason, row.count)).collect(),
        plans: plans.into_iter().map(|row| (row.purpose, row.status, row.count)).collect(),
    })
}
