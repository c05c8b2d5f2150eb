//! `parallax matrix`: every vantage against every name, now, as the page `/`.

use clap::Args;

use super::database::Database;
use super::reading::{Shown, connect, failed};
use super::{Global, print, print_json};
use crate::error::Failure;
use crate::report::{matrix, text};

/// `parallax matrix`
#[derive(Debug, Args)]
pub struct Matrix {
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
    let mut connection = connect(&command.database).await?;
    let matrix = matrix::read(&mut connection).await.map_err(failed)?;
    if global.json {
        print_json(&serde_json::json!(matrix))
    } else {
        print(&text::matrix(&matrix, &command.shown.style()))
    }
}
