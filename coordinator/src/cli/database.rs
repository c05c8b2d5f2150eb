//! Which database a command uses: an external one by URL, else the embedded one of the state
//! directory.

use std::path::PathBuf;

use clap::Args;
use secrecy::ExposeSecret;
use sqlx::postgres::PgConnection;

use super::StateDir;
use crate::embedded;
use crate::error::{Exit, Failure};
use crate::secret::Source;
use crate::store::servers::{Servers, UrlError};

/// Which database.
#[derive(Debug, Clone, Args)]
pub struct Database {
    /// URL of an external Postgres; it may name several servers of one cluster (HOST:PORT,HOST:PORT), of
    /// which the one that takes writes is used. It may hold a password: prefer the file or the environment.
    #[arg(
        long,
        env = "PARALLAX_DATABASE_URL",
        hide_env_values = true,
        value_name = "URL",
        conflicts_with = "database_url_file"
    )]
    pub database_url: Option<String>,
    /// File that holds the URL.
    #[arg(long, value_name = "FILE")]
    pub database_url_file: Option<PathBuf>,
    /// State directory, for the embedded database.
    #[command(flatten)]
    pub state: StateDir,
}

impl Database {
    /// The servers of the external database, if one was given.
    ///
    /// # Errors
    /// When the file or the URL cannot be read. The URL itself is never shown: it holds a password.
    pub fn external(&self) -> Result<Option<Servers>, Failure> {
        let url = match (&self.database_url, &self.database_url_file) {
            (Some(url), _) => url.clone(),
            (None, Some(file)) => {
                let read = Source::File(file.clone()).read().map_err(|why| {
                    Failure::new(Exit::Usage, "the database URL cannot be read")
                        .why(why)
                        .fix("give --database-url-file a file that this user may read, with the URL as its only line")
                })?;
                read.expose_secret().to_owned()
            }
            (None, None) => return Ok(None),
        };
        url.trim().parse().map(Some).map_err(|why: UrlError| {
            Failure::new(Exit::Usage, "the database URL cannot be understood").why(why).fix(
                "write postgres://USER:PASSWORD@HOST:PORT/DATABASE, or several HOST:PORT with commas between, with \
                 special characters percent-encoded",
            )
        })
    }

    /// The servers as the file has them by now, for a coordinator that runs on. The same as before while it cannot
    /// be read.
    pub fn again(&self) -> Option<Servers> {
        self.database_url_file.as_ref()?;
        match self.external() {
            Ok(servers) => servers,
            Err(error) => {
                tracing::warn!(%error, "the database URL is not read again; the one before stays in use");
                None
            }
        }
    }

    /// One connection, for a command that reads and ends.
    ///
    /// # Errors
    /// Exit code 5 when it cannot be reached.
    pub async fn connect(&self) -> Result<PgConnection, Failure> {
        let external = self.external()?;
        let fix = match &external {
            Some(_) => "check the server and the URL",
            None => "start the coordinator (parallax serve), or give its --state or --database-url",
        };
        let servers = match external {
            Some(servers) => servers,
            None => embedded::connect_options(&self.state.path()?)?.into(),
        };
        servers
            .connect_to_read()
            .await
            .map_err(|error| Failure::new(Exit::Unreachable, "the database cannot be reached").why(error).fix(fix))
    }
}
