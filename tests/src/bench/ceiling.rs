//! What Postgres alone could store: the rows of the run once more, by psql, COPY of a thousand with a commit each, into a
//! copy of the same table with the same indexes.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use sqlx::PgPool;
use tokio::process::Command;

use super::installation::Installation;
use crate::clock;
use crate::lab::programs;

/// Rows of one COPY.
const ROWS_A_COPY: usize = 1000;

/// Rows a second of each of three runs.
///
/// # Errors
/// There is no psql, or the database refuses.
pub async fn runs(installation: &Installation, rows: usize) -> Result<Vec<f64>> {
    let psql = psql()?;
    let folder = installation.directory();
    let database = &installation.database;
    sqlx::query("create table ceiling (like observation including all) partition by range (received_at)")
        .execute(database)
        .await?;
    sqlx::query("create table ceiling_all partition of ceiling for values from (minvalue) to (maxvalue)")
        .execute(database)
        .await?;
    let dumped = command(&psql, installation)
        .arg("--command")
        .arg(format!("copy (select * from observation limit {rows}) to stdout"))
        .output()
        .await
        .context("psql")?;
    ensure!(dumped.status.success(), "psql: {}", String::from_utf8_lossy(&dumped.stderr));
    let text = String::from_utf8(dumped.stdout)?;
    let lines: Vec<&str> = text.lines().collect();
    let mut script = String::with_capacity(text.len() + lines.len() / 10);
    for chunk in lines.chunks(ROWS_A_COPY) {
        let _ = writeln!(script, "copy ceiling from stdin;\n{}\n\\.", chunk.join("\n"));
    }
    let file = folder.join("ceiling.sql");
    std::fs::write(&file, script)?;
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(run(&psql, installation, database, &file, lines.len()).await?);
    }
    std::fs::remove_file(&file)?;
    sqlx::query("drop table ceiling").execute(database).await?;
    Ok(runs)
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows")]
async fn run(psql: &Path, installation: &Installation, database: &PgPool, file: &Path, rows: usize) -> Result<f64> {
    sqlx::query("truncate ceiling").execute(database).await?;
    sqlx::query("checkpoint").execute(database).await?;
    let start = clock::now();
    let output = command(psql, installation).arg("--file").arg(file).output().await.context("psql")?;
    let took = start.elapsed();
    ensure!(output.status.success(), "psql: {}", String::from_utf8_lossy(&output.stderr));
    let stored: i64 = sqlx::query_scalar("select count(*) from ceiling").fetch_one(database).await?;
    ensure!(usize::try_from(stored)? == rows, "psql stored {stored} of {rows} rows");
    Ok(rows as f64 / took.as_secs_f64())
}

fn psql() -> Result<std::path::PathBuf> {
    if let Some(found) = programs::find("psql") {
        return Ok(found);
    }
    let beside =
        std::env::var_os("PARALLAX_PG_BIN").map(|bin| Path::new(&bin).join("psql")).filter(|psql| psql.is_file());
    beside.context("psql is not installed (Debian: postgresql-client)")
}

fn command(psql: &Path, installation: &Installation) -> Command {
    let mut command = Command::new(psql);
    command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--username=parallax", "--dbname=parallax"]);
    command.arg("--host").arg(installation.socket()).kill_on_drop(true);
    command
}
