//! Makes, starts, adopts and stops the server process.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

use super::{Binaries, NAME};
use crate::clock::monotonic;
use crate::error::{Exit, Failure};

/// A fast shutdown writes a checkpoint; on a slow disk that takes a while.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// How much of the server's log an error message carries.
const TAIL_LINES: usize = 5;

/// The log is moved aside at a start when it is longer than this, in bytes.
const LOG_BYTES_MAX: u64 = 10 << 20;

/// Settings: a small server for one client program on the same machine, durable as shipped.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "shared_buffers=64MB",
    "max_connections=30",
    "max_wal_size=512MB",
    "synchronous_commit=on",
    // The shipped unit forbids memory that is both writable and executable; our queries are short.
    "jit=off",
    "timezone=UTC",
    "log_timezone=UTC",
    "log_min_messages=warning",
];

/// Who runs the server and owns its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// The user of this process.
    Same,
    /// Another user: this process is root, which Postgres refuses.
    Other {
        /// User id.
        uid: u32,
        /// Group id.
        gid: u32,
        /// Name, for messages.
        name: String,
    },
}

impl Owner {
    /// Chooses for a directory: when root, whoever owns the existing data, else the first of the
    /// users that a server may run as.
    pub(super) fn choose(pg: &Path) -> Result<Self, Failure> {
        if !geteuid().is_root() {
            return Ok(Self::Same);
        }
        if let Ok(data) = fs::metadata(pg.join("data")) {
            use std::os::unix::fs::MetadataExt;
            if data.uid() != 0 {
                return Ok(Self::Other { uid: data.uid(), gid: data.gid(), name: format!("uid {}", data.uid()) });
            }
        }
        for name in ["postgres", NAME, "nobody"] {
            if let Ok(Some(user)) = User::from_name(name) {
                return Ok(Self::Other { uid: user.uid.as_raw(), gid: user.gid.as_raw(), name: user.name });
            }
        }
        Err(Failure::new(Exit::Failed, "Postgres refuses to run as root")
            .why("there is no user `postgres`, `parallax` or `nobody` to run it as")
            .fix("start parallax as an ordinary user, or use --database-url"))
    }

    /// Makes a directory that belongs to the owner.
    pub(super) fn make_directory(&self, path: &Path, mode: u32) -> Result<(), Failure> {
        let failed = |what: &str, error: std::io::Error| {
            Failure::new(Exit::Failed, format!("cannot {what} {}", path.display()))
                .why(error)
                .fix("choose another directory with --state")
        };
        fs::create_dir_all(path).map_err(|error| failed("make", error))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(|error| failed("set the mode of", error))?;
        self.give(path).map_err(|error| failed("change the owner of", error))
    }

    fn give(&self, path: &Path) -> std::io::Result<()> {
        match self {
            Self::Same => Ok(()),
            Self::Other { uid, gid, .. } => chown(path, Some(*uid), Some(*gid)),
        }
    }

    /// A command that runs as the owner, in a directory that it may read, and apart from the
    /// terminal: a Ctrl-C there is for the coordinator, which stops the server last.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").stdin(Stdio::null()).process_group(0).env("LC_ALL", "C").env("TZ", "UTC");
        match self {
            Self::Same => {}
            Self::Other { uid, gid, .. } => {
                command.uid(*uid).gid(*gid);
            }
        }
        command
    }

    fn hint(&self, path: &Path) -> String {
        match self {
            Self::Same => format!("make sure that {} can be written", path.display()),
            Self::Other { name, .. } => {
                format!("user {name} must be able to enter every directory above {}", path.display())
            }
        }
    }
}

/// A server process.
#[derive(Debug)]
pub(super) struct Running {
    pid: Pid,
    child: Option<Child>,
}

impl Running {
    pub(super) fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// Whether the process is gone. A child is reaped by asking.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.child {
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => is_gone(self.pid),
        }
    }

    /// Asks for a fast shutdown and waits for it.
    pub(super) async fn stop(&mut self, data: &Path) {
        if let Err(error) = kill(self.pid, Signal::SIGINT) {
            tracing::warn!(pid = self.pid(), %error, "cannot signal the embedded database");
        }
        let begun = monotonic();
        while !self.has_ended() {
            if begun.elapsed() > STOP_WITHIN {
                tracing::error!(pid = self.pid(), data = %data.display(), "the embedded database does not stop; left running");
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Whether a process that is not our child has ended: it is gone, or waits for a parent that does
/// not ask (as where process 1 of a container reaps nobody).
fn is_gone(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // The name in parentheses may hold anything; the state is the first word behind it.
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

/// The server that runs on this data, from its pid file. A stale file (a crash, a reboot) names a
/// process that is gone or is something else.
pub(super) fn adopt(data: &Path) -> Option<Running> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    let is_postgres = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim() == "postgres";
    let same_data =
        fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| fs::canonicalize(data).is_ok_and(|data| cwd == data));
    let running = Running { pid: Pid::from_raw(pid), child: None };
    (pid > 1 && is_postgres && same_data && !is_gone(running.pid)).then_some(running)
}

/// Makes the data directory beside its place and renames it.
pub(super) async fn initialise(binaries: &Binaries, owner: &Owner, data: &Path) -> Result<(), Failure> {
    // A name of our own: when a coordinator was killed here, its initdb may still be at work, and
    // removes what it made if it fails.
    let new: PathBuf = data.with_extension(format!("new.{}", std::process::id()));
    let failed =
        |why: String| Failure::new(Exit::Failed, "cannot make the embedded database").why(why).fix(owner.hint(data));
    let half_made = data.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for entry in half_made.filter(|entry| entry.file_name().to_string_lossy().starts_with("data.new")) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(folder = %entry.path().display(), %error, "a half-made database is left; it is never used");
        }
    }
    tracing::info!(version = binaries.major, data = %data.display(), "making the embedded database");
    let mut command = owner.command(&binaries.initdb);
    command.arg("--pgdata").arg(&new).args(["--username", NAME, "--auth", "trust", "--encoding", "UTF8"]);
    command.args(["--locale", "C", "--no-instructions"]);
    let said = tokio::task::spawn_blocking(move || command.output())
        .await
        .map_err(|error| failed(error.to_string()))?
        .map_err(|error| failed(format!("{}: {error}", binaries.initdb.display())))?;
    if !said.status.success() {
        return Err(failed(last_lines(&String::from_utf8_lossy(&said.stderr))));
    }
    fs::rename(&new, data).map_err(|error| failed(format!("cannot rename {}: {error}", new.display())))
}

/// Starts the server.
pub(super) fn launch(
    binaries: &Binaries,
    owner: &Owner,
    data: &Path,
    socket: &Path,
    log: &Path,
) -> Result<Running, Failure> {
    let failed = |why: std::io::Error| {
        Failure::new(Exit::Failed, "cannot start the embedded Postgres").why(why).fix(owner.hint(data))
    };
    if fs::metadata(log).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
        fs::rename(log, log.with_extension("log.old")).map_err(failed)?;
    }
    let out = fs::OpenOptions::new().create(true).append(true).open(log).map_err(failed)?;
    let mut command = owner.command(&binaries.postgres);
    command.arg("-D").arg(data).arg("-k").arg(socket);
    for setting in SETTINGS {
        command.args(["-c", setting]);
    }
    command.stdout(out.try_clone().map_err(failed)?).stderr(out);
    let child = command.spawn().map_err(failed)?;
    let pid = i32::try_from(child.id()).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(Running { pid: Pid::from_raw(pid), child: Some(child) })
}

/// The last lines of the server's log.
pub(super) fn tail(log: &Path) -> String {
    match fs::read(log) {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes)),
        Err(error) => format!("its log cannot be read: {error}"),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join(" | ")
}
