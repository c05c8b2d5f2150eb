//! What reading commands share: how times and marks are shown, and what a failed read means.

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use sqlx::PgConnection;

use super::database::Database;
use crate::error::{Exit, Failure};
use crate::report::moment::Zone;
use crate::report::text::Style;
use crate::store::StoreError;

/// How long a server may take to answer a connect before it counts as unreachable.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How a reading command shows things.
#[derive(Debug, Clone, Args)]
pub struct Shown {
    /// Show times in UTC instead of this machine's zone (TZ).
    #[arg(long)]
    pub utc: bool,
    /// No colour, as with NO_COLOR in the environment; there is none unless stdout is a terminal.
    #[arg(long)]
    pub no_color: bool,
}

impl Shown {
    /// The style for this stdout.
    #[must_use]
    pub fn style(&self) -> Style {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && !self.no_color;
        let zone = if self.utc { Zone::utc() } else { Zone::system() };
        Style { zone, colour: wanted && std::io::stdout().is_terminal() }
    }
}

/// Connects, in bounded time.
///
/// # Errors
/// Exit code 5 when the database cannot be reached.
pub async fn connect(database: &Database) -> Result<PgConnection, Failure> {
    tokio::time::timeout(CONNECT_WITHIN, database.connect()).await.unwrap_or_else(|_| {
        Err(Failure::new(Exit::Unreachable, "the database cannot be reached")
            .why(format!("no answer within {} s", CONNECT_WITHIN.as_secs()))
            .fix("check the server and the URL"))
    })
}

/// The same for a command that must not change anything: the server itself refuses every write of the session.
///
/// # Errors
/// Exit code 5 when the database cannot be reached.
pub async fn connect_to_read(database: &Database) -> Result<PgConnection, Failure> {
    let mut connection = connect(database).await?;
    crate::store::read_only(&mut connection).await.map_err(failed)?;
    Ok(connection)
}

/// What a failed read or write means for the command.
#[must_use]
pub fn failed(error: StoreError) -> Failure {
    match &error {
        StoreError::Database(sqlx::Error::Database(refused)) if refused.code().as_deref() == Some("42P01") => {
            Failure::new(Exit::Failed, "the database does not have this version's tables")
                .why(refused)
                .fix("start the coordinator once (parallax serve): it brings the schema up to date")
        }
        StoreError::Database(sqlx::Error::Database(refused)) => {
            Failure::new(Exit::Failed, "the database refused").why(refused)
        }
        StoreError::Database(_) => Failure::new(Exit::Unreachable, "the database went away").why(error),
        StoreError::Content { .. } => Failure::new(Exit::Failed, "a row cannot be read by this version")
            .why(error)
            .fix("use the version of parallax that the coordinator runs"),
        StoreError::StaleEpoch { .. } => Failure::new(Exit::Failed, "the database refused").why(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::explain::{self, ExplainCommand};
    use crate::cli::failover::{self, FailoverCommand};
    use crate::cli::{Global, StateDir, matrix};
    use crate::clock::Clock;
    use crate::report::told::Teller;
    use crate::state::App;
    use crate::{store, testing};

    fn global() -> Global {
        Global { json: true, output: None, log: tracing::Level::ERROR }
    }

    async fn told() -> (Database, i64) {
        let options = testing::fresh().await;
        let socket = options.get_socket().unwrap().display().to_string();
        let url =
            format!("postgres:///{}?host={socket}&user={}", options.get_database().unwrap(), options.get_username());
        let app = App::new(store::pool(options), testing::example(), Clock::system(), "/nonexistent".into());
        let mut teller = Teller::new(app).await;
        teller.all_well().await;
        let id = teller.node_dies().await.0;
        (Database { database_url: Some(url), database_url_file: None, state: StateDir { given: None } }, id)
    }

    fn plain() -> Shown {
        Shown { utc: true, no_color: true }
    }

    #[tokio::test]
    async fn exit_codes_say_what_went_wrong() {
        let (database, id) = told().await;
        let global = global();
        let explain = |number, database: &Database| {
            let incident = explain::Incident { number, database: database.clone(), shown: plain() };
            explain::run(ExplainCommand::Incident(incident), &global)
        };
        explain(id, &database).await.unwrap();
        let missing = explain(99, &database).await.unwrap_err();
        assert_eq!(missing.exit, Exit::NotFound);
        assert!(missing.to_string().contains(&format!("the newest is {id}")), "{missing}");
        let nowhere = Database { database_url: Some("postgres:///x?host=/nonexistent&user=x".to_owned()), ..database };
        let away = explain(1, &nowhere).await.unwrap_err();
        assert_eq!(away.exit, Exit::Unreachable);
        assert!(away.to_string().contains("\n  why: ") && away.to_string().contains("\n  fix: "), "{away}");
    }

    #[tokio::test]
    async fn a_database_without_our_tables_is_named_as_such() {
        let options = testing::fresh().await;
        let socket = options.get_socket().unwrap().display().to_string();
        let url = format!("postgres:///postgres?host={socket}&user={}", options.get_username());
        let database = Database { database_url: Some(url), database_url_file: None, state: StateDir { given: None } };
        let failure = matrix::run(matrix::Matrix { at: None, database, shown: plain() }, &global()).await.unwrap_err();
        assert_eq!(failure.exit, Exit::Failed);
        assert!(failure.to_string().contains("parallax serve"), "{failure}");
    }

    #[tokio::test]
    async fn freeze_and_thaw_are_idempotent_and_the_first_reason_stays() {
        let (database, _) = told().await;
        let global = global();
        let freeze = |reason: &str| {
            let command = failover::Freeze { reason: reason.to_owned(), database: database.clone() };
            failover::run(FailoverCommand::Freeze(command), &global)
        };
        freeze("maintenance").await.unwrap();
        freeze("another reason").await.unwrap();
        let mut connection = connect(&database).await.unwrap();
        let standing = store::freeze::current(&mut connection).await.unwrap().unwrap();
        assert_eq!(standing.reason, "maintenance");
        assert_eq!(freeze(" ").await.unwrap_err().exit, Exit::Usage);
        for _ in 0..2 {
            let command = FailoverCommand::Thaw(failover::Thaw { reason: None, database: database.clone() });
            failover::run(command, &global).await.unwrap();
        }
        assert_eq!(store::freeze::current(&mut connection).await.unwrap(), None);
    }
}
