//! `parallax incidents`: what is open and what has been.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::database::Database;
use super::reading::{Shown, connect, failed};
use super::{Global, print, print_json};
use crate::error::Failure;
use crate::report::moment::At;
use crate::report::{SCHEMA, summary, text};
use crate::store::read::incident::INCIDENTS_MAX;
use crate::store::{configured, database_now};

/// `parallax incidents`
#[derive(Debug, Args)]
pub struct Incidents {
    /// Besides the open ones, those that closed within this time, such as 12h or 7d.
    #[arg(long, value_name = "SPAN", default_value = "7d", value_parser = crate::span::any)]
    pub since: Duration,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
    /// How it is shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// Runs it.
///
/// # Errors
/// Exit code 5 when the database cannot be reached.
pub async fn run(command: Incidents, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(&command.database).await?;
    let now = database_now(&mut connection).await.map_err(failed)?;
    let configured = configured::read(&mut connection).await.map_err(failed)?;
    let since = now.minus(command.since);
    let list = summary::read(&mut connection, &configured, since, now, INCIDENTS_MAX).await.map_err(failed)?;
    if global.json {
        print_json(&json!({ "schema": SCHEMA, "at": At(now), "incidents": list }))
    } else {
        print(&text::incidents(&list, &command.shown.style()))
    }
}
