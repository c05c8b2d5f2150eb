//! Our own programs in the world: one coordinator with its private Postgres, and an agent at each vantage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::atlas::{Place, VANTAGES};
use super::configuration::{coordinator_file, owner_file};
use super::process::{self, Process};
use super::programs;
use super::run_dir::{private, write_private};
use super::servers::Ground;
use super::world::World;

/// initdb, migrations and the first start, on a busy two-core machine.
const COORDINATOR_START_MAX: Duration = Duration::from_secs(60);
/// The coordinator stops its Postgres in this time.
const STOP_PATIENCE: Duration = Duration::from_secs(6);
/// What the coordinator prints when it serves.
const READY: &str = "parallax: ready";
/// Connections the story keeps to the database.
const POOL_MAX: u32 = 2;

/// The running programs. Dropping it kills them.
#[derive(Debug)]
pub struct Fleet {
    coordinator: Process,
    agents: BTreeMap<Place, Process>,
    /// Largest resident sets of programs that were replaced by a restart.
    earlier_peaks: BTreeMap<String, u64>,
    state: PathBuf,
}

impl Fleet {
    /// Issues identities and starts everything. `on` hears of each part that is up.
    ///
    /// # Errors
    /// A program is not built, or does not come up.
    pub async fn start(world: &World, mut on: impl FnMut(&str, String)) -> Result<Self> {
        let ground = &world.ground;
        let state = state_dir(ground);
        write_private(&tsig_file(ground), &ground.tsig_secret)?;
        write_private(&configuration_file(ground), &coordinator_file(ground, &tsig_file(ground)))?;
        let parallax = programs::ours("parallax")?;
        let configuration = configuration_file(ground);
        process::run(
            None,
            &parallax,
            &["config".as_ref(), "check".as_ref(), "--config".as_ref(), configuration.as_os_str()],
        )
        .await
        .context("the demo's configuration")?;
        let coordinator = start_coordinator(ground).await?;
        on("coordinator", format!("agents at {} (mutual TLS), its own PostgreSQL (socket only)", ground.layout.grpc()));
        for place in VANTAGES {
            issue(ground, &parallax, place).await?;
        }
        let mut agents = BTreeMap::new();
        for place in VANTAGES {
            agents.insert(place, start_agent(world, place)?);
        }
        let names: Vec<&str> = VANTAGES.iter().map(|p| p.name()).collect();
        on("agents", names.join("  "));
        Ok(Self { coordinator, agents, earlier_peaks: BTreeMap::new(), state })
    }

    /// Connects to the coordinator's database, lazily: it outlives a killed coordinator, not a stopped one.
    #[must_use]
    pub fn database(&self) -> PgPool {
        let options = PgConnectOptions::new_without_pgpass()
            .socket(self.state.join("pg/socket"))
            .port(5432)
            .username("parallax")
            .database("parallax")
            .application_name("parallax-lab");
        PgPoolOptions::new()
            .max_connections(POOL_MAX)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options)
    }

    /// The coordinator's state directory, for `--state`.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Kills the coordinator as a power cut would; its Postgres stays. `restart_coordinator` brings it back.
    ///
    /// # Errors
    /// It cannot be killed.
    pub async fn kill_coordinator(&mut self) -> Result<()> {
        self.keep_peak("coordinator");
        self.coordinator.kill9().await
    }

    /// Starts the coordinator again on its state.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn restart_coordinator(&mut self, world: &World) -> Result<()> {
        self.coordinator = start_coordinator(&world.ground).await?;
        Ok(())
    }

    /// Kills an agent as a power cut would.
    ///
    /// # Errors
    /// There is none at that place, or it cannot be killed.
    pub async fn kill_agent(&mut self, place: Place) -> Result<()> {
        self.keep_peak(place.name());
        self.agents.get_mut(&place).context("no agent runs there")?.kill9().await
    }

    /// Starts an agent again on its state.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart_agent(&mut self, world: &World, place: Place) -> Result<()> {
        self.agents.insert(place, start_agent(world, place)?);
        Ok(())
    }

    /// Largest resident set of each program so far, KiB.
    pub fn peak_rss_kib(&mut self) -> BTreeMap<String, u64> {
        let names: Vec<String> =
            VANTAGES.iter().map(|p| p.name().to_owned()).chain(["coordinator".to_owned()]).collect();
        names.iter().for_each(|name| self.keep_peak(name));
        self.earlier_peaks.clone()
    }

    fn keep_peak(&mut self, name: &str) {
        let process = match VANTAGES.iter().find(|p| p.name() == name) {
            Some(place) => self.agents.get_mut(place),
            None => Some(&mut self.coordinator),
        };
        if let Some(process) = process {
            let peak = self.earlier_peaks.entry(name.to_owned()).or_default();
            *peak = process.peak_rss_kib().max(*peak);
        }
    }

    /// Programs that have ended, with the tails of their logs. Empty when all is well.
    pub fn ended(&mut self) -> Vec<String> {
        let all = self.agents.values_mut().chain([&mut self.coordinator]);
        all.filter_map(Process::ended).collect()
    }

    /// The last lines of every log, for a failure message.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let all = [&self.coordinator].into_iter().chain(self.agents.values());
        all.map(|p| format!("  log of {}:\n{}", p.name(), p.log_tail())).collect()
    }

    /// Stops agents, coordinator and database.
    ///
    /// # Errors
    /// The system refuses to kill one.
    pub async fn stop(&mut self) -> Result<()> {
        let agents = self.agents.values_mut().map(|agent| agent.stop(STOP_PATIENCE));
        for stopped in futures_util::future::join_all(agents).await {
            stopped?;
        }
        self.coordinator.stop(STOP_PATIENCE).await?;
        Ok(())
    }
}

fn state_dir(ground: &Ground) -> PathBuf {
    ground.directory.join("coordinator")
}

fn configuration_file(ground: &Ground) -> PathBuf {
    ground.directory.join("parallax.yaml")
}

fn tsig_file(ground: &Ground) -> PathBuf {
    ground.directory.join("tsig")
}

fn agent_dir(ground: &Ground, place: Place) -> PathBuf {
    ground.directory.join(format!("agent-{}", place.name()))
}

async fn start_coordinator(ground: &Ground) -> Result<Process> {
    let mut command = process::command(ground.namespace(Place::Hq), &programs::ours("parallax")?);
    command.arg("serve").arg("--config").arg(configuration_file(ground)).arg("--state").arg(state_dir(ground));
    let log = ground.log("coordinator");
    let before = std::fs::metadata(&log).map(|m| m.len()).unwrap_or(0);
    let mut coordinator = Process::start("coordinator", &log, command)?;
    let fresh =
        || std::fs::read(&log).map(|b| b.get(usize::try_from(before).unwrap_or(0)..).unwrap_or_default().to_vec());
    coordinator
        .until("serving", COORDINATOR_START_MAX, async || {
            fresh().is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(READY))
        })
        .await?;
    Ok(coordinator)
}

async fn issue(ground: &Ground, parallax: &Path, place: Place) -> Result<()> {
    let directory = agent_dir(ground, place);
    private(&directory)?;
    let (identity, state) = (directory.join("identity"), state_dir(ground));
    let (out, with) = (identity.to_string_lossy(), state.to_string_lossy());
    let arguments = ["vantage", "issue", place.name(), "--out", &out, "--state", &with, "--make-authority"];
    process::run(None, parallax, &arguments)
        .await
        .with_context(|| format!("issuing the identity of {}", place.name()))?;
    Ok(())
}

fn start_agent(world: &World, place: Place) -> Result<Process> {
    let ground = &world.ground;
    let directory = agent_dir(ground, place);
    let local = directory.join("local.yaml");
    write_private(&local, &owner_file(ground, place))?;
    let mut command = process::command(ground.namespace(place), &programs::ours("parallax-agent")?);
    command.arg("run").args(["--coordinator", &ground.layout.grpc().to_string()]);
    command.arg("--identity").arg(directory.join("identity")).arg("--state").arg(directory.join("state"));
    command.arg("--local").arg(&local);
    if let Some(maps) = &world.maps {
        command.arg("--lab-map").arg(maps.file(place));
    }
    let name = format!("agent-{}", place.name());
    Process::start(&name, &ground.log(&name), command)
}
