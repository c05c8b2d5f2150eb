//! A real coordinator for the simulated fleet: `parallax serve` as a process of its own, with its own Postgres (durable:
//! fsync and synchronous commit as they are shipped) and a configuration that knows every vantage of the fleet.

use std::fmt::Write;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::process::Command;

use super::fleet::facts::{CANARIES, CONTROLS};
use super::fleet::identities::Identities;
use super::fleet::vantage;
use super::proc;
use crate::lab::process::Process;
use crate::lab::run_dir::write_private;

/// initdb, migrations and the first start, on a busy two-core machine.
const START_MAX: Duration = Duration::from_secs(120);

/// The coordinator stores what is under way and stops its Postgres in this time.
const STOP_MAX: Duration = Duration::from_secs(60);

/// What the coordinator prints when it serves.
const READY: &str = "parallax: ready";

/// The coordinator, its database, and where everything is.
pub struct Installation {
    /// Where agents connect.
    pub address: SocketAddr,
    /// Connections of ours to its database.
    pub database: PgPool,
    binary: PathBuf,
    directory: PathBuf,
    process: Process,
    starts: usize,
    accept_only: bool,
}

impl Installation {
    /// Makes one for so many vantages below `directory` and starts it; with `accept_only` it leaves deciding to others.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(binary: &Path, directory: &Path, vantages: u32, accept_only: bool) -> Result<Self> {
        let address = free_address()?;
        write_private(&directory.join("parallax.yaml"), &configuration(directory, address, vantages))?;
        let options = PgConnectOptions::new_without_pgpass()
            .socket(directory.join("state/pg/socket"))
            .port(5432)
            .username("parallax")
            .database("parallax")
            .application_name("parallax-bench");
        let database = PgPoolOptions::new().max_connections(2).connect_lazy_with(options);
        let process = launch(binary, directory, accept_only)?;
        let mut made = Self {
            address,
            database,
            binary: binary.to_owned(),
            directory: directory.to_owned(),
            process,
            starts: 1,
            accept_only,
        };
        made.ready().await?;
        Ok(made)
    }

    async fn ready(&mut self) -> Result<()> {
        let log = self.log();
        let starts = self.starts;
        let ready = async || fs::read_to_string(&log).is_ok_and(|log| log.matches(READY).count() >= starts);
        self.process.until("serving", START_MAX, ready).await
    }

    /// Kills the coordinator as a power cut would; its Postgres stays.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.process.kill9().await
    }

    /// Starts it again, and waits until it serves.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn restart(&mut self) -> Result<()> {
        self.process = launch(&self.binary, &self.directory, self.accept_only)?;
        self.starts += 1;
        self.ready().await
    }

    /// Ends everything in order; kills what does not end by itself, and says so.
    ///
    /// # Errors
    /// The system refuses.
    pub async fn stop(mut self) -> Result<()> {
        self.database.close().await;
        if !self.process.stop(STOP_MAX).await? {
            // What was measured is measured.
            eprintln!("bench: the coordinator did not end by itself:\n{}", self.process.log_tail());
        }
        Ok(())
    }

    /// The coordinator's process id.
    ///
    /// # Errors
    /// It has ended.
    pub fn pid(&mut self) -> Result<u32> {
        if let Some(ended) = self.process.ended() {
            anyhow::bail!("the coordinator ended during the measurement: {ended}");
        }
        self.process.pid().context("the coordinator has no process id")
    }

    /// Makes identities of its authority.
    ///
    /// # Errors
    /// The authority cannot be read.
    pub fn identities(&self) -> Result<Identities> {
        Identities::of(&self.directory.join("state"))
    }

    /// The directory of the run.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The folder of the database's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("state/pg/socket")
    }

    /// Processor seconds of Postgres so far.
    ///
    /// # Errors
    /// It does not run.
    pub fn postgres_cpu_s(&self) -> Result<f64> {
        let file = self.directory.join("state/pg/data/postmaster.pid");
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let pid = text.lines().next().and_then(|line| line.trim().parse().ok()).context("a process id of Postgres")?;
        proc::tree_cpu_s(pid)
    }

    fn log(&self) -> PathBuf {
        self.directory.join("coordinator.log")
    }

    /// What is stored, held against what the fleet numbered: rows, and what is wrong with them, none being well.
    ///
    /// # Errors
    /// The database refuses.
    pub async fn verify(&self, numbered: u64) -> Result<u64> {
        let (rows, odd): (i64, i64) = sqlx::query_as(
            "select coalesce(sum(n), 0)::bigint, count(*) filter (where n <> last or first <> 1)
             from (select count(*) as n, max(sequence) as last, min(sequence) as first
                   from observation group by vantage_id, boot_id, lane) as each",
        )
        .fetch_one(&self.database)
        .await?;
        let gaps: i64 = sqlx::query_scalar("select count(*) from observation_gap").fetch_one(&self.database).await?;
        let refused: i64 = sqlx::query_scalar("select coalesce(sum(count), 0)::bigint from ingest_refusal")
            .fetch_one(&self.database)
            .await?;
        let rows = u64::try_from(rows)?;
        ensure!(
            rows == numbered && odd == 0 && gaps == 0 && refused == 0,
            "{numbered} rows were numbered, {rows} are stored; {odd} numberings with a hole or a row twice, {gaps} gaps, \
             {refused} refusals"
        );
        Ok(rows)
    }
}

fn launch(binary: &Path, directory: &Path, accept_only: bool) -> Result<Process> {
    let mut command = Command::new(binary);
    command.env_remove("DATABASE_URL").arg("serve");
    command.arg("--config").arg(directory.join("parallax.yaml")).arg("--state").arg(directory.join("state"));
    command.arg("--log").arg("warn");
    if accept_only {
        command.arg("--accept-only");
    }
    Process::start("parallax", &directory.join("coordinator.log"), command)
}

/// Free now, and outside of what the kernel gives to the agents' ends: those have other addresses.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for the coordinator")?;
    Ok(listener.local_addr()?)
}

fn configuration(directory: &Path, address: SocketAddr, vantages: u32) -> String {
    let mut file = format!(
        "version: 1\nlisten: {{ web: \"unix:{}\", grpc: \"{address}\" }}\nvantages:\n",
        directory.join("web.sock").display()
    );
    for index in 0..vantages {
        let _ = writeln!(file, "  - {{ name: {} }}", vantage(index));
    }
    file.push_str(
        "resolvers:\n  - { name: live, kind: system, role: live }\n  - { name: doh, kind: doh, url: \"https://doh.bench.example/dns-query\", bootstrap: [9.9.9.9], role: primary }\ncanaries:\n",
    );
    for name in CANARIES {
        let _ = writeln!(file, "  - {{ name: {name}, port: 443, tls: true }}");
    }
    file.push_str("controls:\n");
    for (name, host) in CONTROLS.iter().zip(1..) {
        let _ = writeln!(file, "  - {{ name: {name}, address: 1.0.0.{host}, port: 443, server_name: {name}.example }}");
    }
    file
}
