//! `parallax config`: check, example, show, schema, diff.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Global, print, print_json};
use crate::config::error::Faults;
use crate::config::{Config, builtin, diff, schema, show};
use crate::error::{Exit, Failure};

/// `parallax config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong with a configuration, line by line.
    Check(ConfigFile),
    /// Print a commented example with everything in it.
    Example,
    /// Show what a configuration means, with every default.
    Show(ConfigFile),
    /// Print the format as JSON Schema, for editors.
    Schema,
    /// Say what a configuration would change; exit code 7 when it would.
    Diff(Diff),
}

/// `parallax config diff`
#[derive(Debug, Clone, Args)]
pub struct Diff {
    /// The configuration that would come.
    #[command(flatten)]
    pub file: ConfigFile,
    /// The file to compare with.
    #[arg(long, value_name = "FILE")]
    pub against: PathBuf,
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
        Config::load(self.path.as_deref()).map_err(refused)
    }
}

fn refused(faults: Faults) -> Failure {
    Failure::new(Exit::Usage, format!("the configuration has {}", count(&faults)))
        .why(faults)
        .fix("parallax config example prints a complete file, parallax config schema completes it in an editor")
}

fn count(faults: &Faults) -> String {
    match faults.faults.len() {
        1 => "one fault".to_owned(),
        n => format!("{n} faults"),
    }
}

/// Runs it.
///
/// # Errors
/// Exit code 2 when the configuration has faults.
pub fn run(command: &ConfigCommand, global: &Global) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check(file) if global.json => {
            let loaded = Config::load(file.path.as_deref());
            let faults = loaded.as_ref().err().map(|faults| faults.faults.as_slice()).unwrap_or_default();
            let faults: Vec<_> = faults
                .iter()
                .map(|fault| json!({ "line": fault.line, "column": fault.column, "message": fault.message }))
                .collect();
            print_json(&json!({ "schema": 1, "ok": faults.is_empty(), "faults": faults }))?;
            loaded.map(|_| ()).map_err(|faults| refused(faults).printed())
        }
        ConfigCommand::Check(file) => {
            let config = file.load()?;
            let topology = &config.topology;
            print(&format!(
                "ok: {} vantages, {} resolvers, {} canaries, {} controls, {} nodes, {} services\n",
                topology.vantages.len(),
                topology.resolvers.len(),
                topology.canaries.len(),
                topology.controls.len(),
                topology.nodes.len(),
                topology.services.len()
            ))
        }
        ConfigCommand::Example if global.json => print_json(&json!({ "schema": 1, "yaml": builtin::EXAMPLE })),
        ConfigCommand::Example => print(builtin::EXAMPLE),
        ConfigCommand::Schema => print_json(&schema::schema()),
        ConfigCommand::Diff(command) => {
            let after = show::as_json(&command.file.load()?);
            let before = show::as_json(&ConfigFile { path: Some(command.against.clone()) }.load()?);
            differences(&diff::between(&before, &after), global)
        }
        ConfigCommand::Show(file) => {
            let shown = show::as_json(&file.load()?);
            if global.json {
                return print_json(&shown);
            }
            let yaml = serde_saphyr::to_string(&shown)
                .map_err(|error| Failure::new(Exit::Failed, "cannot print the configuration").why(error))?;
            print(&yaml)
        }
    }
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
