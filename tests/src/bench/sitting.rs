//! What every part of a sitting shares: the agent's binary, a private directory, the authority and the targets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use parallax_proto::v1;

use super::agent::{Agent, Setup};
use super::authority::Authority;
use super::coordinator::Coordinator;
use super::targets::Targets;

/// Longest wait for the agent's stream.
const STREAM_MAX: Duration = Duration::from_secs(20);

/// One sitting.
pub struct Sitting {
    /// The agent's binary.
    pub binary: PathBuf,
    /// The authority of both ends of the stream and of the TLS targets.
    pub authority: Authority,
    /// What is probed.
    pub targets: Targets,
    directory: PathBuf,
}

impl Sitting {
    /// Starts the targets; what they need is written below `directory`.
    ///
    /// # Errors
    /// They do not start.
    pub async fn begin(binary: &Path, directory: &Path) -> Result<Self> {
        // Provider of the process: peers' crates may link more than one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = Authority::create()?;
        let targets = Targets::start(directory, &authority).await.context("starting the targets")?;
        Ok(Self { binary: binary.to_owned(), authority, targets, directory: directory.to_owned() })
    }

    /// The directory of the sitting.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A coordinator with this assignment, and what an agent of this name needs to find it.
    ///
    /// # Errors
    /// No port is free, or the files cannot be written.
    pub async fn pair(&self, name: &str, assignment: v1::Assignment) -> Result<(Coordinator, Setup)> {
        let coordinator = Coordinator::start(&self.authority, assignment).await?;
        let setup =
            Setup::write(&self.binary, &self.directory, name, &self.authority, &self.targets, coordinator.address)?;
        Ok((coordinator, setup))
    }

    /// A running agent whose stream is open.
    ///
    /// # Errors
    /// It does not start or does not connect; the message carries the end of its log.
    pub async fn agent(&self, name: &str, assignment: v1::Assignment) -> Result<(Coordinator, Agent)> {
        let (coordinator, setup) = self.pair(name, assignment).await?;
        let agent = Agent::start(setup)?;
        let opened = coordinator.until("the agent's stream", STREAM_MAX, |seen| seen.streams > 0).await;
        opened.with_context(|| format!("its log says:\n{}", agent.log_tail()))?;
        Ok((coordinator, agent))
    }
}
