//! `bench fleet`: what thousands of live streams cost the coordinator (P6), and how they come back after it was killed
//! (P15).

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::figure::{Figure, median};
use super::fleet::Fleet;
use super::fleet::agent::Pace;
use super::fleet::tally::Tally;
use super::installation::Installation;
use super::proc;
use crate::clock;

/// Goal of P6, MiB.
const MEMORY_GOAL_MIB: f64 = 300.0;

/// Goal of P15, seconds.
const BACK_GOAL_S: f64 = 30.0;

/// Longest wait for all streams.
const STREAMS_MAX: Duration = Duration::from_secs(180);

/// Streams open and nothing said, before memory counts.
const SETTLE: Duration = Duration::from_secs(15);

/// Between two looks at memory.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// A round of each agent while memory is watched: 5 rows every 10 s are what the default policy's 60 s rounds of three
/// names at two resolvers, three controls and an endpoint come to.
const NORMAL: Pace = Pace::Rounds { routine: 4, urgent: 1, every: Duration::from_secs(10) };

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Streams.
    pub agents: u32,
    /// Deciding is left to another coordinator.
    pub accept_only: bool,
    /// At the normal pace.
    pub work: Duration,
}

/// P6 and P15.
///
/// # Errors
/// Something does not start, streams are not taken, or a row is lost.
pub async fn figures(binary: &Path, directory: &Path, size: Size) -> Result<Vec<Figure>> {
    let mut installation = Installation::start(binary, directory, size.agents, size.accept_only).await?;
    let agents = u64::from(size.agents);
    let before = proc::memory(installation.pid()?)?;
    let spread = Duration::from_millis((agents * 2).max(500));
    let fleet = Fleet::start(&installation.identities()?, installation.address, size.agents, spread)?;
    let all = |tally: &Tally| Tally::read(&tally.live) == agents;
    let opened = fleet.until("every stream open", STREAMS_MAX, all).await?;
    tokio::time::sleep(SETTLE.min(size.work)).await;
    let pid = installation.pid()?;
    let idle = proc::memory(pid)?;
    fleet.pace(NORMAL);
    let (cpu, start) = (proc::cpu_s(pid)?, clock::now());
    let mut samples = Vec::new();
    while start.elapsed() < size.work {
        tokio::time::sleep(SAMPLE_EVERY).await;
        samples.push(mib(proc::memory(pid)?.rss));
    }
    let cores = (proc::cpu_s(pid)? - cpu) / start.elapsed().as_secs_f64();
    let rate = whole(Tally::read(&fleet.tally.acked)) / start.elapsed().as_secs_f64();
    let peak = mib(proc::memory(pid)?.peak);
    let still = Tally::read(&fleet.tally.live);
    let kib_each = (whole(idle.rss) - whole(before.rss)) / whole(agents.max(1));
    let mut figures = vec![
        Figure::new("P6.memory_idle", "MiB", Some(mib(idle.rss)), Some(MEMORY_GOAL_MIB)).note(&format!(
            "{agents} streams, opened in {:.1} s; {:.1} MiB before the first, {kib_each:.1} KiB a stream",
            opened.as_secs_f64(),
            mib(before.rss)
        )),
        Figure::new("P6.memory", "MiB", median(&samples), Some(MEMORY_GOAL_MIB)).note(&format!(
            "median over {} s at {rate:.0} rows/s from {still} streams; peak {peak:.0} MiB, {cores:.2} cores",
            start.elapsed().as_secs()
        )),
    ];
    match comes_back(installation, fleet, agents).await {
        Ok(more) => figures.extend(more),
        Err(error) => {
            figures
                .push(Figure::new("P15.back", "s", None, Some(BACK_GOAL_S)).note(&format!("not measured: {error:#}")));
        }
    }
    Ok(figures)
}

/// Kills the coordinator while the fleet is at work.
async fn comes_back(mut installation: Installation, fleet: Fleet, agents: u64) -> Result<Vec<Figure>> {
    let overflows = refused_by_the_kernel()?;
    let opened = Tally::read(&fleet.tally.opened);
    installation.kill().await?;
    let killed = clock::now();
    installation.restart().await?;
    let serving = killed.elapsed();
    let back = |tally: &Tally| Tally::read(&tally.live) == agents && Tally::read(&tally.opened) >= opened + agents;
    fleet.until("every stream back", STREAMS_MAX, back).await?;
    let back = killed.elapsed();
    let failed = Tally::read(&fleet.tally.failed);
    let overflowed = refused_by_the_kernel()? - overflows;
    let numbered = fleet.end(STREAMS_MAX).await?;
    let stored = installation.verify(numbered).await;
    let lost = match &stored {
        Ok(_) => 0.0,
        Err(error) => {
            eprintln!("bench: {error:#}");
            1.0
        }
    };
    installation.stop().await?;
    Ok(vec![
        Figure::new("P15.back", "s", Some(back.as_secs_f64()), Some(BACK_GOAL_S)).note(&format!(
            "{agents} streams after kill -9; the coordinator served again after {:.1} s; {failed} attempts failed meanwhile",
            serving.as_secs_f64()
        )),
        Figure::new("P15.lost", "rows", Some(lost), Some(0.0)).note(&format!(
            "{numbered} rows numbered by the fleet; stored by number: {}",
            stored.map_or_else(|error| error.to_string(), |rows| format!("{rows}, none missing, none twice"))
        )),
        Figure::new("P15.accept_refused", "connections", Some(overflowed), Some(0.0))
            .note("TcpExt ListenOverflows and ListenDrops of this machine meanwhile"),
    ])
}

/// Connections that the kernel dropped because an accept queue was full, since boot.
fn refused_by_the_kernel() -> Result<f64> {
    let text = fs::read_to_string("/proc/net/netstat").context("/proc/net/netstat")?;
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("TcpExt: "));
    let (names, values) = lines.next().zip(lines.next()).context("/proc/net/netstat has no TcpExt")?;
    let both = names.split(' ').zip(values.split(' '));
    let wanted = both.filter(|(name, _)| matches!(*name, "ListenOverflows" | "ListenDrops"));
    Ok(wanted.filter_map(|(_, value)| value.parse::<f64>().ok()).sum())
}

#[expect(clippy::cast_precision_loss, reason = "counts and KiB, far below 2^52")]
fn whole(count: u64) -> f64 {
    count as f64
}

fn mib(kib: u64) -> f64 {
    whole(kib) / 1024.0
}
