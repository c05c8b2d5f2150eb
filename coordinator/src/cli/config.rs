//! `parallax config`: check, example, show, schema, diff, reload.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::database::Database;
use super::reading::{connect, failed};
use super::{Global, local, print, print_json};
use crate::config::error::Fault;
use crate::config::{Config, WebListen, builtin, diff, schema, show};
use crate::error::{Exit, Failure};
use crate::report::moment::Zone;
use crate::store::config_version;

/// `parallax config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong with a configuration, line by line.
    Check(ConfigFile),
    /// Print a commented example with everything in it.
    Example,
    /// Show what a configuration means, with every default, or what is in force.
    Show(Show),
    /// Print the format as JSON Schema, for editors.
    Schema,
    /// Say what a configuration would change against the one in force; exit code 7 when it would.
    Diff(Diff),
    /// Make the coordinator on this machine read its configuration again.
    Reload(Reload),
}

/// `parallax config show`
#[derive(Debug, Clone, Args)]
pub struct Show {
    /// Which configuration.
    #[command(flatten)]
    pub file: ConfigFile,
    /// What is in force, from the database, with how the last attempts to read it again went.
    #[arg(long)]
    pub running: bool,
    /// Which database.
    #[command(flatten)]
    pub database: Database,
}

/// `parallax config reload`
#[derive(Debug, Clone, Args)]
pub struct Reload {
    /// Configuration file, for where the coordinator's page listens.
    #[command(flatten)]
    pub file: ConfigFile,
    /// Where it listens, when the file does not say so any more: ADDRESS:PORT or unix:/PATH.
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
}

/// `parallax config diff`
#[derive(Debug, Clone, Args)]
pub struct Diff {
    /// The configuration that would come.
    #[command(flatten)]
    pub file: ConfigFile,
    /// A file to compare with, instead of what is in force.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// The database that knows what is in force.
    #[command(flatten)]
    pub database: Database,
}

/// Which configuration.
#[derive(Debug, Clone, Args)]
pub struct ConfigFile {
    /// Configuration file; without one the built-in default, which watches three well-known names
    /// and changes nothing.
    #[arg(long = "config", env = "PARALLAX_CONFIG", value_name = "FILE")]
    pub path: Option<PathBuf>,
}

impl ConfigFile {
    /// Reads it.
    ///
    /// # Errors
    /// Every fault, with its place.
    pub fn load(&self) -> Result<Config, Failure> {
        Config::load(self.path.as_deref()).map_err(Failure::from)
    }
}

/// Runs it.
///
/// # Errors
/// Exit code 2 when the configuration has faults, 5 when the database or the coordinator cannot be reached.
pub async fn run(command: &ConfigCommand, global: &Global) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(file) if global.json => {
            let loaded = Config::load(file.path.as_deref());
            let faults = loaded.as_ref().err().map(|faults| faults.faults.as_slice()).unwrap_or_default();
            let faults: Vec<_> = faults.iter().map(placed).collect();
            let warnings = loaded.as_ref().ok().and_then(|config| config.warnings.as_ref());
            let warnings: Vec<_> = warnings.iter().flat_map(|warnings| warnings.faults.iter().map(placed)).collect();
            print_json(&json!({ "schema": 1, "ok": faults.is_empty(), "faults": faults, "warnings": warnings }))?;
            loaded.map(|_| ()).map_err(|faults| Failure::from(faults).printed())
        }
        ConfigCommand::Check(file) => {
            let config = file.load()?;
            let topology = &config.topology;
            let warnings = config.warnings.as_ref().map(|warnings| format!("\nwarning:\n{warnings}\n"));
            print(&format!(
                "ok: {} vantages, {} resolvers, {} canaries, {} controls, {} nodes, {} services\n{}",
                topology.vantages.len(),
                topology.resolvers.len(),
                topology.canaries.len(),
                topology.controls.len(),
                topology.nodes.len(),
                topology.services.len(),
                warnings.unwrap_or_default()
            ))
        }
        ConfigCommand::Example if global.json => print_json(&json!({ "schema": 1, "yaml": builtin::EXAMPLE })),
        ConfigCommand::Example => print(builtin::EXAMPLE),
        ConfigCommand::Schema => print_json(&schema::schema()),
        ConfigCommand::Diff(command) => {
            let after = command.file.load()?;
            let (before, after) = match &command.against {
                Some(path) => {
                    let before = ConfigFile { path: Some(path.clone()) }.load()?;
                    (show::as_json(&before), show::as_json(&after))
                }
                None => (in_force(&mut connect(&command.database).await?).await?.content, show::shared(&after)),
            };
            differences(&diff::between(&before, &after), global)
        }
        ConfigCommand::Reload(command) => reload(command, global).await,
        ConfigCommand::Show(command) => {
            let shown = if command.running {
                running(&mut connect(&command.database).await?).await?
            } else {
                show::as_json(&command.file.load()?)
            };
            if global.json {
                return print_json(&shown);
            }
            let yaml = serde_saphyr::to_string(&shown)
                .map_err(|error| Failure::new(Exit::Failed, "cannot print the configuration").why(error))?;
            print(&yaml)
        }
    }
}

/// A fault or a warning, for programs.
fn placed(fault: &Fault) -> Value {
    json!({ "line": fault.line, "column": fault.column, "message": fault.message })
}

/// What is in force, and how the last attempts went.
async fn running(connection: &mut PgConnection) -> Result<Value, Failure> {
    let found = in_force(&mut *connection).await?;
    let attempts = config_version::attempts(connection).await.map_err(failed)?;
    let time = |at| Zone::utc().date_time(at);
    let attempts: Vec<Value> = attempts
        .into_iter()
        .map(|one| {
            json!({
                "host": one.host, "at": time(one.at), "how": one.how, "in_force": one.number, "taken": one.error.is_none(),
                "error": one.error,
            })
        })
        .collect();
    Ok(json!({
        "schema": 1, "number": found.number, "since": time(found.at), "host": found.host, "how": found.how,
        "by": found.by, "last_reloads": attempts, "configuration": found.content,
    }))
}

async fn in_force(connection: &mut PgConnection) -> Result<config_version::InForce, Failure> {
    config_version::in_force(connection).await.map_err(failed)?.ok_or_else(|| {
        Failure::new(Exit::NotFound, "no configuration is in force")
            .why("no coordinator has run on this database")
            .fix("start it (parallax serve), or compare files with --against FILE")
    })
}

async fn reload(command: &Reload, global: &Global) -> Result<(), Failure> {
    let place = match &command.at {
        Some(text) => WebListen::named(text)
            .map_err(|why| Failure::new(Exit::Usage, format!("`{text}` is no place where a page listens")).why(why))?,
        None => command.file.load()?.listen.web,
    };
    let (status, answer) = local::ask(&place, Method::POST, "/-/reload").await?;
    let why = answer.get("why").and_then(Value::as_str).unwrap_or_default();
    if status.is_success() {
        return if global.json { print_json(&answer) } else { print("Taken: the configuration is in force.\n") };
    }
    if global.json {
        print_json(&answer)?;
    }
    let failure = if status == StatusCode::CONFLICT {
        Failure::new(Exit::Usage, "the configuration was refused; the one before stays in force").why(why)
    } else {
        Failure::new(Exit::Refused, format!("the coordinator at {place} did not read it again")).why(why)
    };
    Err(if global.json { failure.printed() } else { failure })
}

/// Prints what would change. Exit code 7 when something would.
fn differences(found: &[diff::Difference], global: &Global) -> Result<(), Failure> {
    if global.json {
        print_json(&json!({ "schema": 1, "differences": found }))?;
    } else if found.is_empty() {
        print("Nothing would change.\n")?;
    } else {
        print(&found.iter().map(|one| format!("{one}\n")).collect::<String>())?;
    }
    if found.is_empty() { Ok(()) } else { Err(Failure::answered(Exit::Changes)) }
}
