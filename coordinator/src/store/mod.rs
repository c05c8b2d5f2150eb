//! All SQL. Free functions on `&mut PgConnection`; rows come out as types that cannot be wrong.
//!
//! - [`vantage`], [`assignment`]: who may report, and what each was told to do.
//! - [`token`], [`enrolment`], [`certificate`]: how an agent becomes a vantage. [`order`]: how new an order is.
//!   [`audit`]: what people did.
//! - [`commit`]: one transaction that stores what many agents sent: [`cursor`], [`log`],
//!   [`refusal`], [`condition`].
//! - [`log`]: the log of facts, also read back, in commit order.
//! - [`verdict`], [`incident`], [`plan`], [`freeze`]: what was concluded and done; [`watch`]: when
//!   somebody judged; [`citation`]: copies of what incidents rest on.
//! - [`figures`]: the log and the verdicts counted hour by hour.
//! - [`config_version`]: configurations by number; [`configured`]: what the one in force names.
//! - [`greeting`]: the one statement with which an agent comes. [`listening`]: notices.
//! - [`session`], [`relay`]: which coordinators run and hold which streams; what they hand each other.
//! - [`read`]: what pages, the API and the operator's tool read.
//! - [`servers`]: which server of a cluster takes writes. [`installation`]: which database it is, and whether it
//!   went back. [`setup`]: migrations. [`moving`]: to another database. [`partition`]: days of the log; [`upkeep`]:
//!   how their upkeep stands. [`lease`]: exactly one coordinator runs the tasks.
//!
//! A caller that wants several functions in one transaction begins it and passes it on.

use std::time::Duration;

use parallax_decide::time::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{Connection, Postgres, Transaction};
use time::OffsetDateTime;

pub mod assignment;
pub mod audit;
pub mod certificate;
pub mod citation;
pub mod commit;
pub mod condition;
pub mod config_version;
pub mod configured;
pub mod cursor;
pub mod enrolment;
pub mod figures;
pub mod freeze;
pub mod greeting;
pub mod incident;
pub mod installation;
pub mod lease;
pub mod listening;
pub mod log;
pub mod moving;
pub mod order;
pub mod partition;
pub mod plan;
pub mod read;
pub mod refusal;
pub mod relay;
pub mod servers;
pub mod session;
pub mod setup;
pub mod signer;
#[cfg(test)]
mod tests;
pub mod token;
pub mod upkeep;
pub mod vantage;
pub mod verdict;
pub mod watch;

/// Most connections of one coordinator. The embedded server allows 30 in all.
const CONNECTIONS_MAX: u32 = 12;

/// How long a caller waits for a free connection before it counts as "the database is away".
const ACQUIRE_WITHIN: Duration = Duration::from_secs(5);

/// Longest word with the database. With the test of what comes back to the pool it bounds for how long a server that
/// hangs keeps a place there.
pub const WORD_WITHIN: Duration = Duration::from_secs(5);

/// How often [`forget_statements`] looks for sessions that have come back, and the pause between.
const FORGET_TRIES: u32 = 10;
/// The pause.
const FORGET_PAUSE: Duration = Duration::from_millis(5);

/// A session that hangs inside a transaction (its machine was frozen) is ended by the server after
/// this long: the locks it holds would stop every other coordinator.
const IDLE_IN_TRANSACTION_MAX: &str = "15s";

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database refused, or could not be reached.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A row holds what this version cannot read.
    #[error("table {table}, column {column}, row {row}: {why}")]
    Content {
        /// Table.
        table: &'static str,
        /// Column.
        column: &'static str,
        /// Key of the row, as text.
        row: String,
        /// What is wrong with it.
        why: String,
    },
    /// Another coordinator holds the lease by now: this one must write nothing.
    #[error("the lease has moved on from epoch {epoch}; another coordinator runs the tasks")]
    StaleEpoch {
        /// The epoch of the write that was refused.
        epoch: i64,
    },
}

impl StoreError {
    /// A row that cannot be read.
    pub fn content(table: &'static str, column: &'static str, row: impl ToString, why: impl ToString) -> Self {
        Self::Content { table, column, row: row.to_string(), why: why.to_string() }
    }

    /// Whether the statement was ended because it took too long (57014).
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("57014")
    }

    /// Whether the session knows a statement that the database has changed or forgotten meanwhile: after
    /// a migration (0A000), or behind a pooler that changes sessions (26000, 42P05). A fresh statement works.
    #[must_use]
    pub fn is_stale_statement(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| ["0A000", "26000", "42P05"].contains(&code.as_ref()))
    }

    /// Whether a row refers to one that is not there (23503).
    #[must_use]
    pub fn is_missing_reference(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("23503")
    }

    /// Whether the same data would be refused again: a fault of the data, not of the database.
    #[must_use]
    pub fn is_about_the_data(&self) -> bool {
        let Self::Database(sqlx::Error::Database(error)) = self else { return false };
        // Class 22: data exception. Class 23: integrity constraint violation.
        error.code().is_some_and(|code| code.starts_with("22") || code.starts_with("23"))
    }
}

/// A word with the database that must not hang: a server that takes it and never answers counts as gone. The session
/// must not be used again after that: the answer may still come.
///
/// # Errors
/// What was asked says, or [`sqlx::Error::PoolTimedOut`] past the limit.
pub async fn within<T>(limit: Duration, asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    let answer = tokio::time::timeout(limit, asked).await;
    answer.unwrap_or(Err(StoreError::Database(sqlx::Error::PoolTimedOut)))
}

/// [`within`] the time that any single word with the database may take.
///
/// # Errors
/// As [`within`].
pub async fn word<T>(asked: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    within(WORD_WITHIN, asked).await
}

/// Opens the pool of one server that stays. Connections are made when first used.
#[must_use]
pub fn pool(options: PgConnectOptions) -> PgPool {
    servers::Servers::from(options).pool().0
}

/// The settings of every session: its name for whoever looks at the server, no notices, and no
/// transaction that is left open.
#[must_use]
pub fn quiet(options: PgConnectOptions) -> PgConnectOptions {
    options
        .application_name("parallax")
        .options([("client_min_messages", "warning"), ("idle_in_transaction_session_timeout", IDLE_IN_TRANSACTION_MAX)])
}

/// Makes the sessions of the pool forget their statements, so that the next try uses fresh ones. Call
/// it after a [`StoreError::is_stale_statement`]; those that stay in use meanwhile meet it themselves.
pub async fn forget_statements(pool: &PgPool) {
    // Held until all are done: one that is given back at once would be handed out again.
    let mut free = Vec::new();
    for _ in 0..FORGET_TRIES {
        while let Some(mut connection) = pool.try_acquire() {
            if connection.clear_cached_statements().await.is_err() {
                connection.close_on_drop();
            }
            free.push(connection);
        }
        if u32::try_from(free.len()).is_ok_and(|free| free >= pool.size()) {
            return;
        }
        // One that was dropped a moment ago is on its way back.
        tokio::time::sleep(FORGET_PAUSE).await;
    }
}

/// Begins a transaction for reading whose statements end by themselves: a reader that has given up
/// must not leave one running, with a connection of the pool in it.
///
/// # Errors
/// When the database refuses.
pub async fn begin_bounded(
    connection: &mut PgConnection,
    within: Duration,
) -> Result<Transaction<'_, Postgres>, StoreError> {
    let mut transaction = connection.begin().await?;
    let milliseconds = within.as_millis().to_string();
    sqlx::query_scalar!(r#"select set_config('statement_timeout', $1, true) as "set!""#, milliseconds)
        .fetch_one(&mut *transaction)
        .await?;
    Ok(transaction)
}

/// Has the server refuse every write of this session from now on.
///
/// # Errors
/// When the database does not answer.
pub async fn read_only(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query_scalar!(r#"select set_config('default_transaction_read_only', 'on', false) as "set!""#)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// The database's clock.
///
/// # Errors
/// When the database does not answer.
pub async fn database_now(connection: &mut PgConnection) -> Result<Timestamp, StoreError> {
    let now = sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#).fetch_one(connection).await?;
    Ok(timestamp(now))
}

/// Whether the database takes writes: a read-only one, as after a failover of Postgres, answers
/// reads and would look healthy.
///
/// # Errors
/// When the database does not answer, or takes no writes.
pub async fn check_writable(connection: &mut PgConnection) -> Result<(), StoreError> {
    // An advisory lock needs no write; taking a number of a sequence does.
    sqlx::query_scalar!(r#"select nextval('observation_id_seq') as "id!""#).fetch_one(connection).await?;
    Ok(())
}

/// A time of the database as the model's.
#[must_use]
pub fn timestamp(at: OffsetDateTime) -> Timestamp {
    Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

/// A time of the model as the database's. Times outside the years -9999 to 9999 become 1970.
#[must_use]
pub fn offset(at: Timestamp) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
