//! Configurations by number, so that history can be read against the configuration of its day.

use parallax_decide::time::Timestamp;
use serde_json::Value;
use sqlx::{Connection, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{StoreError, timestamp};

/// How a configuration was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// At the start of the coordinator.
    Start,
    /// SIGHUP.
    Sighup,
    /// Somebody asked the coordinator.
    Request,
}

impl How {
    /// The word in SQL.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Sighup => "sighup",
            Self::Request => "request",
        }
    }
}

/// Who takes a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taker {
    /// Identity of the coordinator process.
    pub coordinator: Uuid,
    /// Its host.
    pub host: String,
    /// User of the system who ran or asked it.
    pub by: String,
    /// How.
    pub how: How,
}

/// A configuration as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// Everything, without secrets.
    pub content: Value,
    /// What it names, as rows of `configured`.
    pub named: Value,
    /// What judging reads of it.
    pub topology: Value,
}

/// Puts a configuration in force: its number is that of equal content, or a new one. Part of the
/// transaction that replaces `configured`.
///
/// # Errors
/// When the database refuses.
pub async fn put_in_force(connection: &mut PgConnection, content: &Content, taker: &Taker) -> Result<i32, StoreError> {
    // Keys of an object are sorted, and there are no blanks: equal content is equal text.
    let canonical = content.content.to_string();
    // Looked for first: a number that conflicts is used up.
    let number = number_of(&mut *connection, &canonical).await?;
    let number = match number {
        Some(number) => number,
        None => {
            sqlx::query!(
                "insert into config_version (sha256, content, named, topology)
                 values (sha256(convert_to($1, 'UTF8')), $2, $3, $4) on conflict (sha256) do nothing",
                canonical,
                content.content,
                content.named,
                content.topology
            )
            .execute(&mut *connection)
            .await?;
            let number = number_of(&mut *connection, &canonical).await?;
            number.ok_or_else(|| StoreError::content("config_version", "sha256", "new", "is not there"))?
        }
    };
    sqlx::query!(
        "insert into config_in_force (number, coordinator, host, how, by) values ($1, $2, $3, $4, $5)",
        number,
        taker.coordinator,
        taker.host,
        taker.how.word(),
        taker.by
    )
    .execute(&mut *connection)
    .await?;
    note(connection, taker, Some(number), None).await?;
    Ok(number)
}

/// Notes that a configuration was refused; the one before stays in force.
///
/// # Errors
/// When the database refuses.
pub async fn refused(connection: &mut PgConnection, taker: &Taker, error: &str) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await?;
    let number = sqlx::query_scalar!(
        "select number from config_in_force where coordinator = $1 order by id desc limit 1",
        taker.coordinator
    )
    .fetch_optional(&mut *transaction)
    .await?;
    note(&mut transaction, taker, number, Some(error)).await?;
    transaction.commit().await?;
    Ok(())
}

/// A refused configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedReload {
    /// Host of the coordinator that refused it.
    pub host: String,
    /// When.
    pub at: Timestamp,
    /// Version that stays in force there; `None`: none was stored.
    pub number: Option<i32>,
    /// Why, line by line.
    pub error: String,
}

/// Coordinators whose last attempt failed, the newest first, as far as they had another one in force
/// within a month.
///
/// # Errors
/// When the database refuses.
pub async fn refusals(connection: &mut PgConnection) -> Result<Vec<RefusedReload>, StoreError> {
    struct Row {
        host: String,
        at: OffsetDateTime,
        number: Option<i32>,
        error: String,
    }
    let rows = sqlx::query_as!(
        Row,
        r#"select host, at, number, error as "error!" from config_reload r
           where error is not null and at > now() - interval '30 days'
             -- A later start on the same host has taken another one.
             and not exists (select from config_reload o where o.host = r.host and o.at > r.at and o.error is null)
           order by at desc limit 10"#
    )
    .fetch_all(connection)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| RefusedReload { host: row.host, at: timestamp(row.at), number: row.number, error: row.error })
        .collect())
}

/// The configuration that came into force last.
#[derive(Debug, Clone, PartialEq)]
pub struct InForce {
    /// Its number.
    pub number: i32,
    /// Since when.
    pub at: Timestamp,
    /// Host of the coordinator that took it.
    pub host: String,
    /// How: start, sighup or request.
    pub how: String,
    /// User who ran or asked the coordinator.
    pub by: String,
    /// Everything, without secrets.
    pub content: Value,
}

/// The configuration that came into force last; `None`: none ever did.
///
/// # Errors
/// When the database refuses.
pub async fn in_force(connection: &mut PgConnection) -> Result<Option<InForce>, StoreError> {
    let row = sqlx::query!(
        "select f.number, f.at, f.host, f.how, f.by, c.content
         from config_in_force f join config_version c on c.number = f.number order by f.id desc limit 1"
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| InForce {
        number: row.number,
        at: timestamp(row.at),
        host: row.host,
        how: row.how,
        by: row.by,
        content: row.content,
    }))
}

/// An attempt to take a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Host of the coordinator.
    pub host: String,
    /// When.
    pub at: Timestamp,
    /// How: start, sighup or request.
    pub how: String,
    /// Version in force there since or still; `None`: none was stored.
    pub number: Option<i32>,
    /// Why it was refused; `None`: it was taken.
    pub error: Option<String>,
}

/// The last attempt of each coordinator, the newest first, at most ten.
///
/// # Errors
/// When the database refuses.
pub async fn attempts(connection: &mut PgConnection) -> Result<Vec<Attempt>, StoreError> {
    let rows = sqlx::query!("select host, at, how, number, error from config_reload order by at desc limit 10")
        .fetch_all(connection)
        .await?;
    Ok(rows
        .into_iter()
        .map(|row| Attempt {
            host: row.host,
            at: timestamp(row.at),
            how: row.how,
            number: row.number,
            error: row.error,
        })
        .collect())
}

async fn number_of(connection: &mut PgConnection, canonical: &str) -> Result<Option<i32>, StoreError> {
    Ok(sqlx::query_scalar!(
        "select number from config_version where sha256 = sha256(convert_to($1, 'UTF8'))",
        canonical
    )
    .fetch_optional(connection)
    .await?)
}

async fn note(
    connection: &mut PgConnection,
    taker: &Taker,
    number: Option<i32>,
    error: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query!(
        "insert into config_reload (coordinator, host, how, number, error) values ($1, $2, $3, $4, $5)
         on conflict (coordinator) do update set
             at = now(), how = excluded.how, number = excluded.number, error = excluded.error",
        taker.coordinator,
        taker.host,
        taker.how.word(),
        number,
        error
    )
    .execute(connection)
    .await?;
    Ok(())
}
