//! Deciding which world this machine allows, and entering it.
//!
//! The namespace world needs a network, a mount and a pid namespace; an ordinary user gets them inside a user namespace
//! that keeps his own uid, so that Postgres, which refuses uid 0, runs inside too. The pid namespace is also the
//! clean-up: when its first process ends, everything in it ends, whatever it did to hide.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::layout::Kind;
use super::programs;

/// What was decided, and why.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The world.
    pub kind: Kind,
    /// Why not the other one; empty when nothing stood in the way.
    pub reason: String,
}

/// Tries what the namespace world needs, in a throw-away copy of it.
#[must_use]
pub fn decide() -> Decision {
    let script = "mount -t tmpfs lab /run && mkdir /run/netns && ip netns add probe && ip netns exec probe nft 'add table ip probe'";
    attempt(&["unshare", "ip", "nft", "mount"], script)
}

/// As [`decide`], for a single network whose loopback interface has further addresses.
#[must_use]
pub fn decide_single() -> Decision {
    let script = "mount -t tmpfs lab /run && ip link set lo up && ip address add 198.18.0.1/15 dev lo";
    attempt(&["unshare", "ip", "mount"], script)
}

fn attempt(needed: &[&str], script: &str) -> Decision {
    let refused = |reason: String| Decision { kind: Kind::Loopback, reason };
    for program in needed {
        if programs::find(program).is_none() {
            return refused(format!("{program} is not installed"));
        }
    }
    let Ok(path) = programs::path() else { return refused("PATH cannot be used".to_owned()) };
    let mut command = Command::new("unshare");
    command.args(flags()).args(["sh", "-c", script]).env("PATH", path).stdin(Stdio::null());
    let tried = command.output();
    match tried {
        Ok(output) if output.status.success() => Decision { kind: Kind::Namespaces, reason: String::new() },
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            refused(format!("namespaces are refused here: {}", said.lines().next().unwrap_or("no reason given").trim()))
        }
        Err(error) => refused(format!("unshare cannot be started: {error}")),
    }
}

/// `unshare`'s flags for the namespace world.
fn flags() -> Vec<&'static str> {
    let mut flags = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        // All capabilities inside, with the uid kept.
        flags.extend(["--map-current-user", "--keep-caps"]);
    }
    flags.extend(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]);
    flags
}

/// The command that runs `program` in the world: inside fresh namespaces under `lab init`, or as it is.
///
/// # Errors
/// PATH cannot be used.
pub fn command(kind: Kind, lab: &Path, program: &Path, arguments: &[OsString]) -> Result<Command> {
    let mut command;
    match kind {
        Kind::Namespaces => {
            command = Command::new("unshare");
            command.args(flags()).arg(lab).arg("init").arg("--").arg(program);
        }
        Kind::Loopback => command = Command::new(program),
    }
    command.args(arguments).env("PATH", programs::path()?);
    // So that neither Postgres nor a server picks up the caller's settings.
    for variable in
        ["DATABASE_URL", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD", "PGSERVICE", "NOTIFY_SOCKET"]
    {
        command.env_remove(variable);
    }
    Ok(command)
}

/// First process of the pid namespace: prepares `/run`, runs the command, reaps whoever is orphaned meanwhile (a dead
/// Postgres that nobody waits for would look alive), and ends with the command's exit code.
///
/// # Errors
/// `/run` cannot be covered or the command not started.
pub fn init(command: &[OsString]) -> Result<u8> {
    // `ip netns` keeps its names in /run/netns; the host's are neither visible nor writable here.
    let mounted = Command::new("mount").args(["-t", "tmpfs", "lab", "/run"]).status().context("starting mount")?;
    anyhow::ensure!(mounted.success(), "a tmpfs on /run was refused");
    std::fs::create_dir("/run/netns").context("making /run/netns")?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().context("starting ip")?;
    anyhow::ensure!(up.success(), "the loopback interface was refused");

    let (program, arguments) = command.split_first().context("no command given")?;
    let child =
        Command::new(program).args(arguments).spawn().with_context(|| format!("starting {}", program.display()))?;
    let child = Pid::from_raw(i32::try_from(child.id())?);
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == child => return Ok(u8::try_from(code & 0xff)?),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => return Ok(128 + u8::try_from(signal as i32)?),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("waiting for children"),
        }
    }
}

/// The exit code of an ended child as a shell would give it.
#[must_use]
pub fn exit_code(status: std::process::ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(1)
}
