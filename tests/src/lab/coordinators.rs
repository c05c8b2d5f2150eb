//! The coordinators of a run: one with its embedded Postgres, or two that share one, each with a way of
//! its own to it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::atlas::Place;
use super::configuration::{Stance, coordinator_file};
use super::database::{Database, Gate};
use super::patroni::Patroni;
use super::process::{self, Process};
use super::programs;
use super::run_dir::{passable, private, write_private};
use super::servers::Ground;

/// initdb, migrations and the first start, on a busy two-core machine.
const START_MAX: Duration = Duration::from_secs(60);

/// A coordinator stops its Postgres in this time.
const STOP_PATIENCE: Duration = Duration::from_secs(6);

/// What a coordinator prints when it serves.
const READY: &str = "parallax: ready";

/// Connections the story keeps to the database.
const POOL_MAX: u32 = 2;

/// The running coordinators. Dropping it kills them.
#[derive(Debug)]
pub struct Coordinators {
    all: Vec<One>,
    shared: Shared,
}

/// What they share.
#[derive(Debug)]
enum Shared {
    Nothing,
    Database(Box<Database>),
    Patroni(Box<Patroni>),
}

#[derive(Debug)]
struct One {
    number: usize,
    process: Process,
    /// Its own way to the shared database, and the URL that leads there.
    database: Option<(Option<Gate>, String)>,
}

/// How many coordinators a run has, and on what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Setting {
    /// One, with its embedded Postgres.
    One,
    /// Two that share a Postgres.
    Two,
    /// Two that share a Postgres with a synchronous standby.
    TwoWithStandby,
    /// Two that share three Postgres nodes under Patroni.
    TwoWithPatroni,
}

impl Setting {
    /// How many.
    #[must_use]
    pub fn coordinators(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two | Self::TwoWithStandby | Self::TwoWithPatroni => 2,
        }
    }
}

impl Coordinators {
    /// Starts as many as the setting says at the same moment: two are the first ones on an empty database.
    ///
    /// # Errors
    /// The configuration is refused, or one does not come up.
    pub async fn start(ground: &Ground, setting: Setting, stance: Stance) -> Result<Self> {
        let count = setting.coordinators();
        write_private(&tsig_file(ground), &ground.tsig_secret)?;
        let parallax = programs::ours("parallax")?;
        for number in 0..count {
            let file = coordinator_file(ground, &tsig_file(ground), number, stance);
            write_private(&configuration_file(ground, number), &file)?;
            passable(&state(ground, number))?;
        }
        let file = configuration_file(ground, 0);
        process::run(None, &parallax, &["config".as_ref(), "check".as_ref(), "--config".as_ref(), file.as_os_str()])
            .await
            .context("the demo's configuration")?;
        if count == 1 {
            let process = launch(ground, 0, None).await?;
            return Ok(Self { all: vec![One { number: 0, process, database: None }], shared: Shared::Nothing });
        }
        // Several coordinators have one authority: it is made once and copied.
        issue(ground, "authority", &ground.directory.join("authority")).await?;
        for number in 1..count {
            copy_directory(&state(ground, 0).join("ca"), &state(ground, number).join("ca"))?;
        }
        if setting == Setting::TwoWithPatroni {
            let cluster = Patroni::start(&ground.directory, &ground.log("database")).await?;
            let url = cluster.url();
            let starts = (0..count).map(async |number| launch(ground, number, Some(&url)).await);
            let processes = futures_util::future::try_join_all(starts).await?;
            let all = processes.into_iter().enumerate();
            let all = all.map(|(number, process)| One { number, process, database: Some((None, url.clone())) });
            return Ok(Self { all: all.collect(), shared: Shared::Patroni(Box::new(cluster)) });
        }
        let pair = setting == Setting::TwoWithStandby;
        let database = Database::start(&ground.directory, &ground.log("database"), pair).await?;
        let mut gates = Vec::new();
        for number in 0..count {
            gates.push(Gate::open(&ground.directory.join(format!("db-{number}")), database.home())?);
        }
        let starts = gates.iter().enumerate().map(|(number, gate)| {
            let url = url(&[&[gate.home()], database.homes().get(1..).unwrap_or_default()].concat());
            async move { launch(ground, number, Some(&url)).await.map(|process| (number, process, url)) }
        });
        let started = futures_util::future::try_join_all(starts).await?;
        let all = started.into_iter().zip(gates);
        let all = all.map(|((number, process, url), gate)| One { number, process, database: Some((Some(gate), url)) });
        Ok(Self { all: all.collect(), shared: Shared::Database(Box::new(database)) })
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Connects to the server of the database that takes writes, lazily: it outlives a killed coordinator, not a
    /// stopped one.
    ///
    /// # Errors
    /// None takes writes.
    pub async fn database(&self, state: &Path) -> Result<PgPool> {
        let options = PgConnectOptions::new_without_pgpass()
            .port(5432)
            .username("parallax")
            .database("parallax")
            .application_name("parallax-lab");
        let options = match &self.shared {
            Shared::Nothing => options.socket(state.join("pg/socket")),
            Shared::Database(database) => options.socket(database.home()),
            Shared::Patroni(cluster) => {
                let (port, password) = cluster.leader().await?;
                options.host("127.0.0.1").port(port).password(password)
            }
        };
        Ok(PgPoolOptions::new()
            .max_connections(POOL_MAX)
            .acquire_timeout(Duration::from_secs(5))
            .connect_lazy_with(options))
    }

    /// Kills one as a power cut would.
    ///
    /// # Errors
    /// There is none of that number, or it cannot be killed.
    pub async fn kill(&mut self, number: usize) -> Result<()> {
        self.one(number)?.process.kill9().await
    }

    /// Starts one again on its state.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn restart(&mut self, ground: &Ground, number: usize) -> Result<()> {
        let one = self.one(number)?;
        let url = one.database.as_ref().map(|(_, url)| url.clone());
        one.process = launch(ground, number, url.as_deref()).await?;
        Ok(())
    }

    /// Freezes one where it stands, or thaws it.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn freeze(&mut self, number: usize, frozen: bool) -> Result<()> {
        self.one(number)?.process.signal(if frozen { Signal::SIGSTOP } else { Signal::SIGCONT });
        Ok(())
    }

    /// Cuts one off from the database, or joins it again.
    ///
    /// # Errors
    /// There is none of that number, or it has its database within.
    pub fn cut(&mut self, number: usize, cut: bool) -> Result<()> {
        let within = "this coordinator has no gate to its database";
        let gate = self.one(number)?.database.as_ref().and_then(|(gate, _)| gate.as_ref()).context(within)?;
        if cut {
            gate.silence()
        } else {
            gate.restore()
        }
        Ok(())
    }

    /// Kills the database's primary as a power cut would; its standby becomes the primary, under Patroni by itself.
    ///
    /// # Errors
    /// There is no standby, or it does not become one.
    pub async fn fail_over(&mut self) -> Result<()> {
        match &mut self.shared {
            Shared::Nothing => bail!("the database is within the coordinator"),
            Shared::Database(database) => database.fail_over().await,
            Shared::Patroni(cluster) => cluster.kill_leader().await,
        }
    }

    /// Programs that have ended, with the tails of their logs.
    pub fn ended(&mut self) -> Vec<String> {
        let all = self.all.iter_mut().filter_map(|one| one.process.ended());
        let database = match &mut self.shared {
            Shared::Nothing => None,
            Shared::Database(database) => database.ended(),
            Shared::Patroni(cluster) => cluster.ended(),
        };
        all.chain(database).collect()
    }

    /// Largest resident set of any of them so far, KiB.
    pub fn peak_rss_kib(&mut self) -> u64 {
        self.all.iter_mut().map(|one| one.process.peak_rss_kib()).max().unwrap_or_default()
    }

    /// The processes, for failure messages.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.all.iter().map(|one| &one.process)
    }

    /// Stops them, and the database.
    ///
    /// # Errors
    /// The system refuses to kill one.
    pub async fn stop(&mut self) -> Result<()> {
        for one in &mut self.all {
            // A frozen one could not end.
            one.process.signal(Signal::SIGCONT);
            if let Some((Some(gate), _)) = &one.database {
                gate.restore();
            }
        }
        let stops = self.all.iter_mut().map(|one| one.process.stop(STOP_PATIENCE));
        for stopped in futures_util::future::join_all(stops).await {
            stopped?;
        }
        match &mut self.shared {
            Shared::Nothing => Ok(()),
            Shared::Database(database) => database.stop(STOP_PATIENCE).await,
            Shared::Patroni(cluster) => cluster.stop(STOP_PATIENCE).await,
        }
    }

    fn one(&mut self, number: usize) -> Result<&mut One> {
        self.all.iter_mut().find(|one| one.number == number).context("there is no such coordinator")
    }
}

/// The state directory of one, for `--state`.
#[must_use]
pub fn state(ground: &Ground, number: usize) -> PathBuf {
    ground.directory.join(named(number))
}

/// Makes the identity of a vantage, with the first coordinator's authority.
///
/// # Errors
/// The program refuses.
pub async fn issue(ground: &Ground, vantage: &str, out: &Path) -> Result<()> {
    let (parallax, state) = (programs::ours("parallax")?, state(ground, 0));
    let (out, with) = (out.to_string_lossy(), state.to_string_lossy());
    let arguments = ["vantage", "issue", vantage, "--out", &out, "--state", &with, "--make-authority"];
    process::run(None, &parallax, &arguments).await.with_context(|| format!("issuing the identity of {vantage}"))?;
    Ok(())
}

fn named(number: usize) -> String {
    if number == 0 { "coordinator".to_owned() } else { format!("coordinator-{}", number + 1) }
}

fn configuration_file(ground: &Ground, number: usize) -> PathBuf {
    let name = if number == 0 { "parallax.yaml".to_owned() } else { format!("parallax-{}.yaml", number + 1) };
    ground.directory.join(name)
}

fn tsig_file(ground: &Ground) -> PathBuf {
    ground.directory.join("tsig")
}

fn url(homes: &[&Path]) -> String {
    let hosts: Vec<String> = homes.iter().map(|home| home.display().to_string()).collect();
    format!("postgres:///parallax?host={}&user=parallax&target_session_attrs=read-write", hosts.join(","))
}

async fn launch(ground: &Ground, number: usize, database: Option<&str>) -> Result<Process> {
    let mut command = process::command(ground.namespace(Place::Hq), &programs::ours("parallax")?);
    command.arg("serve").arg("--config").arg(configuration_file(ground, number));
    command.arg("--state").arg(state(ground, number));
    if let Some(url) = database {
        command.arg("--database-url").arg(url);
    }
    let log = ground.log(&named(number));
    let before = std::fs::metadata(&log).map(|m| m.len()).unwrap_or(0);
    let mut process = Process::start(&named(number), &log, command)?;
    let fresh =
        || std::fs::read(&log).map(|b| b.get(usize::try_from(before).unwrap_or(0)..).unwrap_or_default().to_vec());
    process
        .until("serving", START_MAX, async || {
            fresh().is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(READY))
        })
        .await?;
    Ok(process)
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    private(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            bail!("{} is not a file", entry.path().display());
        }
        std::fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
