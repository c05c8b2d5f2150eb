//! Our own programs in the zoo: three installations, each a coordinator with its Postgres and an agent at each of its places.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::case::Watch;
use super::configuration;
use super::ground::Ground;
use super::place::{HQ, OF_ENDPOINTS, OF_NAMES, OF_TROUBLES, Place};
use crate::lab::process::{self, Process};
use crate::lab::programs;
use crate::lab::run_dir::{passable, private, write_private};

/// initdb, migrations and the first start, on a busy two-core machine.
const START_MAX: Duration = Duration::from_secs(90);
/// A coordinator stops its Postgres in this time; an agent is faster.
const STOP_PATIENCE: Duration = Duration::from_secs(6);
/// What a coordinator prints when it serves.
const READY: &str = "parallax: ready";

impl Watch {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Names, Self::Endpoints, Self::Troubles];

    /// Its name in messages and directories.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Endpoints => "endpoints",
            Self::Troubles => "troubles",
        }
    }

    /// Where its agents are.
    #[must_use]
    pub fn places(self) -> &'static [Place] {
        match self {
            Self::Names => &OF_NAMES,
            Self::Endpoints => &OF_ENDPOINTS,
            Self::Troubles => &OF_TROUBLES,
        }
    }

    /// Where its agents find it.
    #[must_use]
    pub fn port(self) -> u16 {
        match self {
            Self::Names => 8443,
            Self::Endpoints => 8444,
            Self::Troubles => 8445,
        }
    }
}

/// A running installation. Dropping it kills it.
#[derive(Debug)]
pub struct Installation {
    watch: Watch,
    coordinator: Process,
    agents: BTreeMap<Place, Process>,
    /// Its database.
    pub pool: PgPool,
}

impl Installation {
    /// Starts it.
    ///
    /// # Errors
    /// The configuration is refused, or a program does not come up.
    pub async fn start(ground: &Ground, watch: Watch) -> Result<Self> {
        let home = ground.directory.join(watch.word());
        passable(&home)?;
        let (parallax, file, state) = (programs::ours("parallax")?, home.join("parallax.yaml"), home.join("state"));
        let tsig = ground.directory.join("tsig");
        write_private(&tsig, &ground.tsig_secret)?;
        write_private(&file, &configuration::coordinator(watch, &home.join("page.sock"), &tsig))?;
        passable(&state)?;
        process::run(None, &parallax, &["config".as_ref(), "check".as_ref(), "--config".as_ref(), file.as_os_str()])
            .await
            .with_context(|| format!("the configuration of {}", watch.word()))?;
        let log = ground.log(watch.word());
        let mut command = process::command(Some(HQ.name), &parallax);
        command.arg("serve").arg("--config").arg(&file).arg("--state").arg(&state);
        let mut coordinator = Process::start(watch.word(), &log, command)?;
        let ready = async || std::fs::read_to_string(&log).is_ok_and(|said| said.contains(READY));
        coordinator.until("serving", START_MAX, ready).await?;
        let options = PgConnectOptions::new_without_pgpass().port(5432).username("parallax").database("parallax");
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(options.socket(state.join("pg/socket")));
        let mut agents = BTreeMap::new();
        for place in watch.places() {
            issue(&parallax, &state, *place, &agent_home(&home, *place)).await?;
        }
        for place in watch.places() {
            agents.insert(*place, start_agent(ground, watch, *place)?);
        }
        Ok(Self { watch, coordinator, agents, pool })
    }

    /// Kills an agent as a power cut would.
    ///
    /// # Errors
    /// There is none at that place, or it cannot be killed.
    pub async fn kill_agent(&mut self, place: Place) -> Result<()> {
        self.agents.get_mut(&place).context("no agent runs there")?.kill9().await
    }

    /// Starts an agent again on its state.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart_agent(&mut self, ground: &Ground, place: Place) -> Result<()> {
        self.agents.insert(place, start_agent(ground, self.watch, place)?);
        Ok(())
    }

    /// Programs that have ended, with the tails of their logs; the agent at `dark` may have.
    pub fn ended(&mut self, dark: Option<Place>) -> Vec<String> {
        let agents = self.agents.iter_mut().filter(|(place, _)| Some(**place) != dark);
        agents.map(|(_, agent)| agent).chain([&mut self.coordinator]).filter_map(Process::ended).collect()
    }

    /// The last lines of the coordinator's log, for a failure message.
    #[must_use]
    pub fn log_tail(&self) -> String {
        format!("  log of {}:\n{}", self.coordinator.name(), self.coordinator.log_tail())
    }

    /// Stops it.
    ///
    /// # Errors
    /// The system refuses to kill a program.
    pub async fn stop(&mut self) -> Result<()> {
        let stops = self.agents.values_mut().map(|agent| agent.stop(STOP_PATIENCE));
        for stopped in futures_util::future::join_all(stops).await {
            stopped?;
        }
        self.coordinator.stop(STOP_PATIENCE).await.map(|_| ())
    }
}

fn agent_home(home: &Path, place: Place) -> PathBuf {
    home.join(format!("agent-{}", place.name))
}

async fn issue(parallax: &Path, state: &Path, place: Place, home: &Path) -> Result<()> {
    private(home)?;
    let (out, with) = (home.join("identity").display().to_string(), state.display().to_string());
    let arguments = ["vantage", "issue", place.name, "--out", &out, "--state", &with, "--make-authority"];
    process::run(None, parallax, &arguments).await.with_context(|| format!("the identity of {}", place.name))?;
    Ok(())
}

fn start_agent(ground: &Ground, watch: Watch, place: Place) -> Result<Process> {
    let home = agent_home(&ground.directory.join(watch.word()), place);
    let local = home.join("local.yaml");
    write_private(&local, &configuration::owner(ground, place))?;
    let mut command = process::command(Some(place.name), &programs::ours("parallax-agent")?);
    command.arg("run").args(["--coordinator", &format!("{}:{}", HQ.address(), watch.port())]);
    command.arg("--identity").arg(home.join("identity")).arg("--state").arg(home.join("state"));
    command.arg("--local").arg(&local);
    let name = format!("agent-{}-{}", watch.word(), place.name);
    Process::start(&name, &ground.log(&name), command)
}
