//! Our own programs in the world: one coordinator with its private Postgres or two that share one, and an agent at each vantage.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::PgPool;

use super::atlas::{Place, VANTAGES};
use super::configuration::{Stance, owner_file};
use super::coordinators::{self, Coordinators, Setting};
use super::process::{self, Process};
use super::programs;
use super::run_dir::{private, write_private};
use super::servers::Ground;
use super::world::World;

/// An agent ends in this time.
const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// The running programs. Dropping it kills them.
#[derive(Debug)]
pub struct Fleet {
    coordinators: Coordinators,
    agents: BTreeMap<Place, Process>,
    /// Largest resident sets of programs that were replaced by a restart.
    earlier_peaks: BTreeMap<String, u64>,
    state: PathBuf,
}

impl Fleet {
    /// Issues identities and starts everything, with one coordinator or two. `on` hears of each part that is up.
    ///
    /// # Errors
    /// A program is not built, or does not come up.
    pub async fn start(
        world: &World,
        setting: Setting,
        stance: Stance,
        mut on: impl FnMut(&str, String),
    ) -> Result<Self> {
        let ground = &world.ground;
        let (coordinators, count) = (Coordinators::start(ground, setting, stance).await?, setting.coordinators());
        let where_to = (0..count).map(|n| ground.layout.grpc(n).to_string()).collect::<Vec<_>>().join(",");
        let database = if count == 1 { "its own PostgreSQL (socket only)" } else { "one PostgreSQL" };
        on("coordinator", format!("agents at {where_to} (mutual TLS), {database}"));
        for place in VANTAGES {
            let directory = agent_dir(ground, place);
            private(&directory)?;
            coordinators::issue(ground, place.name(), &directory.join("identity")).await?;
        }
        let mut agents = BTreeMap::new();
        for place in VANTAGES {
            agents.insert(place, start_agent(world, place, count)?);
        }
        let names: Vec<&str> = VANTAGES.iter().map(|p| p.name()).collect();
        on("agents", names.join("  "));
        let state = coordinators::state(ground, 0);
        Ok(Self { coordinators, agents, earlier_peaks: BTreeMap::new(), state })
    }

    /// Connects to the coordinators' database, lazily.
    ///
    /// # Errors
    /// No server of it takes writes.
    pub async fn database(&self) -> Result<PgPool> {
        self.coordinators.database(&self.state).await
    }

    /// The first coordinator's state directory, for `--state`.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// The coordinators, to be struck.
    pub fn coordinators(&mut self) -> &mut Coordinators {
        self.keep_peak("coordinator");
        &mut self.coordinators
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
        self.agents.insert(place, start_agent(world, place, self.coordinators.count())?);
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
        let now = match VANTAGES.iter().find(|p| p.name() == name) {
            Some(place) => self.agents.get_mut(place).map(Process::peak_rss_kib).unwrap_or_default(),
            None => self.coordinators.peak_rss_kib(),
        };
        let peak = self.earlier_peaks.entry(name.to_owned()).or_default();
        *peak = now.max(*peak);
    }

    /// Programs that have ended, with the tails of their logs. Empty when all is well.
    pub fn ended(&mut self) -> Vec<String> {
        let agents = self.agents.values_mut().filter_map(Process::ended).collect();
        [agents, self.coordinators.ended()].concat()
    }

    /// The last lines of every log, for a failure message.
    #[must_use]
    pub fn log_tails(&self) -> String {
        let all = self.coordinators.processes().chain(self.agents.values());
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
        self.coordinators.stop().await
    }
}

fn agent_dir(ground: &Ground, place: Place) -> PathBuf {
    ground.directory.join(format!("agent-{}", place.name()))
}

fn start_agent(world: &World, place: Place, count: usize) -> Result<Process> {
    let ground = &world.ground;
    let directory = agent_dir(ground, place);
    let local = directory.join("local.yaml");
    write_private(&local, &owner_file(ground, place))?;
    let mut command = process::command(ground.namespace(place), &programs::ours("parallax-agent")?);
    let coordinators: Vec<String> = (0..count).map(|number| ground.layout.grpc(number).to_string()).collect();
    command.arg("run").args(["--coordinator", &coordinators.join(",")]);
    command.arg("--identity").arg(directory.join("identity")).arg("--state").arg(directory.join("state"));
    command.arg("--local").arg(&local);
    if let Some(maps) = &world.maps {
        command.arg("--lab-map").arg(maps.file(place));
    }
    let name = format!("agent-{}", place.name());
    Process::start(&name, &ground.log(&name), command)
}
