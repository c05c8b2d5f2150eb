//! A database that is ready for use: made and migrated.

use sqlx::PgConnection;

use super::StoreError;
use crate::error::{Exit, Failure};

/// Oldest major version of Postgres: `alter table … detach partition … concurrently`, with which a day goes while agents
/// report, is there from this one on. Nothing newer is used.
pub const POSTGRES_MAJOR_MIN: u32 = 14;

/// Refuses a server that is too old, before anything is made there.
///
/// # Errors
/// When it is, or does not say how old it is.
pub async fn check_version(connection: &mut PgConnection) -> Result<(), Failure> {
    let number: i32 = sqlx::query_scalar!(r#"select current_setting('server_version_num')::integer as "number!""#)
        .fetch_one(connection)
        .await
        .map_err(|error| unreadable(error.into()))?;
    too_old(number).map_or(Ok(()), Err)
}

/// What is to be said of a server with this `server_version_num`, if it is too old: 130014 is 13.14.
fn too_old(number: i32) -> Option<Failure> {
    let (major, minor) = (number / 10_000, number % 10_000);
    let minor = if major < 10 { format!("{}.{}", minor / 100, minor % 100) } else { minor.to_string() };
    if u32::try_from(major).is_ok_and(|major| major >= POSTGRES_MAJOR_MIN) {
        return None;
    }
    Some(
        Failure::new(Exit::Refused, "the database's server is too old")
            .why(format!("it is PostgreSQL {major}.{minor}; {POSTGRES_MAJOR_MIN} or later is needed"))
            .fix("upgrade the server (pg_upgrade, or dump and restore), or use another one; nothing was changed there"),
    )
}

/// Migrations, embedded. They run under an advisory lock: several starts at once are safe.
pub static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!("../migrations");

/// Makes the database `parallax` of the embedded server, if it is not there.
///
/// # Errors
/// When the server refuses.
pub async fn make_database(connection: &mut PgConnection) -> Result<(), StoreError> {
    let there =
        sqlx::query_scalar!(r#"select exists (select from pg_database where datname = 'parallax') as "there!""#);
    if there.fetch_one(&mut *connection).await? {
        return Ok(());
    }
    match sqlx::query!("create database parallax").execute(connection).await {
        Ok(_) => Ok(()),
        // 42P04: somebody else was faster.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P04") => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How a database's schema stands to this program.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Migrations that the database has, by number.
    pub applied: Vec<i64>,
    /// Migrations of this program that it has not.
    pub pending: Vec<i64>,
    /// Migrations that it has and this program does not know: it is newer.
    pub unknown: Vec<i64>,
    /// Migrations that it has in another form: it was made by a build that was never released.
    pub altered: Vec<i64>,
}

impl Standing {
    /// Whether this program must leave the database alone, and why.
    #[must_use]
    pub fn refusal(&self) -> Option<Failure> {
        if let Some(newest) = self.unknown.last() {
            return Some(
                Failure::new(Exit::Refused, "the database is newer than this program")
                    .why(format!("it has migration {newest}, this program ends with {}", newest_known()))
                    .fix(format!(
                        "install the version of parallax that the database was last used with or a later one; this \
                         one ({}) changes nothing there. Going back is restoring a backup (docs/backup.md)",
                        env!("CARGO_PKG_VERSION")
                    )),
            );
        }
        let altered = self.altered.first()?;
        Some(
            Failure::new(Exit::Refused, "the database was made by another build of this program")
                .why(format!("its migration {altered} is not this program's"))
                .fix("use the build that made it, or start with an empty database"),
        )
    }
}

/// Number of the last migration of this program.
fn newest_known() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Compares without changing anything.
///
/// # Errors
/// When the database refuses.
pub async fn standing(connection: &mut PgConnection) -> Result<Standing, StoreError> {
    // The table is the migrator's own, which the checked queries' database does not have.
    let there: bool =
        sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    let rows: Vec<(i64, Vec<u8>)> = if there {
        sqlx::query_as("select version, checksum from _sqlx_migrations where success order by version")
            .fetch_all(connection)
            .await?
    } else {
        Vec::new()
    };
    let mut standing = Standing { applied: rows.iter().map(|(version, _)| *version).collect(), ..Standing::default() };
    for (version, checksum) in &rows {
        match MIGRATIONS.iter().find(|migration| migration.version == *version) {
            None => standing.unknown.push(*version),
            Some(known) if *known.checksum != **checksum => standing.altered.push(*version),
            Some(_) => {}
        }
    }
    let known = MIGRATIONS.iter().map(|migration| migration.version);
    standing.pending = known.filter(|version| !standing.applied.contains(version)).collect();
    Ok(standing)
}

/// Brings the schema up to this program's version, under a lock: others that start meanwhile wait. What a killed
/// program had begun is rolled back by Postgres. Returns the migrations that were applied.
///
/// # Errors
/// When a migration fails, or the schema is of a newer program; then nothing is changed.
pub async fn migrate(connection: &mut PgConnection) -> Result<Vec<i64>, Failure> {
    check_version(connection).await?;
    let before = standing(connection).await.map_err(unreadable)?;
    if let Some(refusal) = before.refusal() {
        return Err(refusal);
    }
    MIGRATIONS.run(&mut *connection).await.map_err(|error| {
        Failure::new(Exit::Failed, "the database's schema cannot be brought up to date")
            .why(error)
            .fix("nothing of the failed step is left in the database: see its log, remove the cause, start again")
    })?;
    Ok(before.pending)
}

/// Checks the schema without changing it.
///
/// # Errors
/// When it is not this program's.
pub async fn check_schema(connection: &mut PgConnection) -> Result<(), Failure> {
    check_version(connection).await?;
    let standing = standing(connection).await.map_err(unreadable)?;
    match (standing.refusal(), standing.pending.first()) {
        (Some(refusal), _) => Err(refusal),
        (None, None) => Ok(()),
        (None, Some(first)) => Err(Failure::new(Exit::Refused, "the database is older than this program")
            .why(format!("migrations from {first} on are missing"))
            .fix("parallax migrate, or start without --no-migrate")),
    }
}

fn unreadable(error: StoreError) -> Failure {
    Failure::new(Exit::Unreachable, "the database's schema cannot be read").why(error).fix("see the database's log")
}

#[cfg(test)]
mod tests;
