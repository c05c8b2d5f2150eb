//! `parallax completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use super::{Cli, Global, print, print_json};
use crate::error::{Exit, Failure};

/// `parallax completions`
#[derive(Debug, Clone, Copy, Args)]
pub struct Completions {
    /// Which shell; bash: parallax completions bash >/etc/bash_completion.d/parallax
    pub shell: Shell,
}

/// Prints it.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(command: Completions, global: &Global) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Cli::command(), "parallax", &mut script);
    let script = String::from_utf8(script).map_err(|error| Failure::new(Exit::Failed, "no text").why(error))?;
    if global.json {
        return print_json(&json!({ "schema": 1, "shell": command.shell.to_string(), "script": script }));
    }
    print(&script)
}
