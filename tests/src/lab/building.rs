//! Our own programs beside this package's binary, for tests: Cargo builds the package's own binary for them, but not
//! the other packages'.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

/// The path of one of our programs, built once a process where Cargo runs us. `lab` is this package's own binary, as
/// Cargo names it to the test.
///
/// # Errors
/// It cannot be built.
pub fn ours(lab: &Path, name: &str) -> Result<PathBuf> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    match BUILT.get_or_init(|| build(lab).map_err(|error| format!("{error:#}"))) {
        Ok(()) => Ok(lab.with_file_name(name)),
        Err(why) => bail!("our programs cannot be built: {why}"),
    }
}

fn build(lab: &Path) -> Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    let profile = match lab.parent().and_then(Path::file_name).and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let mut command = Command::new(cargo);
    // The whole workspace, as the entry script builds it: another selection would compile everything again.
    command.args(["build", "--quiet", "--profile", profile, "--workspace", "--bins"]);
    command.args(["--features", "parallax-agent/lab"]).current_dir(env!("CARGO_MANIFEST_DIR"));
    let ended = command.status().context("starting cargo")?;
    if !ended.success() {
        bail!("cargo build ended with {ended}");
    }
    Ok(())
}
