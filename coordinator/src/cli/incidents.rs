//! `parallax incidents`: what is open and what has been.

use clap::Args;
use serde_json::json;

use super::database::Database;
use super::explain::unknown;
use super::reading::{Shown, connect_to_read, failed};
use super::{Global, print, print_json, when};
use crate::error::Failure;
use crate::report::moment::At;
use crate::report::{SCHEMA, summary, text};
use crate::store::read::incident::{Filter, INCIDENTS_MAX, kinds};
use crate::store::{configured, database_now};
use crate::words::verdict::kind_title;

/// `parallax incidents`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  parallax incidents --open
  parallax incidents --since 30d --vantage branch-kazan --kind unroutable-answer
  parallax incidents --since '2026-10-01' --until '2026-10-31'")]
pub struct Incidents {
    /// Besides the open ones, those that closed since: so long ago, such as 12h or 7d, or a time such as '2026-10-26 14:02'.
    #[arg(long, value_name = "T", default_value = "7d", allow_hyphen_values = true)]
    pub since: String,
    /// Only those that opened until then.
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub until: Option<String>,
    /// Only those that are open.
    #[arg(long)]
    pub open: bool,
    /// Only those at this vantage, or that affect it.
    #[arg(long, value_name = "V")]
    pub vantage: Option<String>,
    /// Only those of this kind: its word, or its title with dashes, such as unroutable-answer.
    #[arg(long, value_name = "KIND")]
    pub kind: Option<String>,
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
/// Exit code 2 for a moment that is none, 3 for a kind of which there never was an incident, 5 when the database cannot be
/// reached.
pub async fn run(command: Incidents, global: &Global) -> Result<(), Failure> {
    let style = command.shown.style();
    let mut connection = connect_to_read(&command.database).await?;
    let now = database_now(&mut connection).await.map_err(failed)?;
    let configured = configured::read(&mut connection).await.map_err(failed)?;
    let mut filter = Filter {
        since: Some(when::read("--since", &command.since, &style.zone, now)?),
        until: command.until.as_ref().map(|until| when::read("--until", until, &style.zone, now)).transpose()?,
        open: command.open,
        vantage: command.vantage.clone(),
        ..Filter::default()
    };
    if let Some(kind) = &command.kind {
        let known = kinds(&mut connection).await.map_err(failed)?;
        let title = |word: &String| kind_title(word).replace(' ', "-");
        filter.kinds = known.iter().filter(|word| *word == kind || title(word) == *kind).cloned().collect();
        if filter.kinds.is_empty() {
            let known: Vec<String> = known.iter().map(title).collect();
            return Err(
                unknown(kind, "there never was an incident of this kind", &known).fix("parallax incidents lists them")
            );
        }
    }
    let list = summary::listed(&mut connection, &configured, &filter, now, INCIDENTS_MAX).await.map_err(failed)?;
    if global.json {
        print_json(&json!({ "schema": SCHEMA, "at": At(now), "incidents": list }))
    } else {
        print(&text::incidents(&list, &style))
    }
}
