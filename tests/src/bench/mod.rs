//! The bench: what the agent costs, beside what comparable programs cost on the same machine in the same sitting.
//!
//! `./x bench query` asks a long log for five minutes ([`query`], P10).
//! `./x bench agent` prints the figures of docs/bench.md, one a line: [`memory`] (P1, P2), [`cost`] (P3), [`size`] (P4),
//! [`starts`] (P5). Each starts the shipped binary as a process ([`agent`]) with a [`mod@coordinator`] that speaks the real
//! protocol, over the same [`targets`] that the [`peers`] are driven against, all in a network of its own ([`ground`]). [`proc`] reads
//! what the kernel says.
//!
//! `./x bench fleet` and `./x bench ingest` are about the coordinator: a simulated [`fleet`] against a real
//! [`installation`] with a real Postgres: [`streams`] (P6, P15), [`mod@ingest`] (P7, P8) beside its [`ceiling`].
//! `./x bench detect` feeds the log and lets it decide ([`detect`]).
//!
//! Absent on purpose: any verdict of a run. A figure that falls short is a figure; noise must not break a build.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use self::figure::Figure;
use self::sitting::Sitting;
use crate::lab::programs;

pub mod agent;
pub mod assignment;
pub mod authority;
pub mod cage;
pub mod ceiling;
pub mod coordinator;
pub mod cost;
pub mod detect;
pub mod figure;
pub mod fleet;
pub mod ground;
pub mod ingest;
pub mod installation;
pub mod memory;
pub mod peers;
pub mod proc;
pub mod query;
pub mod sitting;
pub mod size;
pub mod starts;
pub mod streams;
pub mod targets;
pub mod trace;
pub mod weak;

/// Longest a sitting may take.
const SITTING_MAX: Duration = Duration::from_secs(15 * 60);
/// Work before memory counts (P1).
const WORK: Duration = Duration::from_secs(60);
/// One run of CPU time (P3).
const WINDOW: Duration = Duration::from_secs(20);
/// Starts that count (P5, R10).
const STARTS: Duration = Duration::from_secs(30);
/// How long the goal of P7 asks for.
const FULL_S: u64 = 300;
/// Each of the other windows of `bench ingest`.
const SHORT: Duration = Duration::from_secs(30);

/// What `bench` measures.
#[derive(Debug, clap::Subcommand)]
pub enum What {
    /// What the agent costs: memory, processor time, size, punctuality.
    Agent(AgentOptions),
    /// The agent's whole job in 16 MiB of memory and a tenth of a processor, the coordinator away for a while.
    Weak(WeakOptions),
    /// "Who saw what" in any five minutes of a long log, beside the scan of its rows (P10).
    Query(query::QueryOptions),
    /// What the agent asks of the system during a round: no write outside its folder, no temporary file, no listener.
    Trace(TraceOptions),
    /// What thousands of live streams cost the coordinator, and how they come back after kill -9.
    Fleet(FleetOptions),
    /// How many observations a second the coordinator stores, and how soon each is there.
    Ingest(IngestOptions),
    /// What deciding alone costs at 15,000 observations a second, and how soon a verdict follows its rows.
    Detect(detect::DetectOptions),
}

/// Options of `bench agent`.
#[derive(Debug, clap::Args)]
pub struct AgentOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Only these figures, by the beginning of their names, like P3.
    #[arg(long = "only", value_name = "NAME")]
    pub only: Vec<String>,
    /// The agent's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
    /// Keep to a few seconds a figure: shows that the bench works, and measures nothing worth quoting.
    #[arg(long, hide = true)]
    pub quick: bool,
}

/// Options of `bench weak`.
#[derive(Debug, clap::Args)]
pub struct WeakOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// How long it works.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub seconds: u64,
    /// Its memory, MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    pub memory: u64,
    /// Its part of one processor, percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub cpu: u64,
    /// Interval of every grid, ms.
    #[arg(long, value_name = "MS", default_value_t = assignment::ROUND_MS, hide = true)]
    pub round: u32,
    /// The agent's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
}

/// Options of `bench trace`.
#[derive(Debug, clap::Args)]
pub struct TraceOptions {
    /// The agent's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub agent: Option<PathBuf>,
}

/// Options of `bench fleet`.
#[derive(Debug, clap::Args)]
pub struct FleetOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Streams.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    pub agents: u32,
    /// How long they work before memory is told.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// The coordinator accepts and stores alone; another one would decide.
    #[arg(long)]
    pub accept_only: bool,
    /// The coordinator's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub coordinator: Option<PathBuf>,
}

/// Options of `bench ingest`.
#[derive(Debug, clap::Args)]
pub struct IngestOptions {
    /// One JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// Streams.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=15_000))]
    pub agents: u32,
    /// Rows a second that are said: a hundredth more than the goal, which what is acknowledged in the same time must reach.
    #[arg(long, value_name = "ROWS", default_value_t = 15_150, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub rate: u32,
    /// How long they must be.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub seconds: u64,
    /// Five minutes of them, as the goal has it.
    #[arg(long, conflicts_with = "seconds")]
    pub full: bool,
    /// The coordinator accepts and stores alone; another one would decide.
    #[arg(long)]
    pub accept_only: bool,
    /// The coordinator's binary; without it the one beside this program.
    #[arg(long, value_name = "FILE")]
    pub coordinator: Option<PathBuf>,
}

/// Runs what was asked for, in a network namespace that [`ground::decide`] led to. What is written goes below `directory`,
/// which is removed by the caller.
///
/// # Errors
/// Something does not start, breaks down, or takes longer than a sitting may. A figure that falls short is none.
pub async fn run(what: What, directory: &Path) -> Result<()> {
    ground::prepare().await?;
    match what {
        What::Agent(options) => {
            let measured = tokio::time::timeout(SITTING_MAX, agent_figures(&options, directory)).await;
            measured.context("the sitting took more than 15 minutes and was ended")?
        }
        What::Weak(options) => weak_figures(&options, directory).await,
        What::Query(options) => {
            eprintln!("bench: {}; load {}", machine(), proc::load());
            let figures = query::figures(&options, directory).await?;
            figures.iter().try_for_each(|figure| Ok(figure.print(options.json)?))
        }
        What::Trace(options) => {
            let sitting = Sitting::begin(&binary(options.agent.as_ref())?, directory).await?;
            println!("{}", trace::check(&sitting).await?);
            Ok(())
        }
        What::Fleet(options) => {
            let size = streams::Size {
                agents: options.agents,
                accept_only: options.accept_only,
                work: Duration::from_secs(options.seconds),
            };
            sitting(options.json, streams::figures(&coordinator(options.coordinator.as_ref())?, directory, size)).await
        }
        What::Ingest(options) => {
            let seconds = if options.full { FULL_S } else { options.seconds };
            let size = ingest::Size {
                agents: options.agents,
                accept_only: options.accept_only,
                rate: options.rate,
                sustained: Duration::from_secs(seconds),
                short: SHORT.min(Duration::from_secs(seconds)),
            };
            sitting(options.json, ingest::figures(&coordinator(options.coordinator.as_ref())?, directory, size)).await
        }
        What::Detect(options) => {
            let long = Duration::from_secs(options.seconds);
            sitting(options.json, detect::figures(&coordinator(options.coordinator.as_ref())?, directory, long)).await
        }
    }
}

/// Figures that come together, within the time of a sitting.
async fn sitting(json: bool, figures: impl Future<Output = Result<Vec<Figure>>>) -> Result<()> {
    eprintln!("bench: {}; load {}", machine(), proc::load());
    let figures = tokio::time::timeout(SITTING_MAX, figures).await;
    let figures = figures.context("the sitting took more than 15 minutes and was ended")??;
    eprintln!("bench: load at the end {}", proc::load());
    figures.iter().try_for_each(|figure| Ok(figure.print(json)?))
}

fn coordinator(given: Option<&PathBuf>) -> Result<PathBuf> {
    match given {
        Some(binary) => binary.canonicalize().with_context(|| format!("finding {}", binary.display())),
        None => programs::ours("parallax"),
    }
}

fn binary(given: Option<&PathBuf>) -> Result<PathBuf> {
    match given {
        Some(binary) => binary.canonicalize().with_context(|| format!("finding {}", binary.display())),
        None => programs::ours("parallax-agent"),
    }
}

async fn weak_figures(options: &WeakOptions, directory: &Path) -> Result<()> {
    let sitting = Sitting::begin(&binary(options.agent.as_ref())?, directory).await?;
    let work = Duration::from_secs(options.seconds);
    let ordeal = weak::Ordeal {
        limits: cage::Limits { memory_bytes: options.memory << 20, cpu_percent: options.cpu },
        work,
        round_ms: options.round,
        outage: work / 10,
    };
    eprintln!("bench: {}; load {}", machine(), proc::load());
    weak::figures(&sitting, ordeal).await?.iter().try_for_each(|figure| Ok(figure.print(options.json)?))
}

async fn agent_figures(options: &AgentOptions, directory: &Path) -> Result<()> {
    let binary = binary(options.agent.as_ref())?;
    let sitting = Sitting::begin(&binary, directory).await?;
    eprintln!("bench: {}; agent {}; load {}", machine(), binary.display(), proc::load());
    for (program, package) in
        [("prometheus-blackbox-exporter", "prometheus-blackbox-exporter"), ("zabbix_agent2", "zabbix-agent2")]
    {
        if programs::find(program).is_none() {
            eprintln!(
                "bench: {package} is not installed; figures that compare with it say peer=missing (./x install {package})"
            );
        }
    }
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.starts_with(only.as_str()));
    let short = |full: Duration, quick: u64| if options.quick { Duration::from_secs(quick) } else { full };
    let print = |figures: Result<Vec<Figure>>| -> Result<()> {
        figures?.iter().try_for_each(|figure| Ok(figure.print(options.json)?))
    };
    if wanted("P4") {
        print(size::figures(&binary).await.context("P4"))?;
    }
    if wanted("P1") {
        print(memory::at_work(&sitting, short(WORK, 12)).await.context("P1"))?;
    }
    if wanted("P2") {
        print(memory::hung(&sitting).await.context("P2"))?;
    }
    if wanted("P3") {
        print(cost::figures(&sitting, short(WINDOW, 3)).await.context("P3"))?;
    }
    if wanted("P5") {
        print(starts::all_hang(&sitting, short(STARTS, 5)).await.context("P5"))?;
    }
    if wanted("R10") {
        print(starts::endpoints_silent(&sitting, short(STARTS, 5)).await.context("R10"))?;
    }
    eprintln!("bench: load at the end {}", proc::load());
    Ok(())
}

/// What a reader must know of the machine.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, kernel {}", kernel.trim())
}
