//! Days of the log. Rows are partitioned by the day of receipt (UTC, the database's clock), so
//! that no clock of an agent can ask for a partition that is not there.

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use time::{Date, Duration, Month, OffsetDateTime};

use super::{StoreError, citation, database_now, figures, offset, timestamp};

/// Days that must exist ahead of today. Two days of grace for whoever has to repair upkeep.
pub const DAYS_AHEAD: i64 = 3;

/// Serialises upkeep between coordinators.
const LOCK_KEY: i64 = 0x7061_7261_0002;

/// Creates today's partition and the following ones where they are missing. Safe at any time and
/// from several coordinators at once. Returns how many were created.
///
/// # Errors
/// When the database refuses.
pub async fn ensure(connection: &mut PgConnection) -> Result<usize, StoreError> {
    let today = offset(database_now(&mut *connection).await?).date();
    ensure_around(connection, today).await
}

/// The same for any day that is called today.
pub(super) async fn ensure_around(connection: &mut PgConnection, today: Date) -> Result<usize, StoreError> {
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

/// How the days of the log stand against their time to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Days {
    /// Days whose time has come, the oldest first.
    pub due: Vec<Date>,
    /// How far the oldest of them is past its time.
    pub behind: std::time::Duration,
}

/// Which days are to go when each row is kept for at least `keep`.
///
/// # Errors
/// When the database refuses.
pub async fn due(connection: &mut PgConnection, keep: std::time::Duration) -> Result<Days, StoreError> {
    let now = offset(database_now(&mut *connection).await?);
    let oldest = now - keep;
    let mut due = all(connection).await?;
    due.retain(|day| end(*day) <= oldest);
    let behind = due.first().and_then(|day| std::time::Duration::try_from(oldest - end(*day)).ok());
    Ok(Days { due, behind: behind.unwrap_or_default() })
}

/// How many days lie between the oldest day of the log and today, both counted; 0: there is none that old.
///
/// # Errors
/// When the database refuses.
pub async fn span(connection: &mut PgConnection) -> Result<u32, StoreError> {
    let today = offset(database_now(&mut *connection).await?).date();
    let oldest = all(connection).await?.first().copied();
    let days = oldest.map_or(0, |oldest| (today - oldest).whole_days() + 1);
    Ok(u32::try_from(days.max(0)).unwrap_or(u32::MAX))
}

/// Whether the hourly figures have all of a day's rows. What is no part of the log any more counts as counted: nobody
/// can read it there.
///
/// # Errors
/// When the database refuses.
pub async fn is_counted(connection: &mut PgConnection, day: Date) -> Result<bool, StoreError> {
    figures::are_counted(connection, start(day), end(day)).await
}

/// Every day there is, also one that was taken out of the log and not dropped yet; the oldest first.
async fn all(connection: &mut PgConnection) -> Result<Vec<Date>, StoreError> {
    let names = sqlx::query_scalar!(
        r#"select c.relname::text as "name!" from pg_class c
           where c.relkind = 'r' and c.relnamespace = (select relnamespace from pg_class where oid = 'observation'::regclass)
             and c.relname ~ '^observation_[0-9]{8}$'"#
    )
    .fetch_all(connection)
    .await?;
    let mut days: Vec<Date> = names.iter().filter_map(|name| day_of(name)).collect();
    days.sort_unstable();
    Ok(days)
}

/// Removes a day of the log: what is cited of it is copied first, then it is taken out of the log
/// without stopping whoever writes or reads, and only then dropped. What was begun before and broken
/// off is taken up where it was. The connection must not be in a transaction.
///
/// # Errors
/// When the database refuses, or somebody keeps the day in use for longer than a few seconds: the
/// next attempt goes on.
pub async fn remove(connection: &mut PgConnection, day: Date) -> Result<(), StoreError> {
    citation::keep_all(&mut *connection, timestamp(start(day)), timestamp(end(day))).await?;
    let name = name(day);
    let attached = sqlx::query_scalar!(
        r#"select i.inhdetachpending as "pending!" from pg_inherits i join pg_class c on c.oid = i.inhrelid
           where i.inhparent = 'observation'::regclass and c.relname = $1"#,
        name
    )
    .fetch_optional(&mut *connection)
    .await?;
    // Whoever waits for a lock stands in the way of everybody behind: rather try again.
    execute(&mut *connection, "set lock_timeout = '2s'".to_owned()).await?;
    match attached {
        // Writers and readers go on meanwhile. Broken off half-way, it is pending.
        Some(false) => {
            execute(&mut *connection, format!("alter table observation detach partition {name} concurrently")).await?;
        }
        Some(true) => {
            execute(&mut *connection, format!("alter table observation detach partition {name} finalize")).await?;
        }
        None => {}
    }
    execute(connection, format!("drop table if exists {name}")).await
}

/// Runs a statement whose names cannot be parameters. All of them are made of digits of a date. It is
/// not prepared: some of these must be alone.
async fn execute(connection: &mut PgConnection, statement: String) -> Result<(), StoreError> {
    sqlx::raw_sql(AssertSqlSafe(statement)).execute(connection).await?;
    Ok(())
}

fn start(day: Date) -> OffsetDateTime {
    day.midnight().assume_utc()
}

fn end(day: Date) -> OffsetDateTime {
    start(day.saturating_add(Duration::days(1)))
}

/// The day that a partition's name says.
fn day_of(name: &str) -> Option<Date> {
    let digits = name.strip_prefix("observation_")?;
    let part = |range: std::ops::Range<usize>| digits.get(range)?.parse::<u16>().ok();
    let month = Month::try_from(u8::try_from(part(4..6)?).ok()?).ok()?;
    Date::from_calendar_date(i32::from(part(0..4)?), month, u8::try_from(part(6..8)?).ok()?).ok()
}

fn name(day: Date) -> String {
    format!("observation_{:04}{:02}{:02}", day.year(), u8::from(day.month()), day.day())
}
