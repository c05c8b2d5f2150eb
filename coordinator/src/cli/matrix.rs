//! `parallax matrix`: every vantage against every name, now, as the page `/`; or at a moment.

use clap::Args;

use super::database::Database;
use super::reading::{Shown, connect_to_read, failed};
use super::{Global, print, print_json, when};
use crate::error::Failure;
use crate::report::{matrix, text};
use crate::store::database_now;

/// `parallax matrix`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  parallax matrix
  parallax matrix --at '2026-10-26 14:20'")]
pub struct Matrix {
    /// The moment: a time such as '2026-10-26 14:20', or so long ago, such as 2h [default: now].
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub at: Option<String>,
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
pub async fn run(command: Matrix, global: &Global) -> Result<(), Failure> {
    let style = command.shown.style();
    let mut connection = connect_to_read(&command.database).await?;
    let matrix = match &command.at {
        None => matrix::read(&mut connection).await.map_err(failed)?,
        Some(text) => {
            let now = database_now(&mut connection).await.map_err(failed)?;
            let at = when::read("--at", text, &style.zone, now)?.min(now);
            matrix::read_at(&mut connection, at).await.map_err(failed)?
        }
    };
    if global.json { print_json(&serde_json::json!(matrix)) } else { print(&text::matrix(&matrix, &style)) }
}
