//! The outermost process: stays in the host's namespaces, owns the run's directory, carries the page to the host's
//! loopback, and sees to it that nothing is left behind.
//!
//! The inner process runs in a process group of its own, so that Ctrl-C reaches only us, and holds the read end of a
//! pipe: when we end, however we end, it sees the end of file and stops. When *it* ends, however it ends, we clean up.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use crate::lab::enter::{self, Decision};
use crate::lab::layout::Kind;
use crate::lab::run_dir::RunDir;
use crate::page::Page;

/// How long the inner process gets to stop its servers and the database.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// How often removing the directory is tried.
const REMOVALS_MAX: u32 = 5;
/// Exit code after Ctrl-C, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Runs `parallax-lab ARGUMENTS --inside DIR` in the world and returns its exit code.
///
/// # Errors
/// The directory or the process cannot be made.
pub async fn run(decision: &Decision, arguments: &[OsString], page: Option<Page>, keep: bool) -> Result<u8> {
    let directory = RunDir::create()?;
    let lab = std::env::current_exe().context("finding the running executable")?;
    let mut inside = arguments.to_vec();
    inside.extend([OsString::from("--world"), decision.kind.word().into(), "--inside".into(), directory.path().into()]);
    let mut command = enter::command(decision.kind, &lab, &lab, &inside)?;
    command.stdin(Stdio::piped()).process_group(0);
    let mut signals =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    let mut child = Command::from(command).spawn().context("starting the inner process")?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let lifeline = child.stdin.take();
    let carrying = page.map(|p| tokio::spawn(p.carry(directory.path().join(crate::page::SOCKET))));

    let [interrupt, terminate, hangup] = &mut signals;
    let ended = tokio::select! {
        status = child.wait() => Some(status.context("waiting for the inner process")?),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    };
    let code = match ended {
        Some(status) => enter::exit_code(status),
        None => {
            let _ = writeln!(std::io::stderr(), "\nstopping; removing everything that was made");
            drop(lifeline);
            if tokio::time::timeout(STOP_PATIENCE, child.wait()).await.is_err() {
                child.start_kill().context("killing the inner process")?;
                child.wait().await?;
            }
            INTERRUPTED
        }
    };
    if let Some(carrying) = carrying {
        carrying.abort();
    }
    sweep(decision.kind, group, &directory);
    if keep {
        eprintln!("kept: {}", directory.keep().display());
    }
    Ok(code)
}

/// Ends what an inner process that died unexpectedly has left. The pid namespace does it in the namespace world.
fn sweep(kind: Kind, group: Option<Pid>, directory: &RunDir) {
    if kind == Kind::Namespaces {
        return;
    }
    if let Some(group) = group {
        // Nobody left in the group is the usual case.
        let _ = killpg(group, Signal::SIGKILL);
    }
    // A Postgres outlives a coordinator that was killed; its pid file is in our directory, so it is ours.
    let pid_file = directory.path().join("coordinator/pg/data/postmaster.pid");
    let postmaster = std::fs::read_to_string(pid_file).ok().and_then(|t| t.lines().next()?.trim().parse().ok());
    if let Some(pid) = postmaster {
        let _ = kill(Pid::from_raw(pid), Signal::SIGQUIT);
    }
}

/// Removes the run's directory in place of an outermost process that was killed. Where it lives, it does the same.
pub fn remove(directory: &Path) {
    for _ in 0..REMOVALS_MAX {
        // A server that is just dying may still write a file.
        if std::fs::remove_dir_all(directory).is_ok() || !directory.exists() {
            return;
        }
    }
}

/// Completes when the outermost process is gone or wants us to stop.
pub async fn told_to_stop() {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Nothing is ever written: reading returns at the end of the outermost process.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = tell.send(());
    });
    let _ = told.await;
}
