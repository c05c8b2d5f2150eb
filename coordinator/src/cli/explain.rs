//! `parallax explain`: an incident, from the conclusion to the command line, as the page `/i/N`; or what a name looked like.

use clap::{Args, Subcommand};
use parallax_decide::incident::IncidentId;
use parallax_decide::names::DomainName;

use super::database::Database;
use super::reading::{Shown, connect_to_read, failed};
use super::{Global, print, print_json, when};
use crate::config::error::nearest;
use crate::error::{Exit, Failure};
use crate::report::name::{self, Missing};
use crate::report::{story, text};
use crate::store::database_now;
use crate::store::read::incident::newest;
use crate::words::list;

/// Names that a message spells out.
const SHOWN_MAX: usize = 8;

/// `parallax explain`
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// One incident: what was concluded, why, what was done, and how to check it by hand.
    Incident(Incident),
    /// One name at a moment: what each place was given, what became of it, what decided, and whether another resolver would help.
    Name(Name),
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

/// `parallax explain name`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  parallax explain name cdnjs.cloudflare.com
  parallax explain name cdnjs.cloudflare.com --vantage branch-kazan --at '2026-10-26 14:20'

Exit codes: 3 nobody watches that name, or there is no such vantage, 5 no database.")]
pub struct Name {
    /// A canary, or the host name of a service.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// This place alone, and in full.
    #[arg(long, value_name = "V")]
    pub vantage: Option<String>,
    /// The moment: a time such as '2026-10-26 14:20', or so long ago, such as 2h.
    #[arg(long, value_name = "T", default_value = "now", allow_hyphen_values = true)]
    pub at: String,
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
    match command {
        ExplainCommand::Incident(incident) => explain_incident(incident, global).await,
        ExplainCommand::Name(name) => explain_name(name, global).await,
    }
}

async fn explain_name(command: Name, global: &Global) -> Result<(), Failure> {
    let style = command.shown.style();
    let asked: DomainName = command.name.parse().map_err(|error| {
        Failure::new(Exit::Usage, format!("`{}` is no name", command.name))
            .why(error)
            .fix("give a name as in www.example.net")
    })?;
    let mut connection = connect_to_read(&command.database).await?;
    let now = database_now(&mut connection).await.map_err(failed)?;
    let at = when::read("--at", &command.at, &style.zone, now)?.min(now);
    let found = name::read(&mut connection, &asked, command.vantage.as_deref(), Some(at)).await.map_err(failed)?;
    match found {
        Ok(told) if global.json => print_json(&serde_json::json!(told)),
        Ok(told) => print(&name::text(&told, &style)),
        Err(Missing::Name(known)) => Err(unknown(&command.name, "nobody watched that name at that moment", &known)
            .fix("name it under `canaries:` in parallax.yaml, or ask for one that is watched (parallax matrix)")),
        Err(Missing::Vantage(known)) => {
            let given = command.vantage.unwrap_or_default();
            Err(unknown(&given, "there was no such vantage at that moment", &known)
                .fix("parallax vantage list shows them"))
        }
    }
}

/// What does not exist, with what was perhaps meant.
pub(super) fn unknown(given: &str, what: &str, known: &[String]) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("{what}: {given}"));
    match nearest(given, known.iter().map(String::as_str)) {
        Some(near) => failure.why(format!("did you mean {near}?")),
        None if known.is_empty() => failure.why("there is none"),
        None => failure.why(format!("there is {}", list(known, SHOWN_MAX))),
    }
}

async fn explain_incident(incident: Incident, global: &Global) -> Result<(), Failure> {
    let style = incident.shown.style();
    let mut connection = connect_to_read(&incident.database).await?;
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
