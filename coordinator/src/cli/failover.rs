//! `parallax failover`: what services serve now, and the operator's stop of every write.

use std::io::{BufRead, IsTerminal, Read, Write};

use clap::{Args, Subcommand};
use serde_json::json;

use super::database::Database;
use super::reading::{Shown, connect, failed};
use super::{Global, print, print_json};
use crate::error::{Exit, Failure};
use crate::report::{SCHEMA, failover, text};
use crate::store::freeze;

/// Longest reason, in characters: it stands in a banner.
const REASON_MAX: usize = 200;

/// Most bytes that are read of a typed reason.
const READ_BYTES_MAX: u64 = 4096;

/// `parallax failover`
#[derive(Debug, Subcommand)]
pub enum FailoverCommand {
    /// What each service serves now and why, and the last plans.
    Status(Status),
    /// Stop every write at once. Watching and judging go on.
    Freeze(Freeze),
    /// Allow writes again.
    Thaw(Thaw),
}

/// `parallax failover status`
#[derive(Debug, Args)]
pub struct Status {
    /// Which database.
    #[command(flatten)]
    pub database: Database,
    /// How it is shown.
    #[command(flatten)]
    pub shown: Shown,
}

/// `parallax failover freeze`
#[derive(Debug, Args)]
pub struct Freeze {
    /// Why; it is shown on every page until the thaw.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
}

/// `parallax failover thaw`
#[derive(Debug, Args)]
pub struct Thaw {
    /// Why writes may go on; needed after the database went back or was replaced.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
}

/// Runs it.
///
/// # Errors
/// Exit code 2 for an unusable reason, 5 when the database cannot be reached.
pub async fn run(command: FailoverCommand, global: &Global) -> Result<(), Failure> {
    match command {
        FailoverCommand::Status(status) => {
            let style = status.shown.style();
            let mut connection = connect(&status.database).await?;
            let read = failover::read(&mut connection, &style.zone).await.map_err(failed)?;
            if global.json { print_json(&json!(read)) } else { print(&text::failover(&read, &style)) }
        }
        FailoverCommand::Freeze(command) => {
            let reason = reason(&command.reason)?;
            let mut connection = connect(&command.database).await?;
            let made = freeze::freeze(&mut connection, &person(), &reason).await.map_err(failed)?;
            let standing = freeze::current(&mut connection).await.map_err(failed)?;
            let by = standing.as_ref().map_or("somebody", |freeze| freeze.by.as_str());
            let why = standing.as_ref().map_or("", |freeze| freeze.reason.as_str());
            if global.json {
                print_json(
                    &json!({ "schema": SCHEMA, "frozen": standing.is_some(), "changed": made, "by": by, "reason": why }),
                )
            } else if made {
                print("Frozen: nothing is written until `parallax failover thaw`.\n")
            } else {
                print(&format!("Frozen already, by {by}: {why}\nThat reason stays.\n"))
            }
        }
        FailoverCommand::Thaw(command) => {
            let given = command.reason.as_deref().map(reason).transpose()?;
            let mut connection = connect(&command.database).await?;
            let standing = freeze::current(&mut connection).await.map_err(failed)?;
            let given = match (given, &standing) {
                (None, Some(standing)) if standing.needs_reason => Some(ask_for_reason(&standing.reason)?),
                (given, _) => given,
            };
            let ended = freeze::thaw(&mut connection, &person(), given.as_deref()).await.map_err(failed)?;
            if global.json {
                print_json(&json!({ "schema": SCHEMA, "frozen": false, "changed": ended }))
            } else if ended {
                print("Thawed: plans in mode act are applied again.\n")
            } else {
                print("Nothing was frozen.\n")
            }
        }
    }
}

fn reason(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let length = text.chars().count();
    if length == 0 || length > REASON_MAX || text.chars().any(char::is_control) {
        return Err(Failure::new(Exit::Usage, "the reason cannot be used")
            .why(format!("it must have 1 to {REASON_MAX} characters on one line"))
            .fix("parallax failover freeze --reason \"maintenance of the DNS servers\""));
    }
    Ok(text.to_owned())
}

/// Asks a person at a terminal why writes may go on; anyone else is told to say so.
fn ask_for_reason(frozen_because: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() && std::io::stderr().is_terminal() {
        let _ = write!(std::io::stderr(), "Frozen: {frozen_because}\nWhy may writes go on? ");
        let mut line = String::new();
        if stdin.lock().take(READ_BYTES_MAX).read_line(&mut line).is_ok() && !line.trim().is_empty() {
            return reason(&line);
        }
    }
    Err(Failure::new(Exit::Usage, "this freeze ends only with a reason")
        .why(frozen_because)
        .fix("look at what DNS and the branches hold now (parallax failover status), then: parallax failover thaw --reason \"checked after the restore of 2 May\""))
}

/// Who types: behind sudo, the person who called it.
fn person() -> String {
    let not_empty = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    not_empty("SUDO_USER").or_else(|| not_empty("USER")).unwrap_or_else(|| format!("uid {}", nix::unistd::getuid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_bounded_length() {
        assert_eq!(reason("  maintenance ").as_deref(), Ok("maintenance"));
        for wrong in ["", "   ", "two\nlines", &"x".repeat(201)] {
            assert_eq!(reason(wrong).map_err(|failure| failure.exit), Err(Exit::Usage), "{wrong:?}");
        }
    }
}
