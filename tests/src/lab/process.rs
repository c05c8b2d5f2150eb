//! A child process with a log file, killed when it is dropped.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};

use crate::clock::now;

/// Lines of a log that a failure message shows.
const TAIL_LINES_MAX: usize = 25;

/// One running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    peak_rss_kib: u64,
}

/// A command to run in a place: through `ip netns exec` where there are namespaces.
#[must_use]
pub fn command(namespace: Option<&str>, program: &Path) -> Command {
    match namespace {
        Some(namespace) => {
            let mut command = Command::new("ip");
            command.args(["netns", "exec", namespace]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// It cannot be started, or ends with another code than 0; the message carries what it said.
pub async fn run<S: AsRef<OsStr>>(namespace: Option<&str>, program: &Path, arguments: &[S]) -> Result<String> {
    let mut command = command(namespace, program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.with_context(|| format!("starting {}", program.display()))?;
    if !output.status.success() {
        bail!(
            "{} ended with {}: {}{}",
            program.display(),
            output.status,
            String::from_utf8_lossy(&output.stderr),
            String::from_utf8_lossy(&output.stdout)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Process {
    /// Starts a command; its output is appended to `log`.
    ///
    /// # Errors
    /// The log cannot be opened or the program not started.
    pub fn start(name: &str, log: &Path, mut command: Command) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: log.to_owned(), peak_rss_kib: 0 })
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("{} ended with {status}; its log says:\n{}", self.name, self.log_tail())),
            Err(error) => Some(format!("{} cannot be waited for: {error}", self.name)),
        }
    }

    /// The last lines of its log, indented.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.log)
    }

    /// Waits until `ready` says so.
    ///
    /// # Errors
    /// The process ends first, or `limit` passes; the message carries the tail of the log.
    pub async fn until<F: AsyncFnMut() -> bool>(&mut self, what: &str, limit: Duration, mut ready: F) -> Result<()> {
        let start = now();
        loop {
            if let Some(ended) = self.ended() {
                bail!("{what} did not happen: {ended}");
            }
            if ready().await {
                return Ok(());
            }
            if start.elapsed() > limit {
                bail!("{}: {what} did not happen within {limit:?}; its log says:\n{}", self.name, self.log_tail());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Largest resident set it had so far, KiB.
    pub fn peak_rss_kib(&mut self) -> u64 {
        if let Some(pid) = self.pid()
            && let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status"))
        {
            let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
            let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0);
            self.peak_rss_kib = self.peak_rss_kib.max(kib);
        }
        self.peak_rss_kib
    }

    /// Sends a signal, if it still runs.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid().and_then(|p| i32::try_from(p).ok()) {
            // It may end in between; then there is nothing to signal.
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Kills it at once, as a power cut would, and waits until it is gone.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn kill9(&mut self) -> Result<()> {
        self.peak_rss_kib();
        self.child.kill().await.with_context(|| format!("killing {}", self.name))
    }

    /// Asks it to end; kills it when it has not after `patience`. Returns whether it ended by itself.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn stop(&mut self, patience: Duration) -> Result<bool> {
        self.peak_rss_kib();
        self.signal(Signal::SIGTERM);
        if tokio::time::timeout(patience, self.child.wait()).await.is_ok() {
            return Ok(true);
        }
        self.kill9().await?;
        Ok(false)
    }
}

/// The last lines of a log file, indented.
#[must_use]
pub fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL_LINES_MAX);
    lines[from..].iter().map(|l| format!("    {l}\n")).collect()
}
