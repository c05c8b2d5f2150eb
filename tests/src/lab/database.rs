//! A Postgres of the lab's own, for several coordinators, reached through a gate each: the way to the
//! database can be cut for one of them, without a word and without closing a connection.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::process::{self, Process};
use super::programs;
use super::run_dir::private;

/// initdb and the first start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(60);

/// Name of the socket in its directory.
const SOCKET: &str = ".s.PGSQL.5432";

/// What a server of the pair is told besides what every one is: the primary waits for the standby, so that
/// what was acknowledged is at both.
const SYNCHRONOUS: &str = "alter system set synchronous_standby_names = '*'";

/// A running server, and a standby perhaps. Dropping it kills them.
#[derive(Debug)]
pub struct Database {
    server: Process,
    home: PathBuf,
    standby: Option<(Process, PathBuf)>,
}

impl Database {
    /// Makes and starts one in `directory`, below the run's; with a standby that follows it, if that is wanted.
    ///
    /// # Errors
    /// Postgres is missing, or does not start.
    pub async fn start(directory: &Path, log: &Path, with_standby: bool) -> Result<Self> {
        let home = directory.join("db");
        private(&home)?;
        let data = home.join("data");
        let mut command = as_owner(&home, &program("initdb")?)?;
        command.args(["-U", "parallax", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "-D"]).arg(&data);
        finish("initdb", command).await?;
        let server = launch(&home, log).await?;
        sql(&home, "postgres", "create database parallax").await?;
        let standby = if with_standby { Some(follow(directory, &home, log).await?) } else { None };
        Ok(Self { server, home, standby })
    }

    /// Directories of the servers' sockets: the primary's, then the standby's.
    #[must_use]
    pub fn homes(&self) -> Vec<&Path> {
        std::iter::once(self.home.as_path()).chain(self.standby.as_ref().map(|(_, home)| home.as_path())).collect()
    }

    /// Directory of the socket of the server that takes writes.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Kills the primary as a power cut would, and makes the standby the primary.
    ///
    /// # Errors
    /// There is no standby, or it does not become one.
    pub async fn fail_over(&mut self) -> Result<()> {
        let (standby, home) = self.standby.take().context("there is no standby")?;
        self.server.kill9().await?;
        sql(&home, "postgres", "select pg_promote()").await?;
        (self.server, self.home) = (standby, home);
        Ok(())
    }

    /// How it ended; none while it runs.
    pub fn ended(&mut self) -> Option<String> {
        self.server.ended().or_else(|| self.standby.as_mut().and_then(|(standby, _)| standby.ended()))
    }

    /// Stops it.
    ///
    /// # Errors
    /// The system refuses to kill it.
    pub async fn stop(&mut self, patience: Duration) -> Result<()> {
        let standby = self.standby.as_mut().map(|(standby, _)| standby);
        for server in std::iter::once(&mut self.server).chain(standby) {
            server.signal(nix::sys::signal::Signal::SIGINT);
            server.stop(patience).await?;
        }
        Ok(())
    }
}

async fn launch(home: &Path, log: &Path) -> Result<Process> {
    let mut command = as_owner(home, &program("postgres")?)?;
    command.arg("-D").arg(home.join("data")).args(["-c", "listen_addresses=", "-c", "jit=off", "-c"]);
    command.arg(format!("unix_socket_directories={}", home.display()));
    let mut server = Process::start("database", log, command)?;
    server.until("answering", START_MAX, async || sql(home, "postgres", "select 1").await.is_ok()).await?;
    Ok(server)
}

/// A standby of a server, which from then on acknowledges nothing that the standby does not have.
async fn follow(directory: &Path, primary: &Path, log: &Path) -> Result<(Process, PathBuf)> {
    let home = directory.join("db-standby");
    private(&home)?;
    let mut command = as_owner(&home, &program("pg_basebackup")?)?;
    command.args(["-U", "parallax", "-X", "stream", "-c", "fast", "--no-sync", "-R", "-h"]).arg(primary);
    finish("pg_basebackup", command.arg("-D").arg(home.join("data"))).await?;
    let standby = launch(&home, log).await?;
    sql(primary, "postgres", SYNCHRONOUS).await?;
    sql(primary, "postgres", "select pg_reload_conf()").await?;
    Ok((standby, home))
}

async fn finish(name: &str, mut command: impl std::borrow::BorrowMut<tokio::process::Command>) -> Result<()> {
    let output = command.borrow_mut().kill_on_drop(true).output().await.with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        bail!("{name} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

async fn sql(home: &Path, database: &str, statement: &str) -> Result<()> {
    let home = home.to_string_lossy();
    let arguments = ["-Xqw", "-v", "ON_ERROR_STOP=1", "-U", "parallax", "-h", &home, "-d", database, "-c", statement];
    process::run(None, &program("psql")?, &arguments).await.map(|_| ())
}

/// A program of Postgres.
///
/// # Errors
/// It is not installed.
pub fn program(name: &str) -> Result<PathBuf> {
    let given = std::env::var_os("PARALLAX_PG_BIN").map(|bin| PathBuf::from(bin).join(name)).filter(|p| p.is_file());
    let packaged = || {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut all: Vec<PathBuf> = versions.filter_map(|v| Some(v.ok()?.path().join("bin").join(name))).collect();
        all.sort();
        all.into_iter().rev().find(|p| p.is_file())
    };
    given
        .or_else(|| programs::find(name))
        .or_else(packaged)
        .with_context(|| format!("{name} of Postgres is not installed"))
}

/// A command under the user who owns the server's files: Postgres refuses to run as root.
pub(super) fn as_owner(home: &Path, program: &Path) -> Result<tokio::process::Command> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(tokio::process::Command::new(program));
    }
    let user = ["postgres", "nobody"].into_iter().find_map(|name| nix::unistd::User::from_name(name).ok().flatten());
    let user = user.context("there is no user postgres or nobody to run Postgres as")?;
    std::os::unix::fs::chown(home, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    // Its users come as root, and through the run's directory.
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700))?;
    let mut command = tokio::process::Command::new(program);
    command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir(home);
    Ok(command)
}

/// A way to the database that can fall silent.
#[derive(Debug)]
pub struct Gate {
    home: PathBuf,
    silent: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Gate {
    /// Opens one in `home`, which becomes a directory with a socket for clients.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(home: &Path, database: &Path) -> Result<Self> {
        private(home)?;
        let listener =
            UnixListener::bind(home.join(SOCKET)).with_context(|| format!("a socket in {}", home.display()))?;
        let (silent, state) = watch::channel(false);
        let server = Arc::new(database.join(SOCKET));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, Arc::clone(&server), state.clone()));
            }
        });
        Ok(Self { home: home.to_owned(), silent, task })
    }

    /// Directory for clients.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// From now on nothing passes, in either direction, and nothing is closed: as when a cable is pulled.
    pub fn silence(&self) {
        self.silent.send_replace(true);
    }

    /// Everything passes again, also what waited.
    pub fn restore(&self) {
        self.silent.send_replace(false);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(client: UnixStream, server: Arc<PathBuf>, mut silent: watch::Receiver<bool>) {
    if open(&mut silent).await.is_none() {
        return;
    }
    let Ok(server) = UnixStream::connect(server.as_path()).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = copy(from_client, to_server, silent.clone());
    tokio::join!(up, copy(from_server, to_client, silent));
}

async fn copy(
    mut from: tokio::net::unix::OwnedReadHalf,
    mut to: tokio::net::unix::OwnedWriteHalf,
    mut silent: watch::Receiver<bool>,
) {
    let mut buffer = vec![0_u8; 16 * 1024];
    while let Ok(count) = from.read(&mut buffer).await {
        // An end is news too: it does not pass a cut cable.
        if open(&mut silent).await.is_none()
            || count == 0
            || to.write_all(buffer.get(..count).unwrap_or_default()).await.is_err()
        {
            return;
        }
    }
}

/// Waits until the gate is open. None: it is gone.
async fn open(silent: &mut watch::Receiver<bool>) -> Option<()> {
    silent.wait_for(|silent| !silent).await.ok().map(|_| ())
}
