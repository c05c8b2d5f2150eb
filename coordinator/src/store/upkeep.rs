//! How the database's upkeep stands, for metrics and people.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use sqlx::PgConnection;

use super::{StoreError, timestamp};

/// A job of upkeep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    /// Days of the log: made ahead, dropped when their time has come.
    Days,
    /// Hourly figures: removed when their time has come.
    Hourly,
    /// The log counted into hourly figures.
    Figures,
}

impl Job {
    /// The word in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Days => "days",
            Self::Hourly => "hourly",
            Self::Figures => "figures",
        }
    }
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Word of the job.
    pub job: String,
    /// Last attempt that ended well.
    pub done_at: Option<Timestamp>,
    /// How far it is behind.
    pub behind: Duration,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// Notes an attempt.
///
/// # Errors
/// When the database refuses.
pub async fn note(
    connection: &mut PgConnection,
    job: Job,
    behind: Duration,
    error: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into upkeep as u (what, ran_at, done_at, behind_s, error)
         values ($1, clock_timestamp(), case when $3::text is null then clock_timestamp() end, $2, $3)
         on conflict (what) do update set
             ran_at = excluded.ran_at, done_at = coalesce(excluded.done_at, u.done_at), behind_s = excluded.behind_s,
             error = excluded.error",
        job.word(),
        i64::try_from(behind.as_secs()).unwrap_or(i64::MAX),
        error
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// How every job stands.
///
/// # Errors
/// When the database refuses.
pub async fn standing(connection: &mut PgConnection) -> Result<Vec<Standing>, StoreError> {
    let rows =
        sqlx::query!("select what, done_at, behind_s, error from upkeep order by what").fetch_all(connection).await?;
    Ok(rows
        .into_iter()
        .map(|row| Standing {
            job: row.what,
            done_at: row.done_at.map(timestamp),
            behind: Duration::from_secs(u64::try_from(row.behind_s).unwrap_or(0)),
            error: row.error,
        })
        .collect())
}

/// Space that the log and everything else take on the database's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes of all days of the log, with indexes.
    pub log: i64,
    /// Days of the log there are, those ahead as well.
    pub days: i64,
    /// Bytes of the whole database.
    pub database: i64,
}

/// Measures the space.
///
/// # Errors
/// When the database refuses.
pub async fn space(connection: &mut PgConnection) -> Result<Space, StoreError> {
    let row = sqlx::query!(
        r#"select coalesce(sum(pg_total_relation_size(i.inhrelid)), 0)::bigint as "log!", count(*) as "days!",
                  pg_database_size(current_database()) as "database!"
           from pg_inherits i where i.inhparent = 'observation'::regclass"#
    )
    .fetch_one(connection)
    .await?;
    Ok(Space { log: row.log, days: row.days, database: row.database })
}
