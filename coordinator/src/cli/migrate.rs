//! `parallax migrate`: brings the database's schema up to date, or says whether it is.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use sqlx::PgConnection;

use super::database::Database;
use super::reading::connect;
use super::{Global, print, print_json};
use crate::embedded::Embedded;
use crate::error::{Exit, Failure};
use crate::report::SCHEMA;
use crate::store::setup;

/// `parallax migrate`
#[derive(Debug, Args)]
pub struct Migrate {
    /// Change nothing; exit code 7 when there is something to do, 4 when the database is newer than this program.
    #[arg(long)]
    pub check: bool,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
    /// Folder with initdb and postgres, for an embedded database that does not run.
    #[arg(long, env = "PARALLAX_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
}

/// Runs it. An embedded database that does not run is started for it and stopped again.
///
/// # Errors
/// Exit code 4 when the database is newer than this program, 5 when it cannot be reached, 7 with `--check` when
/// there is something to do.
pub async fn run(command: Migrate, global: &Global) -> Result<(), Failure> {
    if command.database.external()?.is_some() {
        return with(&mut connect(&command.database).await?, command.check, global).await;
    }
    let state = command.database.state.path()?;
    match Embedded::start(&state, command.pg_bin.as_deref()).await {
        Ok(embedded) => {
            let result = match connect(&command.database).await {
                Ok(mut connection) => with(&mut connection, command.check, global).await,
                Err(failure) => Err(failure),
            };
            embedded.stop().await;
            result
        }
        // A coordinator runs it.
        Err(failure) if failure.exit == Exit::Refused => {
            with(&mut connect(&command.database).await?, command.check, global).await
        }
        Err(failure) => Err(failure),
    }
}

async fn with(connection: &mut PgConnection, check: bool, global: &Global) -> Result<(), Failure> {
    if !check {
        let applied = setup::migrate(connection).await?;
        return if global.json {
            print_json(&json!({ "schema": SCHEMA, "applied": applied }))
        } else if applied.is_empty() {
            print("The schema is up to date.\n")
        } else {
            print(&format!("Applied: {}. The schema is up to date.\n", numbers(&applied)))
        };
    }
    let standing =
        setup::standing(connection).await.map_err(|error| Failure::new(Exit::Unreachable, "cannot ask").why(error))?;
    if global.json {
        print_json(&json!({
            "schema": SCHEMA, "applied": standing.applied, "pending": standing.pending, "unknown": standing.unknown,
            "altered": standing.altered,
        }))?;
    }
    match (standing.refusal(), standing.pending.as_slice()) {
        (Some(refusal), _) if global.json => Err(refusal.printed()),
        (Some(refusal), _) => Err(refusal),
        (None, []) if global.json => Ok(()),
        (None, []) => print("The schema is up to date.\n"),
        (None, pending) => {
            if !global.json {
                print(&format!("To do: {}. parallax migrate does it.\n", numbers(pending)))?;
            }
            Err(Failure::answered(Exit::Changes))
        }
    }
}

fn numbers(versions: &[i64]) -> String {
    let words: Vec<String> = versions.iter().map(|version| format!("{version:04}")).collect();
    words.join(", ")
}
