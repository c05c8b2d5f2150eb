//! `parallax timeline`: what happened, in order of time.

use clap::Args;
use serde_json::json;

use super::database::Database;
use super::explain::unknown;
use super::reading::{Shown, connect_to_read, failed};
use super::{Global, print, print_json, when};
use crate::error::Failure;
use crate::report::happened::{self, Of};
use crate::store::configured::Configured;
use crate::store::database_now;
use crate::store::read::moment::configured;

/// `parallax timeline`
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  parallax timeline --from 2h
  parallax timeline --service fi --from '2026-10-26 13:50' --to '2026-10-26 14:50'
  parallax timeline --name cdnjs.cloudflare.com --vantage branch-kazan --from 1d

Exit codes: 2 no such moment, 3 no such service, node or vantage, 5 no database.")]
pub struct Timeline {
    /// Of this name alone.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["service", "node"])]
    pub name: Option<String>,
    /// Of this service alone, with its host name and nodes.
    #[arg(long, value_name = "S", conflicts_with = "node")]
    pub service: Option<String>,
    /// Of this node alone.
    #[arg(long, value_name = "N")]
    pub node: Option<String>,
    /// At this vantage alone.
    #[arg(long, value_name = "V")]
    pub vantage: Option<String>,
    /// Begin: a time such as '2026-10-26 14:02', or so long ago, such as 2h.
    #[arg(long, value_name = "T", default_value = "24h", allow_hyphen_values = true)]
    pub from: String,
    /// End.
    #[arg(long, value_name = "T", default_value = "now", allow_hyphen_values = true)]
    pub to: String,
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
/// Exit code 2 for a moment that is none, 3 for what does not exist, 5 when the database cannot be reached.
pub async fn run(command: Timeline, global: &Global) -> Result<(), Failure> {
    let style = command.shown.style();
    let mut connection = connect_to_read(&command.database).await?;
    let now = database_now(&mut connection).await.map_err(failed)?;
    let (from, to) = when::between((&command.from, &command.to), &style.zone, now)?;
    let config = configured(&mut connection, to).await.map_err(failed)?.map(|(_, config)| config).unwrap_or_default();
    let of = of(&command, &config)?;
    let told = happened::read(&mut connection, &of, from, to).await.map_err(failed)?;
    if global.json { print_json(&json!(told)) } else { print(&happened::text(&told, &style)) }
}

fn of(command: &Timeline, config: &Configured) -> Result<Of, Failure> {
    let missing = |given: &str, what: &str, known: Vec<String>| {
        Err(unknown(given, what, &known).fix("ask with the name that the configuration of that time has"))
    };
    let mut of = Of { vantage: command.vantage.clone(), ..Of::default() };
    if let Some(vantage) = &command.vantage
        && !config.vantages.iter().any(|(name, _)| name == vantage)
    {
        return missing(
            vantage,
            "there is no such vantage",
            config.vantages.iter().map(|(name, _)| name.clone()).collect(),
        );
    }
    if let Some(name) = &command.name {
        of.words = vec![name.to_lowercase().trim_end_matches('.').to_owned()];
    } else if let Some(service) = &command.service {
        let Some((name, offered)) = config.services.iter().find(|(name, _)| name == service) else {
            let known = config.services.iter().map(|(name, _)| name.clone()).collect();
            return missing(service, "there is no such service", known);
        };
        let nodes = std::iter::once(&offered.native).chain(&offered.fallbacks);
        of.words = vec![name.clone(), offered.hostname.clone()];
        of.words.extend(nodes.flat_map(|node| [node.clone(), format!("node:{node}")]));
    } else if let Some(node) = &command.node {
        if !config.nodes.iter().any(|(name, _)| name == node) {
            return missing(node, "there is no such node", config.nodes.iter().map(|(name, _)| name.clone()).collect());
        }
        of.words = vec![node.clone(), format!("node:{node}")];
    }
    let asked = [&command.name, &command.service, &command.node, &command.vantage].into_iter().flatten();
    let asked: Vec<&str> = asked.map(String::as_str).collect();
    of.asked = (!asked.is_empty()).then(|| asked.join(" at "));
    Ok(of)
}
