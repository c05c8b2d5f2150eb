//! `parallax explain incident N`: from the conclusion to the command line, as the page `/i/N`.

use clap::{Args, Subcommand};
use parallax_decide::incident::IncidentId;

use super::database::Database;
use super::reading::{Shown, connect, failed};
use super::{Global, print, print_json};
use crate::error::{Exit, Failure};
use crate::report::{story, text};
use crate::store::read::incident::newest;

/// `parallax explain`
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// One incident: what was concluded, why, what was done, and how to check it by hand.
    Incident(Incident),
}

/// `parallax explain incident`
#[derive(Debug, Args)]
pub struct Incident {
    /// Its number.
    #[arg(value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub number: i64,
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
/// Exit code 3 when there is no such incident, 5 when the database cannot be reached.
pub async fn run(command: ExplainCommand, global: &Global) -> Result<(), Failure> {
    let ExplainCommand::Incident(incident) = command;
    let style = incident.shown.style();
    let mut connection = connect(&incident.database).await?;
    let found = story::read(&mut connection, IncidentId(incident.number), &style.zone).await.map_err(failed)?;
    let Some(found) = found else {
        let newest = newest(&mut connection).await.map_err(failed)?;
        let why = newest.map_or_else(|| "none was ever opened".to_owned(), |id| format!("the newest is {}", id.0));
        return Err(Failure::new(Exit::NotFound, format!("there is no incident {}", incident.number))
            .why(why)
            .fix("parallax incidents lists them"));
    };
    if global.json { print_json(&serde_json::json!(found)) } else { print(&text::story(&found, &style)) }
}
