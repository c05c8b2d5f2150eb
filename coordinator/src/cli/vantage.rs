//! `parallax vantage`: who measures, and who may. [`show`]: reading. [`change`]: what people do to one.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use parallax_decide::names::VantageName;
use serde_json::json;
use time::format_description::well_known::Rfc3339;

use super::config::ConfigFile;
use super::{Global, StateDir, print, print_json};
use crate::clock;
use crate::error::{Exit, Failure};
use crate::identity::bundle::{Bundle, Making};
use crate::identity::folder;
use crate::identity::signer::{self, Signers};

pub mod change;
pub mod show;
#[cfg(test)]
mod tests;

/// `parallax vantage …`
#[derive(Debug, Subcommand)]
pub enum VantageCommand {
    /// List the vantages that were ever configured or joined, and when each was last heard.
    List(show::List),
    /// Show what is known of one: labels, certificates, clock, last stream, gaps.
    Show(show::Show),
    /// Take in a vantage that joined with a token although the configuration does not list it.
    Approve(change::Approve),
    /// Give a vantage another name; its history and its keys stay its own.
    Rename(change::Rename),
    /// Refuse the keys a vantage has had and take new ones: a machine was replaced, or stolen.
    Replace(change::Change),
    /// Remove a vantage for good; its history stays.
    Remove(change::Change),
    /// Refuse a vantage's certificates, or one of its keys, and cut it off at once.
    Revoke(change::Revoke),
    /// Write the identity of a vantage by hand: ca.pem, certificate.pem, key.pem, signers.txt.
    Issue(Issue),
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

/// Runs it.
///
/// # Errors
/// What happened, why, and how to fix it.
pub async fn run(command: VantageCommand, global: &Global) -> Result<(), Failure> {
    match command {
        VantageCommand::List(one) => show::list(&one, global).await,
        VantageCommand::Show(one) => show::show(&one, global).await,
        VantageCommand::Approve(one) => change::approve(&one, global).await,
        VantageCommand::Rename(one) => change::rename(&one, global).await,
        VantageCommand::Replace(one) => change::replace(&one, global).await,
        VantageCommand::Remove(one) => change::remove(&one, global).await,
        VantageCommand::Revoke(one) => change::revoke(&one, global).await,
        VantageCommand::Issue(one) => issue(&one, global),
    }
}

fn issue(one: &Issue, global: &Global) -> Result<(), Failure> {
    let name = parse(&one.name)?;
    let now = clock::wall();
    let identity = one.config.load()?.identity;
    let state = one.state.path()?;
    let making = if one.make_authority { Making::Allowed } else { Making::Forbidden };
    let bundle = match &identity.authority {
        Some(pair) => {
            if making == Making::Allowed {
                signer::make_first(&state.join("ca"))?;
            }
            Bundle::of_operator(&pair.certificates, &pair.key)?
        }
        None => Bundle::open(&state, making, now)?,
    };
    let signers = Signers::open(&state.join("ca"))?;
    let issued = folder::write(&bundle, &signers, &name, (&one.out, identity.certificate_life), now)?;
    let not_after = issued.not_after.format(&Rfc3339).unwrap_or_default();
    if global.json {
        let folder = one.out.display().to_string();
        return print_json(&json!({ "schema": 1, "vantage": name, "folder": folder, "not_after": not_after }));
    }
    print(&format!(
        "issued {name} into {}, valid until {not_after}\n\
         Until its agent has connected, no coordinator knows of this certificate: `parallax authority retire` does not \
         count it.\n",
        one.out.display()
    ))
}

fn parse(name: &str) -> Result<VantageName, Failure> {
    name.parse().map_err(|error| Failure::new(Exit::Usage, "not a name for a vantage").why(error))
}

/// There is no vantage of this name.
fn unknown(name: &VantageName) -> Failure {
    Failure::new(Exit::NotFound, format!("there is no vantage {name}")).fix("parallax vantage list")
}
