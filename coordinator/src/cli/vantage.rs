//! `parallax vantage`: issue, list, revoke.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use parallax_decide::names::VantageName;
use parallax_decide::time::Timestamp;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::config::ConfigFile;
use super::database::Database;
use super::reading::{connect, failed};
use super::{Global, StateDir, print, print_json};
use crate::clock;
use crate::error::{Exit, Failure};
use crate::identity::bundle::{Bundle, Making};
use crate::identity::folder;
use crate::identity::signer::Signer;
use crate::store::read::now::{self, VantageNow};
use crate::store::{self, vantage};
use crate::words::vantage::{cloned, condition};

/// `parallax vantage …`
#[derive(Debug, Subcommand)]
pub enum VantageCommand {
    /// Write the identity of a vantage by hand: ca.pem, certificate.pem, key.pem, signers.txt.
    Issue(Issue),
    /// List the vantages that were ever configured, and when each was last heard.
    List(Database),
    /// Refuse a vantage's certificate for good and cut it off at once.
    Revoke(Revoke),
}

/// `parallax vantage issue`
#[derive(Debug, Args)]
pub struct Issue {
    /// Name of the vantage, as in the configuration.
    pub name: String,
    /// Folder for the files; made if missing, never overwritten.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// State directory with the certificate authority.
    #[command(flatten)]
    pub state: StateDir,
    /// Configuration, for an authority of the operator's own and the certificate's life.
    #[command(flatten)]
    pub config: ConfigFile,
    /// Make the certificate authority if there is none: before the coordinator's first start.
    #[arg(long)]
    pub make_authority: bool,
}

/// `parallax vantage revoke`
#[derive(Debug, Args)]
pub struct Revoke {
    /// Name of the vantage.
    pub name: String,
    /// Where it is stored.
    #[command(flatten)]
    pub database: Database,
}

/// Runs it.
///
/// # Errors
/// What happened, why, and how to fix it.
pub async fn run(command: VantageCommand, global: &Global) -> Result<(), Failure> {
    match command {
        VantageCommand::Issue(one) => issue(&one, global),
        VantageCommand::List(database) => list(&database, global).await,
        VantageCommand::Revoke(one) => revoke(&one, global).await,
    }
}

fn issue(one: &Issue, global: &Global) -> Result<(), Failure> {
    let name = parse(&one.name)?;
    let now = clock::wall();
    let identity = one.config.load()?.identity;
    let state = one.state.path()?;
    let making = if one.make_authority { Making::Allowed } else { Making::Forbidden };
    let bundle = match &identity.authority {
        Some(pair) => Bundle::of_operator(&pair.certificates, &pair.key)?,
        None => Bundle::open(&state, making, now)?,
    };
    let signer = Signer::open(&state.join("ca"), making)?;
    let issued = folder::write(&bundle, &signer, &name, (&one.out, identity.certificate_life), now)?;
    let not_after = issued.not_after.format(&Rfc3339).unwrap_or_default();
    if global.json {
        let folder = one.out.display().to_string();
        return print_json(&json!({ "schema": 1, "vantage": name, "folder": folder, "not_after": not_after }));
    }
    print(&format!("issued {name} into {}, valid until {not_after}\n", one.out.display()))
}

async fn list(database: &Database, global: &Global) -> Result<(), Failure> {
    let mut connection = connect(database).await?;
    let rows = vantage::all(&mut connection).await.map_err(failed)?;
    let now: BTreeMap<String, VantageNow> = now::vantages(&mut connection)
        .await
        .map_err(failed)?
        .into_iter()
        .map(|vantage| (vantage.name.clone(), vantage))
        .collect();
    if global.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "first_seen_at": row.first_seen_at.map(text), "last_seen_at": row.last_seen_at.map(text),
                    "agent_version": row.agent_version, "revoked_at": row.revoked_at.map(text),
                    "clock_offset_ms": now.get(row.name.as_str()).and_then(|now| now.clock_offset_ms),
                    "controls_lately": now.get(row.name.as_str()).and_then(|now| now.controls_lately),
                    "coordinator": now.get(row.name.as_str()).and_then(|now| now.held_by.as_ref()).map(|(name, _)| name),
                    "connected_from": now.get(row.name.as_str()).and_then(|now| now.held_by.as_ref()).map(|(_, from)| from),
                    "cloned": now.get(row.name.as_str()).and_then(|now| now.cloned.as_ref()),
                })
            })
            .collect();
        return print_json(&json!({ "schema": 1, "vantages": rows }));
    }
    let mut out = format!(
        "{:<24} {:<28} {:<12} {:<8} {:<24} {}\n",
        "NAME", "LAST SEEN", "AGENT", "STATE", "AT COORDINATOR", "CLOCK, CONTROLS"
    );
    for row in rows {
        let last = row.last_seen_at.map_or_else(|| "never".to_owned(), text);
        let state = if row.revoked_at.is_some() { "revoked" } else { "valid" };
        let now = now.get(row.name.as_str());
        let said = now.map(|now| condition(now.clock_offset_ms, now.controls_lately));
        let held_by = now.and_then(|now| now.held_by.as_ref()).map_or("-", |(name, _)| name.as_str());
        let line = format!(
            "{:<24} {last:<28} {:<12} {state:<8} {held_by:<24} {}",
            row.name.as_str(),
            row.agent_version.unwrap_or_default(),
            said.unwrap_or_default()
        );
        out.push_str(line.trim_end());
        out.push('\n');
        if let Some(both) = now.and_then(|now| now.cloned.as_ref()) {
            out.push_str(&format!("    {}\n", cloned(both)));
        }
    }
    print(&out)
}

async fn revoke(one: &Revoke, global: &Global) -> Result<(), Failure> {
    let name = parse(&one.name)?;
    let mut connection = connect(&one.database).await?;
    let found = vantage::revoke(&mut connection, &name).await.map_err(failed)?;
    if !found {
        return Err(Failure::new(Exit::NotFound, format!("there is no vantage {name}")).fix("parallax vantage list"));
    }
    if global.json {
        return print_json(&json!({ "schema": 1, "vantage": name, "revoked": true }));
    }
    print(&format!("revoked {name}; its stream is cut and its certificate refused from now on\n"))
}

fn parse(name: &str) -> Result<VantageName, Failure> {
    name.parse().map_err(|error| Failure::new(Exit::Usage, "not a name for a vantage").why(error))
}

fn text(at: Timestamp) -> String {
    store::offset(at).format(&Rfc3339).unwrap_or_default()
}
