//! Days of the log. Rows are partitioned by the day of receipt (UTC, the database's clock), so
//! that no clock of an agent can ask for a partition that is not there.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use time::{Date, Duration};

use super::{StoreError, database_now, offset};

/// Days that must exist ahead of today. Two days of grace for whoever has to repair upkeep.
const DAYS_AHEAD: i64 = 3;

/// Serialises upkeep between coordinators.
const LOCK_KEY: i64 = 0x7061_7261_0002;

/// Creates today's partition and the following ones where they are missing. Safe at any time and
/// from several coordinators at once. Returns how many were created.
///
/// # Errors
/// When the database refuses.
pub async fn ensure(connection: &mut PgConnection) -> Result<usize, StoreError> {
    let today = offset(database_now(&mut *connection).await?).date();
    // Yesterday too: a commit that began before midnight may end after it.
    let mut days: Vec<Date> = (-1..=DAYS_AHEAD).filter_map(|n| today.checked_add(Duration::days(n))).collect();
    let existing = existing(&mut *connection).await?;
    days.retain(|day| !existing.contains(&name(*day)));
    if days.is_empty() {
        return Ok(0);
    }
    let mut transaction = connection.begin().await?;
    sqlx::query!("select pg_advisory_xact_lock($1)", LOCK_KEY).execute(&mut *transaction).await?;
    // Creating takes a short exclusive lock; better to try again later than to stall the ingest.
    sqlx::query!("set local lock_timeout = '5s'").execute(&mut *transaction).await?;
    for day in &days {
        let next = day.saturating_add(Duration::days(1));
        let (name, day) = (name(*day), *day);
        // Names and bounds cannot be parameters. All of them are made of digits of a date.
        let statement = format!(
            "create table if not exists {name} partition of observation
             for values from ('{day} 00:00:00+00') to ('{next} 00:00:00+00')"
        );
        sqlx::query(AssertSqlSafe(statement)).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(days.len())
}

/// The partitions there are, by name.
///
/// # Errors
/// When the database refuses.
pub async fn existing(connection: &mut PgConnection) -> Result<Vec<String>, StoreError> {
    Ok(sqlx::query_scalar!(
        r#"select c.relname::text as "name!"
           from pg_inherits i join pg_class c on c.oid = i.inhrelid
           where i.inhparent = 'observation'::regclass
           order by c.relname"#
    )
    .fetch_all(connection)
    .await?)
}

fn name(day: Date) -> String {
    format!("observation_{:04}{:02}{:02}", day.year(), u8::from(day.month()), day.day())
}
