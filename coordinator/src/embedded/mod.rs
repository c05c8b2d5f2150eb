//! The Postgres that comes along when no database is given: the machine's own binaries, a data
//! directory of ours, reachable through a Unix socket only.
//!
//! ```text
//! STATE/pg/data           made by initdb in data.new.PID and renamed, so that a half-made one is never used
//! STATE/pg/socket/        .s.PGSQL.5432; only the server's user may enter
//! STATE/pg/postgres.log   what the server said
//! STATE/lock              held while a coordinator runs the server
//! ```
//!
//! Postgres refuses to run as root. When the coordinator is root, the server runs as `postgres`,
//! `parallax` or `nobody`, whichever exists first, and owns the directories. A server that was
//! left running (the coordinator was killed) is adopted, one that dies is started again; on a regular
//! end the server is stopped.

use std::convert::Infallible;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection};

use crate::clock::monotonic;
use crate::error::{Exit, Failure};
use crate::store::setup;

mod binaries;
mod server;
#[cfg(test)]
mod tests;

pub use binaries::Binaries;
use server::{Owner, Running};

/// The role and the database.
const NAME: &str = "parallax";

/// A crashed server replays its log before it answers; a large log takes time.
const START_WITHIN: Duration = Duration::from_secs(120);

/// How often it is looked whether the server still runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Longest path of a Unix socket, in bytes (`sun_path` of Linux, less its final zero).
const SOCKET_PATH_MAX: usize = 107;

/// A running server of ours.
#[derive(Debug)]
pub struct Embedded {
    place: Place,
    running: Running,
    /// The kernel gives it up with the process, however that ends.
    _lock: File,
}

/// Where it is, and what is needed to start it again.
#[derive(Debug)]
struct Place {
    options: PgConnectOptions,
    owner: Owner,
    bin: Option<PathBuf>,
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

/// How to reach the server of a state directory, whether or not it runs.
///
/// # Errors
/// When the path is too long for a socket.
pub fn connect_options(state: &Path) -> Result<PgConnectOptions, Failure> {
    let socket = absolute(&state.join("pg/socket"))?;
    let length = socket.join(".s.PGSQL.5432").as_os_str().len();
    if length > SOCKET_PATH_MAX {
        return Err(Failure::new(Exit::Usage, "the state directory's path is too long")
            .why(format!("the database's socket would have {length} bytes; Unix allows {SOCKET_PATH_MAX}"))
            .fix("choose a shorter directory with --state"));
    }
    Ok(PgConnectOptions::new_without_pgpass().socket(socket).port(5432).username(NAME).database(NAME))
}

/// Programs of the version that made the data: of another one they may not read each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientPrograms {
    /// `pg_dump`.
    pub dump: PathBuf,
    /// `pg_restore`.
    pub restore: PathBuf,
}

/// Where the server of a state directory has its socket.
///
/// # Errors
/// When the path cannot be made absolute.
pub fn socket(state: &Path) -> Result<PathBuf, Failure> {
    absolute(&state.join("pg/socket"))
}

/// Finds `pg_dump` and `pg_restore` beside the server that made the data of a state directory.
///
/// # Errors
/// When there are none: a bare server does not bring them along.
pub fn client_programs(state: &Path, bin: Option<&Path>) -> Result<ClientPrograms, Failure> {
    let binaries = Binaries::find(bin, binaries::major_of(&state.join("pg/data"))?)?;
    // A link on the PATH leads to where all of them are.
    let server = std::fs::canonicalize(&binaries.postgres).unwrap_or_else(|_| binaries.postgres.clone());
    let found = ClientPrograms { dump: server.with_file_name("pg_dump"), restore: server.with_file_name("pg_restore") };
    let missing = [&found.dump, &found.restore].into_iter().find(|program| !program.is_file()).cloned();
    match missing {
        None => Ok(found),
        Some(missing) => Err(Failure::new(Exit::NotFound, "the programs that copy a database are missing")
            .why(format!("{} is not there", missing.display()))
            .fix(format!(
                "install Debian's package postgresql-client-{0} beside postgresql-{0}, or give a folder with all of \
                 them with --pg-bin",
                binaries.major
            ))),
    }
}

impl Embedded {
    /// Starts the server of a state directory, making it on the first run, or adopts the one that
    /// runs. `bin` is a folder with `initdb` and `postgres` in it or somewhere below.
    ///
    /// # Errors
    /// When there is no Postgres on the machine, or a wrong version, or it does not start, or another
    /// coordinator runs it.
    pub async fn start(state: &Path, bin: Option<&Path>) -> Result<Self, Failure> {
        let options = connect_options(state)?;
        let pg = absolute(&state.join("pg"))?;
        let owner = Owner::choose(&pg)?;
        let (data, socket, log) = (pg.join("data"), pg.join("socket"), pg.join("postgres.log"));
        owner.make_directory(&pg, 0o755)?;
        // A second coordinator would adopt the server of the first and stop it when it ends itself.
        let lock = lock(&state.join("lock"))?;
        owner.make_directory(&socket, 0o700)?;
        let place = Place { options, owner, bin: bin.map(Path::to_path_buf), data, socket, log };
        let running = match server::adopt(&place.data) {
            Some(running) => {
                tracing::info!(pid = running.pid(), "adopted the database that was left running");
                running
            }
            None => place.launch().await?,
        };
        let mut embedded = Self { place, running, _lock: lock };
        embedded.wait_ready().await?;
        Ok(embedded)
    }

    /// Starts the server again whenever it ends by itself: killed, out of memory. Never returns;
    /// meanwhile agents wait and nothing is decided.
    pub async fn keep_running(&mut self) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.running.has_ended() {
                continue;
            }
            if !self.place.data.exists() {
                // An empty database in its place would take what agents acknowledged for never sent.
                tracing::error!(data = %self.place.data.display(), "the embedded database's data is gone; it is not made anew");
                continue;
            }
            tracing::error!(log = %self.place.log.display(), "the embedded database has ended; starting it again");
            match self.place.launch().await {
                Ok(running) => self.running = running,
                Err(error) => tracing::error!(%error, "the embedded database does not start again"),
            }
        }
    }

    /// Stops the server: open transactions are rolled back, everything committed is kept.
    pub async fn stop(mut self) {
        self.running.stop(&self.place.data).await;
    }

    /// Waits until the server answers, and makes our database on the first run.
    async fn wait_ready(&mut self) -> Result<(), Failure> {
        let (begun, place) = (monotonic(), &self.place);
        let options = place.options.clone().database("postgres");
        let mut connection = loop {
            let error = match PgConnection::connect_with(&options).await {
                Ok(connection) => break connection,
                Err(error) => error,
            };
            if self.running.has_ended() {
                return Err(Failure::new(Exit::Failed, "the embedded Postgres did not start")
                    .why(server::tail(&place.log))
                    .fix(format!("read {}; the data is in {}", place.log.display(), place.data.display())));
            }
            if begun.elapsed() > START_WITHIN {
                return Err(Failure::new(Exit::Unreachable, "the embedded Postgres does not answer")
                    .why(error)
                    .fix(format!("read {}", place.log.display())));
            }
            tokio::time::sleep(Duration::from_millis(15)).await;
        };
        setup::make_database(&mut connection)
            .await
            .map_err(|error| Failure::new(Exit::Failed, "cannot make the database `parallax`").why(error))?;
        let _ = connection.close().await;
        Ok(())
    }
}

impl Place {
    /// Starts the server, making its data on the first run.
    async fn launch(&self) -> Result<Running, Failure> {
        let binaries = Binaries::find(self.bin.as_deref(), binaries::major_of(&self.data)?)?;
        if !self.data.exists() {
            server::initialise(&binaries, &self.owner, &self.data).await?;
        }
        server::launch(&binaries, &self.owner, &self.data, &self.socket, &self.log)
    }
}

fn lock(path: &Path) -> Result<File, Failure> {
    let failed = |why: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot lock {}", path.display()))
            .why(why)
            .fix("choose another directory with --state")
    };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Failure::new(Exit::Refused, "a coordinator runs with this state already")
            .why(format!("another process holds {}", path.display()))
            .fix("stop it, or give this one another --state; several coordinators share a --database-url")),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(Exit::Usage, "bad state directory").why(error))
}
