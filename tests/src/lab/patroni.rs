//! Three Postgres nodes under Patroni and etcd on this machine, with the configuration of
//! `deploy/two-coordinators`: only addresses, ports and paths differ.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::database::{as_owner, program};
use super::process::{self, Process};
use super::programs;
use super::run_dir::{private, write_private};

/// The worked example.
const EXAMPLE: &str = include_str!("../../../deploy/two-coordinators/patroni.yml");

/// Nodes of the example.
const NODES: usize = 3;

/// initdb, two base backups and an election, on a busy machine.
const START_MAX: Duration = Duration::from_secs(240);

/// Password of the example's superuser, and the one of our role.
const PASSWORD: &str = "change-me-1";

/// The running cluster. Dropping it kills what is left of it.
#[derive(Debug)]
pub struct Patroni {
    etcd: Process,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    process: Process,
    data: PathBuf,
    port: u16,
}

impl Patroni {
    /// Makes and starts it in `directory`, below the run's, and waits for a leader with a synchronous standby.
    ///
    /// # Errors
    /// A program is missing, or no leader is elected.
    pub async fn start(directory: &Path, log: &Path) -> Result<Self> {
        let missing: Vec<&str> =
            ["patroni", "etcd"].into_iter().filter(|name| programs::find(name).is_none()).collect();
        if !missing.is_empty() {
            bail!(
                "the cluster needs what is not installed: {}\n  sudo ./x install patroni etcd-server",
                missing.join(" ")
            );
        }
        let home = directory.join("patroni");
        private(&home)?;
        let ports: Vec<u16> = (0..2 + 2 * NODES).map(|_| free_port()).collect::<Result<_>>()?;
        let [client, peer, others @ ..] = ports.as_slice() else { bail!("no ports") };
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut etcd = as_owner(&home, &programs::find("etcd").context("etcd")?)?;
        etcd.arg("--data-dir").arg(home.join("etcd")).args(["--name", "lab", "--unsafe-no-fsync"]);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--listen-peer-urls", &peer]);
        etcd.args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("lab={peer}")]);
        let etcd = Process::start("etcd", log, etcd)?;
        let mut nodes = Vec::new();
        for (number, ports) in others.chunks_exact(2).enumerate() {
            let [rest, port] = ports else { bail!("no ports") };
            nodes.push(start_node(&home, number, (*rest, *port), &client, log)?);
        }
        let mut cluster = Self { etcd, nodes };
        cluster.wait_ready(log).await?;
        cluster.ask("create role parallax login superuser password 'change-me-1'").await?;
        cluster.ask("create database parallax owner parallax").await?;
        Ok(cluster)
    }

    /// The URL that names every node, as the example's.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
        format!("postgres://parallax:{PASSWORD}@{}/parallax?target_session_attrs=read-write", hosts.join(","))
    }

    /// Port of the node that takes writes, and our role's password there.
    ///
    /// # Errors
    /// None does.
    pub async fn leader(&self) -> Result<(u16, &'static str)> {
        for node in &self.nodes {
            if sql(node.port, "select 1/(not pg_is_in_recovery())::int").await.is_ok() {
                return Ok((node.port, PASSWORD));
            }
        }
        bail!("no node takes writes")
    }

    /// Kills the leader's machine: Patroni and Postgres at once.
    ///
    /// # Errors
    /// There is no leader, or it cannot be killed.
    pub async fn kill_leader(&mut self) -> Result<()> {
        let (leader, _) = self.leader().await?;
        let place = self.nodes.iter().position(|node| node.port == leader).context("the leader is none of ours")?;
        let mut node = self.nodes.remove(place);
        let pid = std::fs::read_to_string(node.data.join("postmaster.pid"))?;
        let pid = pid.lines().next().and_then(|pid| pid.parse().ok()).context("no pid in postmaster.pid")?;
        node.process.signal(Signal::SIGKILL);
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("killing the primary")?;
        node.process.kill9().await
    }

    /// How a part of it ended; none while all runs.
    pub fn ended(&mut self) -> Option<String> {
        self.etcd.ended().or_else(|| self.nodes.iter_mut().find_map(|node| node.process.ended()))
    }

    /// Stops it; Patroni stops its Postgres.
    ///
    /// # Errors
    /// The system refuses to kill a part.
    pub async fn stop(&mut self, patience: Duration) -> Result<()> {
        for node in &mut self.nodes {
            node.process.stop(patience * 4).await?;
        }
        self.etcd.stop(patience).await.map(|_| ())
    }

    async fn ask(&self, statement: &str) -> Result<()> {
        let (port, _) = self.leader().await?;
        sql(port, statement).await
    }

    async fn wait_ready(&mut self, log: &Path) -> Result<()> {
        let begun = crate::clock::now();
        let wanted = "select 1/(count(*) filter (where sync_state = 'sync'))::int / (count(*) >= 2)::int from pg_stat_replication";
        loop {
            if let Some(ended) = self.ended() {
                bail!("the cluster does not come up: {ended}");
            }
            if let Ok((port, _)) = self.leader().await
                && sql(port, wanted).await.is_ok()
            {
                return Ok(());
            }
            if begun.elapsed() > START_MAX {
                bail!("no leader with a synchronous standby within {START_MAX:?}:\n{}", process::tail(log));
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }
}

fn start_node(home: &Path, number: usize, (rest, port): (u16, u16), etcd: &str, log: &Path) -> Result<Node> {
    let name = format!("db-{}", number + 1);
    let data = home.join(&name);
    // A link to it may lead there alone: Patroni wants the programs beside it.
    let bin = std::fs::canonicalize(program("postgres")?)?;
    let bin = bin.parent().context("postgres has no directory")?;
    let etcd = etcd.trim_start_matches("http://");
    let file = configuration(&[
        ("name: db-1", &format!("name: {name}")),
        ("10.0.0.11:2379,10.0.0.12:2379,10.0.0.13:2379", etcd),
        ("0.0.0.0:8008", &format!("127.0.0.1:{rest}")),
        ("10.0.0.11:8008", &format!("127.0.0.1:{rest}")),
        ("0.0.0.0:5432", &format!("127.0.0.1:{port}")),
        ("10.0.0.11:5432", &format!("127.0.0.1:{port}")),
        ("/var/lib/postgresql/15/parallax", &data.to_string_lossy()),
        ("/usr/lib/postgresql/15/bin", &bin.to_string_lossy()),
        ("10.0.0.0/24", "127.0.0.1/32"),
        (
            "synchronous_commit: \"on\"",
            &format!("synchronous_commit: \"on\"\n        unix_socket_directories: {}", home.display()),
        ),
    ])?;
    let path = home.join(format!("{name}.yml"));
    write_private(&path, &file)?;
    let mut command = as_owner(home, &programs::find("patroni").context("patroni")?)?;
    own(home, &path)?;
    command.arg(&path).env("PATH", programs::path()?).env("HOME", home);
    Ok(Node { process: Process::start(&name, log, command)?, data, port })
}

/// The example with other places; what is not in it any more makes the run fail.
fn configuration(changes: &[(&str, &str)]) -> Result<String> {
    let mut file = EXAMPLE.to_owned();
    for (from, to) in changes {
        if !file.contains(from) {
            bail!("deploy/two-coordinators/patroni.yml no longer says {from}");
        }
        file = file.replace(from, to);
    }
    Ok(file)
}

/// Gives a file to whoever owns the directory.
fn own(home: &Path, file: &Path) -> Result<()> {
    use std::os::unix::fs::MetadataExt;
    let owner = std::fs::metadata(home)?;
    std::os::unix::fs::chown(file, Some(owner.uid()), Some(owner.gid())).context("giving a file to Postgres' user")
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn sql(port: u16, statement: &str) -> Result<()> {
    let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/postgres?connect_timeout=3");
    process::run(None, &program("psql")?, &["-Xq", "-v", "ON_ERROR_STOP=1", "-c", statement, &url]).await.map(|_| ())
}
