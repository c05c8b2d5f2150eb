//! The agent under measurement: the shipped binary as a process of its own, with an identity, a state folder and an
//! owner's file that allows the targets' network and rates above any real owner's.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::authority::Authority;
use super::ground::NETWORK;
use super::targets::Targets;
use crate::lab::process::Process;
use crate::lab::run_dir::{private, write_private};

/// How long it may take to stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Every limit in the owner's file: above what is asked for here, so that none is what is measured.
const RATE_MAX: u32 = 1_000_000;

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    /// Its state folder.
    pub state: PathBuf,
    /// Its log.
    pub log: PathBuf,
}

/// What an agent needs on disk, and its command line.
#[derive(Debug)]
pub struct Setup {
    /// Command that starts it.
    pub command: Command,
    /// Its state folder.
    pub state: PathBuf,
    /// Where its log goes.
    pub log: PathBuf,
}

impl Setup {
    /// Writes identity and owner's file below `directory`, in a folder of the given name.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn write(
        binary: &Path,
        directory: &Path,
        name: &str,
        authority: &Authority,
        targets: &Targets,
        coordinator: SocketAddr,
    ) -> Result<Self> {
        let folder = directory.join(name);
        private(&folder)?;
        authority.identity(&folder.join("identity"), "bench")?;
        write_private(&folder.join("roots.pem"), &authority.pem())?;
        write_private(&folder.join("local.yaml"), &owner_file(&folder, targets))?;
        let state = folder.join("state");
        let mut command = Command::new(binary);
        command.env_clear().arg("run").arg("--coordinator").arg(coordinator.to_string());
        command.arg("--identity").arg(folder.join("identity")).arg("--state").arg(&state);
        command.arg("--local").arg(folder.join("local.yaml"));
        Ok(Self { command, state, log: folder.join("log") })
    }
}

fn owner_file(folder: &Path, targets: &Targets) -> String {
    let mut file = "version: 1\n".to_owned();
    let _ = writeln!(file, "live_resolver: \"{}\"", targets.dns);
    let _ = writeln!(file, "tls_roots: {}", folder.join("roots.pem").display());
    let ports = targets.ports().iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let _ = writeln!(file, "allow:\n  ports: [{ports}]\n  private: [{NETWORK}]");
    for limit in [
        "connections_per_minute",
        "connections_per_minute_to_one",
        "connections_per_minute_to_network",
        "questions_per_minute",
        "questions_per_minute_to_one",
        "new_addresses_per_hour",
    ] {
        let _ = writeln!(file, "  {limit}: {RATE_MAX}");
    }
    file
}

impl Agent {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(setup: Setup) -> Result<Self> {
        let process = Process::start("parallax-agent", &setup.log, setup.command)?;
        Ok(Self { process, state: setup.state, log: setup.log })
    }

    /// Its process id.
    ///
    /// # Errors
    /// It has ended; the message carries the end of its log.
    pub fn pid(&mut self) -> Result<u32> {
        if let Some(ended) = self.process.ended() {
            bail!("the agent ended during the measurement: {ended}");
        }
        self.process.pid().context("the agent has no process id")
    }

    /// Stops it as a supervisor does; whether it ended by itself.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn stop(mut self) -> Result<bool> {
        self.process.stop(STOP_MAX).await
    }

    /// The end of its log.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.process.log_tail()
    }
}
