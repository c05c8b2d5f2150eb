//! For tests: a migrated database each, from one private Postgres a test process.
//!
//! The server lives in a temporary directory, as root under another user, and ends with the
//! process: a small shell waits for our end of a pipe to close, stops it and removes its files.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parallax_decide::time::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::config::{Config, builtin};
use crate::embedded::{self, Embedded};
use crate::state::App;
use crate::store::{self, partition, setup, vantage};

const TEMPLATE: &str = "parallax_template";

static SERVER: OnceLock<PathBuf> = OnceLock::new();
static COPYING: Mutex<()> = Mutex::const_new(());

/// A fresh database with the schema and today's partitions.
pub(crate) async fn database() -> PgPool {
    store::pool(fresh().await)
}

/// How to reach a fresh database, for tests that need a second process or pool.
pub(crate) async fn fresh() -> PgConnectOptions {
    copy(TEMPLATE).await
}

/// How to reach a database with nothing in it.
pub(crate) async fn empty() -> PgConnectOptions {
    copy("template0").await
}

async fn copy(template: &str) -> PgConnectOptions {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let options = server();
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    // Postgres copies a template only while nobody else does.
    let _copying = COPYING.lock().await;
    let mut connection = PgConnection::connect_with(&options.clone().database("postgres")).await.unwrap();
    let statement = format!("create database {name} template {template}");
    sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    options.database(&name)
}

/// A server of the caller's own, with the schema and today's partitions, and the process that it is: for a test that
/// does to it what would disturb others. It ends with the process of the test.
pub(crate) async fn alone() -> (PgConnectOptions, i32) {
    let state = start().await;
    let pid = std::fs::read_to_string(state.join("pg/data/postmaster.pid")).unwrap();
    let pid = pid.lines().next().unwrap().parse().unwrap();
    (embedded::connect_options(&state).unwrap().database(TEMPLATE), pid)
}

/// A coordinator without its servers: a fresh database, this configuration, a clock that runs.
pub(crate) async fn app_with(config: Config) -> Arc<App> {
    app_at(fresh().await, config).await
}

/// The same on a database that is there.
pub(crate) async fn app_at(options: PgConnectOptions, config: Config) -> Arc<App> {
    let pool = store::pool(options);
    let mut connection = pool.acquire().await.unwrap();
    vantage::ensure(&mut connection, config.topology.vantages.keys()).await.unwrap();
    drop(connection);
    App::new(pool, config, Clock::system(), PathBuf::from("/nonexistent"))
}

/// The same with the example configuration: branch-kazan, wan-gw, de-fra.
pub(crate) async fn app() -> Arc<App> {
    app_with(example()).await
}

/// The example configuration.
pub(crate) fn example() -> Config {
    Config::parse(builtin::EXAMPLE, "example").unwrap()
}

/// A time that reads well.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1000)
}

/// Options for the one server of this process, started on first use.
fn server() -> PgConnectOptions {
    let state = SERVER.get_or_init(|| {
        // A thread of its own: the caller is inside a runtime already.
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(start())
        })
        .join()
        .unwrap()
    });
    embedded::connect_options(state).unwrap()
}

async fn start() -> PathBuf {
    let state = tempfile::Builder::new().prefix("parallax-test-").tempdir().unwrap().keep();
    // The server's user must get through.
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Embedded::start(&state, None).await.unwrap();
    stop_with_us(&state);
    let options = embedded::connect_options(&state).unwrap();
    let mut connection = PgConnection::connect_with(&options.clone().database("postgres")).await.unwrap();
    for statement in [
        // Nothing here must survive a crash.
        "alter system set fsync = off",
        "alter system set synchronous_commit = off",
        "alter system set full_page_writes = off",
        "select pg_reload_conf()",
        "create database parallax_template",
    ] {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    let mut template = PgConnection::connect_with(&options.database(TEMPLATE)).await.unwrap();
    setup::migrate(&mut template).await.unwrap();
    partition::ensure(&mut template).await.unwrap();
    template.close().await.unwrap();
    std::mem::forget(server);
    state
}

/// Stops the server and removes its files when this process has ended, however it ends.
fn stop_with_us(state: &Path) {
    let script = r#"cat >/dev/null; read -r pid <"$0/pg/data/postmaster.pid" && kill -QUIT "$pid"
                    while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done; rm -rf "$0""#;
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(script).arg(state).process_group(0);
    let child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Its end of the pipe closes when this process is gone, not before.
    std::mem::forget(child);
}
