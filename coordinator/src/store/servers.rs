//! The servers of one Postgres cluster, and finding the one that takes writes.
//!
//! sqlx knows one server a pool. Here the pool's address follows the primary: [`Servers::pool`] opens
//! a pool, and [`Follower`] keeps one session of its own at the server in use, asks it every second
//! whether it takes writes, and looks for another as soon as it does not. A connection is handed out
//! only after it said that it takes writes, and none that is older than the last change of server, so
//! that a pool never holds on to a former primary.

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, Row};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{ACQUIRE_WITHIN, CONNECTIONS_MAX, quiet};
use crate::clock::monotonic;

mod url;

pub use url::{SERVERS_MAX, UrlError};

/// How long one server may take to let us in before the next one is tried.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// How long a session may take to say whether it takes writes. One that says nothing is dead: the
/// network gives no sign when a machine is gone.
const TEST_WITHIN: Duration = Duration::from_secs(2);

/// A session that came back to the pool so short a while ago was asked then whether it takes writes.
const TRUSTED_FOR: Duration = Duration::from_millis(100);

/// Pause between two questions to the server in use. With [`TEST_WITHIN`] and [`CONNECT_WITHIN`] it
/// bounds how long a new primary stays unnoticed: 6 s and 3 s for each server that is silent.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// Pause before the servers are gone through again for the sake of one bad session.
const DOUBT_PAUSE: Duration = Duration::from_millis(200);

/// Which sessions will do. `target_session_attrs` of the URL, in libpq's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// One that takes writes. Always so for the coordinator itself.
    ReadWrite,
    /// Any: only for a command that reads.
    Any,
}

/// The servers of one cluster, in the order in which they are tried.
#[derive(Clone)]
pub struct Servers {
    options: Vec<PgConnectOptions>,
    target: Target,
    /// Place of the server that took writes last. Clones share it.
    last: Arc<AtomicUsize>,
    /// As it was given, to see whether it changed. It may hold a password.
    given: SecretString,
}

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.options.iter().map(name)).finish()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NoServer {
    /// One line a server: which, and what is wrong with it.
    #[error("{}", .0.join("\n"))]
    NoneUsable(Vec<String>),
}

/// Every how many questions the URL is read again: a password that was changed is in use within seconds.
const READ_AGAIN_EVERY: u32 = 5;

/// Gives the servers as their file has them by now; none: as before.
pub type Again = Box<dyn Fn() -> Option<Servers> + Send + Sync>;

/// What keeps a pool at the primary.
pub struct Follower {
    servers: Servers,
    again: Option<Again>,
    pool: PgPool,
    between: Arc<Between>,
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("servers", &self.servers.count()).finish_non_exhaustive()
    }
}

/// What pool and follower tell each other.
#[derive(Debug)]
struct Between {
    /// When the pool's server was last chosen: what was opened before is not used again.
    chosen: Mutex<Instant>,
    /// The pool met a session that takes no writes.
    doubt: Notify,
}

impl Between {
    fn choose(&self) {
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = monotonic();
    }

    fn is_older_than_choice(&self, age: Duration) -> bool {
        age >= self.chosen.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    async fn test(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        must_take_writes(connection).await.inspect_err(|_| self.doubt.notify_one())
    }
}

impl From<PgConnectOptions> for Servers {
    fn from(one: PgConnectOptions) -> Self {
        Self::new(vec![one], Target::ReadWrite, SecretString::default())
    }
}

impl FromStr for Servers {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (options, target) = url::parse(text)?;
        Ok(Self::new(options, target, SecretString::from(text.to_owned())))
    }
}

impl Servers {
    fn new(options: Vec<PgConnectOptions>, target: Target, given: SecretString) -> Self {
        Self { options, target, last: Arc::default(), given }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.options.len()
    }

    /// The first server that takes writes.
    ///
    /// # Errors
    /// What each server said.
    pub async fn connect(&self) -> Result<PgConnection, NoServer> {
        self.first(Target::ReadWrite).await.map(|(connection, _)| connection)
    }

    /// The first server that takes writes; when there is none and the URL allows it, the first that
    /// lets us in. A single server is taken as it is: what reads can be asked of a standby.
    ///
    /// # Errors
    /// What each server said.
    pub async fn connect_to_read(&self) -> Result<PgConnection, NoServer> {
        let found = match (self.count(), self.target) {
            (1, _) => self.first(Target::Any).await,
            (_, Target::ReadWrite) => self.first(Target::ReadWrite).await,
            (_, Target::Any) => match self.first(Target::ReadWrite).await {
                Ok(found) => Ok(found),
                Err(_) => self.first(Target::Any).await,
            },
        };
        found.map(|(connection, _)| connection)
    }

    /// Opens the pool, at the server that took writes last (else the first) until [`Follower::run`] has
    /// found the primary. Connections are made when first used.
    #[must_use]
    pub fn pool(self) -> (PgPool, Follower) {
        let between = Arc::new(Between { chosen: Mutex::new(monotonic()), doubt: Notify::new() });
        let (on_connect, on_acquire) = (Arc::clone(&between), Arc::clone(&between));
        let on_release = Arc::clone(&between);
        let last = self.last.load(Ordering::Relaxed);
        let first = self
            .options
            .get(last)
            .or(self.options.first())
            .cloned()
            .unwrap_or_else(PgConnectOptions::new_without_pgpass);
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(ACQUIRE_WITHIN)
            // The question whether it takes writes is the test.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let between = Arc::clone(&on_connect);
                Box::pin(async move { between.test(connection).await })
            })
            .before_acquire(move |connection, meta| {
                let between = Arc::clone(&on_acquire);
                Box::pin(async move {
                    if between.is_older_than_choice(meta.age) {
                        return Ok(false);
                    }
                    if meta.idle_for < TRUSTED_FOR {
                        return Ok(true);
                    }
                    between.test(connection).await.map(|()| true)
                })
            })
            // What comes back may be in the middle of a word with a server that hangs: without a limit it would keep its
            // place for as long as that does.
            .after_release(move |connection, meta| {
                let between = Arc::clone(&on_release);
                // It keeps room for the largest that it ever carried: all verdicts of a fleet are tens of megabytes.
                connection.shrink_buffers();
                Box::pin(async move {
                    if between.is_older_than_choice(meta.age) {
                        return Ok(false);
                    }
                    between.test(connection).await.map(|()| true)
                })
            })
            .connect_lazy_with(quiet(first));
        let follower = Follower { servers: self, again: None, pool: pool.clone(), between };
        (pool, follower)
    }

    async fn first(&self, target: Target) -> Result<(PgConnection, &PgConnectOptions), NoServer> {
        let mut said = Vec::new();
        for (place, options) in self.options.iter().enumerate() {
            match self.one(options, target).await {
                Ok(connection) => {
                    if target == Target::ReadWrite {
                        self.last.store(place, Ordering::Relaxed);
                    }
                    return Ok((connection, options));
                }
                Err(why) => said.push(format!("{}: {why}", name(options))),
            }
        }
        Err(NoServer::NoneUsable(said))
    }

    async fn one(&self, options: &PgConnectOptions, target: Target) -> Result<PgConnection, String> {
        let options = quiet(options.clone());
        let mut connection = tokio::time::timeout(CONNECT_WITHIN, PgConnection::connect_with(&options))
            .await
            .map_err(|_| format!("no answer within {} s", CONNECT_WITHIN.as_secs()))?
            .map_err(|error| error.to_string())?;
        match target {
            Target::Any => {}
            Target::ReadWrite => must_take_writes(&mut connection).await.map_err(|error| error.to_string())?,
        }
        Ok(connection)
    }
}

impl Follower {
    /// Also asks from time to time whether the servers are still the same.
    #[must_use]
    pub fn reading_again(mut self, again: Again) -> Self {
        self.again = Some(again);
        self
    }

    /// Takes other servers, or another password for them. True: something changed.
    fn read_again(&mut self) -> bool {
        let fresh = self.again.as_ref().and_then(|again| again());
        let Some(fresh) = fresh.filter(|fresh| fresh.given.expose_secret() != self.servers.given.expose_secret())
        else {
            return false;
        };
        tracing::info!("the database URL was changed and is in use");
        self.servers = fresh;
        true
    }

    /// Keeps the pool at the server that takes writes, until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        tokio::select! {
            () = self.follow() => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn follow(&mut self) {
        let mut used: Option<(PgConnection, String)> = None;
        let mut said = None;
        let mut tell = self.servers.count() > 1;
        let mut turn = 0_u32;
        loop {
            turn = turn.wrapping_add(1);
            if turn.is_multiple_of(READ_AGAIN_EVERY) && self.read_again() {
                used = None;
            }
            if let Some((connection, server)) = &mut used
                && let Err(error) = must_take_writes(connection).await
            {
                tracing::warn!(%server, %error, "the database's server takes no writes; looking for the one that does");
                (used, tell) = (None, true);
            }
            if used.is_none() {
                match self.servers.first(Target::ReadWrite).await {
                    Ok((connection, options)) => {
                        let server = name(options);
                        if tell {
                            tracing::info!(%server, "this server of the database takes writes");
                        }
                        self.pool.set_connect_options(quiet(options.clone()));
                        // After the address, so that nothing that was opened in between is trusted too much.
                        self.between.choose();
                        (used, said, tell) = (Some((connection, server)), None, false);
                    }
                    // Once, and not every second while the database is away.
                    Err(NoServer::NoneUsable(why)) if said.as_ref() != Some(&why) => {
                        tracing::warn!(
                            servers = why.join("; "),
                            "no server of the database takes writes; trying again"
                        );
                        (said, tell) = (Some(why), true);
                    }
                    Err(NoServer::NoneUsable(_)) => {}
                }
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW_EVERY) => {}
                () = self.between.doubt.notified() => {
                    // Its own session may have been spared what new ones meet.
                    used = None;
                    tokio::time::sleep(DOUBT_PAUSE).await;
                }
            }
        }
    }
}

/// Fails when the session takes no writes: its server is a standby, or was made read-only. A session
/// that does not answer in time must not be used again either.
///
/// # Errors
/// [`sqlx::Error::PoolTimedOut`] without an answer, a configuration error when it is read-only.
pub async fn must_take_writes(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    // Of the simple protocol: no prepared statement that a change of the schema could spoil.
    let asked = connection.fetch_one("show transaction_read_only");
    let row = tokio::time::timeout(TEST_WITHIN, asked).await.map_err(|_| sqlx::Error::PoolTimedOut)??;
    match row.try_get::<&str, _>(0)? {
        "off" => Ok(()),
        _ => Err(sqlx::Error::Configuration("the server takes no writes: it is a standby, or read-only".into())),
    }
}

/// A server as people know it, without user and password.
fn name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => format!("{}:{}", socket.display(), options.get_port()),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

#[cfg(test)]
mod tests;
