//! `parallax database move`: from the embedded database to one of yours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use clap::{Args, Subcommand};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use sqlx::PgConnection;

use super::database::Database;
use super::{Global, StateDir, print, print_json};
use crate::embedded::{self, Embedded};
use crate::error::{Exit, Failure};
use crate::report::SCHEMA;
use crate::store::moving;

/// `parallax database …`
#[derive(Debug, Subcommand)]
pub enum DatabaseCommand {
    /// Copy the embedded database into an empty one of yours, and say what to change.
    Move(Move),
}

/// `parallax database move`
#[derive(Debug, Args)]
pub struct Move {
    /// URL of the empty database. It may hold a password: prefer --to-file.
    #[arg(
        long,
        env = "PARALLAX_MOVE_TO",
        hide_env_values = true,
        value_name = "URL",
        required_unless_present = "to_file"
    )]
    pub to: Option<String>,
    /// File that holds that URL.
    #[arg(long, value_name = "FILE", conflicts_with = "to")]
    pub to_file: Option<PathBuf>,
    /// State directory of the embedded database.
    #[command(flatten)]
    pub state: StateDir,
    /// Folder with the server's programs.
    #[arg(long, env = "PARALLAX_PG_BIN", value_name = "DIR")]
    pub pg_bin: Option<PathBuf>,
}

/// Runs it. Nothing is changed in the embedded database, and nothing is left half in the other one: it is filled in
/// one transaction.
///
/// # Errors
/// Exit code 4 when a coordinator runs, or when the target is not empty or too old; 5 when it cannot be reached.
pub async fn run(command: DatabaseCommand, global: &Global) -> Result<(), Failure> {
    let DatabaseCommand::Move(command) = command;
    let state = command.state.path()?;
    let (to, database) = target(&command)?;
    if !state.join("pg/data").exists() {
        return Err(Failure::new(Exit::NotFound, "there is no embedded database to move")
            .why(format!("{} does not exist", state.join("pg/data").display()))
            .fix("give the coordinator's --state"));
    }
    let embedded = Embedded::start(&state, command.pg_bin.as_deref()).await.map_err(|failure| match failure.exit {
        Exit::Refused => Failure::new(
            Exit::Refused,
            "the coordinator runs: what it stores meanwhile would be left behind",
        )
        .why("a copy is taken at one moment")
        .fix("stop it (systemctl stop parallax) and run this again; agents keep what they measure and send it then"),
        Exit::Failed | Exit::Usage | Exit::NotFound | Exit::Unreachable | Exit::Changes => failure,
    })?;
    let moved = copy(&state, command.pg_bin.as_deref(), &to, &database).await;
    embedded.stop().await;
    let counts = moved?;
    let rows: i64 = counts.values().sum();
    if global.json {
        return print_json(&json!({ "schema": SCHEMA, "tables": counts.len(), "rows": rows, "counts": counts }));
    }
    print(&format!(
        "Copied and compared: {} tables, {rows} rows. The embedded database in {} is unchanged and no longer needed.\n\
         Now start the coordinator with the other one: put its URL into a file that only its user may read, and give\n    \
         parallax serve --database-url-file FILE    (or PARALLAX_DATABASE_URL in its unit's EnvironmentFile)\n\
         Every other command takes the same option. Remove {} when you are sure.\n",
        counts.len(),
        state.join("pg").display(),
        state.join("pg").display(),
    ))
}

/// The target's URL, and how we reach it ourselves.
fn target(command: &Move) -> Result<(SecretString, Database), Failure> {
    let database = Database {
        database_url: command.to.clone(),
        database_url_file: command.to_file.clone(),
        state: command.state.clone(),
    };
    let url = match (&command.to, &command.to_file) {
        (Some(url), _) => SecretString::from(url.trim().to_owned()),
        (None, Some(file)) => crate::secret::Source::File(file.clone()).read().map_err(|why| {
            Failure::new(Exit::Usage, "the target's URL cannot be read").why(why).fix("give its file with --to-file")
        })?,
        (None, None) => return Err(Failure::new(Exit::Usage, "move where to?").fix("give --to-file FILE")),
    };
    Ok((url, database))
}

async fn copy(
    state: &Path,
    bin: Option<&Path>,
    to: &SecretString,
    database: &Database,
) -> Result<BTreeMap<String, i64>, Failure> {
    let refused = |error: crate::store::StoreError| Failure::new(Exit::Failed, "a database refused").why(error);
    let here =
        Database { database_url: None, database_url_file: None, state: StateDir { given: Some(state.to_owned()) } };
    let (mut source, mut target) = (here.connect().await?, database.connect().await?);
    let there = moving::contents(&mut target).await.map_err(refused)?;
    if !there.is_empty() {
        return Err(Failure::new(Exit::Refused, "the target is not empty")
            .why(format!("it holds {}", there.join(", ")))
            .fix("make an empty one (createdb parallax) and give its URL; nothing was changed"));
    }
    let (from, into) =
        (moving::major(&mut source).await.map_err(refused)?, moving::major(&mut target).await.map_err(refused)?);
    if into < from {
        return Err(Failure::new(Exit::Refused, "the target's Postgres is older than the embedded one")
            .why(format!("version {into} cannot take over what version {from} wrote"))
            .fix(format!("use a server of version {from} or later")));
    }
    let reader = moving::make_reader(&mut target).await.map_err(refused)?;
    let before = moving::counts(&mut source).await.map_err(refused)?;
    transfer(state, bin, to, reader).await?;
    compare(&before, &mut target).await?;
    Ok(before)
}

async fn compare(before: &BTreeMap<String, i64>, target: &mut PgConnection) -> Result<(), Failure> {
    let after = moving::counts(target)
        .await
        .map_err(|error| Failure::new(Exit::Failed, "the copy cannot be counted").why(error))?;
    let other: Vec<String> = before
        .iter()
        .filter(|(table, count)| after.get(*table) != Some(count))
        .map(|(table, count)| format!("{table}: {count} here, {} there", after.get(table).copied().unwrap_or(0)))
        .collect();
    if other.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Failed, "the copy is not what was copied")
        .why(other.join("\n"))
        .fix("nothing was changed here; empty the target and run this again"))
}

/// `pg_dump | pg_restore`. The password goes through the environment: arguments can be read by every user.
async fn transfer(state: &Path, bin: Option<&Path>, to: &SecretString, reader: bool) -> Result<(), Failure> {
    let programs = embedded::client_programs(state, bin)?;
    let failed = |what: &str, why: String| {
        Failure::new(Exit::Failed, format!("cannot {what}")).why(why).fix("nothing was changed; see the reason above")
    };
    let (url, password) = without_password(to.expose_secret())?;
    let socket = embedded::socket(state)?;
    let mut dump = tokio::process::Command::new(&programs.dump);
    dump.args([
        "--format=custom",
        "--no-owner",
        "--no-password",
        "--port=5432",
        "--username=parallax",
        "--dbname=parallax",
    ]);
    dump.arg("--host").arg(&socket).env_remove("PGPASSWORD");
    if !reader {
        dump.arg("--no-privileges");
    }
    dump.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut dump = dump.spawn().map_err(|error| failed("dump", format!("{}: {error}", programs.dump.display())))?;
    let archive = dump.stdout.take().ok_or_else(|| failed("dump", "it has no output".to_owned()))?;
    let archive: Stdio = archive.try_into().map_err(|error: std::io::Error| failed("dump", error.to_string()))?;
    let mut restore = tokio::process::Command::new(&programs.restore);
    restore.args(["--no-owner", "--no-password", "--exit-on-error", "--single-transaction", "--dbname"]).arg(url);
    restore.env_remove("PGPASSWORD");
    if let Some(password) = &password {
        restore.env("PGPASSWORD", password.expose_secret());
    }
    restore.stdin(archive).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let restore =
        restore.spawn().map_err(|error| failed("restore", format!("{}: {error}", programs.restore.display())))?;
    let (dumped, restored) = tokio::join!(dump.wait_with_output(), restore.wait_with_output());
    // The restore first: when it ends early, the dump says no more than that its pipe broke.
    for (what, output) in [("restore into the target", restored), ("dump the embedded database", dumped)] {
        let output = output.map_err(|error| failed(what, error.to_string()))?;
        if !output.status.success() {
            return Err(failed(what, String::from_utf8_lossy(&output.stderr).trim().to_owned()));
        }
    }
    Ok(())
}

/// A URL without its password, and the password.
fn without_password(url: &str) -> Result<(String, Option<SecretString>), Failure> {
    let unusable = |why: &str| {
        Failure::new(Exit::Usage, "the target's URL cannot be used")
            .why(why)
            .fix("write postgres://USER:PASSWORD@HOST:PORT/DATABASE")
    };
    let (scheme, rest) = url.split_once("://").ok_or_else(|| unusable("it has no scheme"))?;
    if rest.split_once('?').is_some_and(|(_, query)| query.split('&').any(|one| one.starts_with("password="))) {
        return Err(unusable("its password stands among the options; put it behind the user's name"));
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let Some((user, hosts)) = authority.rsplit_once('@') else { return Ok((url.to_owned(), None)) };
    let Some((user, password)) = user.split_once(':') else { return Ok((url.to_owned(), None)) };
    let password = decoded(password).ok_or_else(|| unusable("its password is not percent-encoded as it should be"))?;
    Ok((format!("{scheme}://{user}@{hosts}{path}"), Some(SecretString::from(password))))
}

/// Percent-decoding (RFC 3986, 2.1).
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        let digits = std::str::from_utf8(&digits).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sqlx::{Connection, Executor};

    use super::*;
    use crate::testing;

    #[test]
    fn a_password_leaves_the_url() {
        for (url, without, password) in [
            ("postgres://u:p%40ss@h:5/d", "postgres://u@h:5/d", Some("p@ss")),
            ("postgres://u:a:b@h,i/d?sslmode=require", "postgres://u@h,i/d?sslmode=require", Some("a:b")),
            ("postgres://u@h/d", "postgres://u@h/d", None),
            ("postgres:///d?host=/run/x", "postgres:///d?host=/run/x", None),
        ] {
            let (left, found) = without_password(url).unwrap();
            assert_eq!((left.as_str(), found.as_ref().map(|one| one.expose_secret())), (without, password));
        }
        for wrong in ["u:p@h/d", "postgres://u:%zz@h/d", "postgres://h/d?password=hunter2"] {
            let said = without_password(wrong).unwrap_err().to_string();
            assert!(!said.contains("hunter2"), "{said}");
        }
    }

    #[tokio::test]
    async fn the_embedded_database_moves_whole_into_an_empty_one_and_into_no_other() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let state = folder.path();
        let embedded = Embedded::start(state, None).await.unwrap();
        let mut source = PgConnection::connect_with(&embedded::connect_options(state).unwrap()).await.unwrap();
        crate::store::setup::migrate(&mut source).await.unwrap();
        crate::store::partition::ensure(&mut source).await.unwrap();
        source.execute("insert into vantage (name) select 'v' || n from generate_series(1, 50) n").await.unwrap();
        source.close().await.unwrap();
        let options = testing::empty().await;
        let socket = options.get_socket().unwrap().display().to_string();
        let url = format!("postgres://{}@/{}?host={socket}", options.get_username(), options.get_database().unwrap());
        let global = Global { json: true, output: None, log: tracing::Level::ERROR };
        let attempt = || async {
            let command = Move {
                to: Some(url.clone()),
                to_file: None,
                state: StateDir { given: Some(state.to_owned()) },
                pg_bin: None,
            };
            run(DatabaseCommand::Move(command), &global).await
        };
        let refused = attempt().await.unwrap_err();
        assert_eq!(refused.exit, Exit::Refused);
        assert!(refused.to_string().contains("the coordinator runs"), "{refused}");
        embedded.stop().await;
        attempt().await.unwrap();
        let mut target = PgConnection::connect_with(&options).await.unwrap();
        let moved = moving::counts(&mut target).await.unwrap();
        assert_eq!(moved["vantage"], 50);
        crate::store::setup::check_schema(&mut target).await.unwrap();
        let refused = attempt().await.unwrap_err();
        assert!(refused.exit == Exit::Refused && refused.to_string().contains("not empty"), "{refused}");
        // The next key is a new one there as well.
        let id: i16 = sqlx::query_scalar("insert into vantage (name) values ('next') returning id")
            .fetch_one(&mut target)
            .await
            .unwrap();
        assert_eq!(id, 51);
    }
}
