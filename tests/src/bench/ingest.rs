//! `bench ingest`: how many observations a second are stored (P7), against what Postgres alone could store in the same
//! sitting, and how long one takes from the end of its probe until it is stored (P8).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use parallax_proto::v1::Lane;

use super::ceiling;
use super::figure::{Figure, median};
use super::fleet::Fleet;
use super::fleet::agent::Pace;
use super::fleet::tally::Tally;
use super::installation::Installation;
use super::proc;
use crate::clock;

/// Goals of P7: rows a second, and the part of the ceiling.
const RATE_GOAL: f64 = 15_000.0;
const PART_GOAL: f64 = 0.35;

/// Goals of P8, milliseconds.
const VISIBLE_GOAL_MS: f64 = 500.0;
const URGENT_GOAL_MS: f64 = 50.0;

/// Rows a second of P8.
const VISIBLE_RATE: u32 = 10_000;

/// From one round of an agent to the next.
const ROUND: Duration = Duration::from_secs(1);

/// Rows of a batch when every agent sends as fast as it is answered.
const FLAT_ROWS: u32 = 50;

/// One row in so many is urgent.
const URGENT_SHARE: u32 = 10;

/// Until a new pace counts.
const WARM_UP: Duration = Duration::from_secs(5);

/// Longest wait for streams, and for the last acknowledgements.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Rows that the ceiling is measured with.
const CEILING_ROWS: usize = 200_000;

/// How much of it.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Streams.
    pub agents: u32,
    /// Deciding is left to another coordinator.
    pub accept_only: bool,
    /// Rows a second of P7.
    pub rate: u32,
    /// How long at that rate.
    pub sustained: Duration,
    /// How long each of the other two.
    pub short: Duration,
}

/// P7 and P8.
///
/// # Errors
/// Something does not start, or a row is lost.
pub async fn figures(binary: &Path, directory: &Path, size: Size) -> Result<Vec<Figure>> {
    let mut installation = Installation::start(binary, directory, size.agents, size.accept_only).await?;
    let fleet = Fleet::start(&installation.identities()?, installation.address, size.agents, Duration::from_secs(2))?;
    let agents = u64::from(size.agents);
    fleet.until("every stream open", WAIT_MAX, |tally| Tally::read(&tally.live) == agents).await?;
    let mut figures = Vec::new();

    let visible = at_rate(&mut installation, &fleet, rounds(size.agents, VISIBLE_RATE), size.short).await?;
    for (name, lane, goal) in
        [("P8.visible", Lane::Routine, VISIBLE_GOAL_MS), ("P8.urgent", Lane::Urgent, URGENT_GOAL_MS)]
    {
        let latency = fleet.tally.latency(lane);
        let at = |part| latency.quantile_ms(part).unwrap_or(f64::NAN);
        figures.push(Figure::new(name, "ms", latency.quantile_ms(0.99), Some(goal)).note(&format!(
            "p99 from the end of the probe to the acknowledgement, which follows the commit; median {}, p999 {}; {} rows at \
             {:.0}/s; {}",
            at(0.5),
            at(0.999),
            latency.count(),
            visible.rate,
            visible.cores
        )));
    }

    let sustained = at_rate(&mut installation, &fleet, rounds(size.agents, size.rate), size.sustained).await?;
    figures.push(Figure::at_least("P7.rate", "rows/s", Some(sustained.rate), RATE_GOAL).note(&format!(
        "{} s at {} rows/s from {agents} streams; {} rows waited at the end; {}",
        size.sustained.as_secs(),
        size.rate,
        sustained.waiting,
        sustained.cores
    )));

    let flat = at_rate(&mut installation, &fleet, Pace::Flat { rows: FLAT_ROWS }, size.short).await?;
    figures.push(
        Figure::new("P7.saturated", "rows/s", Some(flat.rate), None)
            .note(&format!("every stream as fast as it is acknowledged, {FLAT_ROWS} rows a batch; {}", flat.cores)),
    );
    let numbered = fleet.end(WAIT_MAX).await?;
    let stored = installation.verify(numbered).await?;
    let ceiling = ceiling::runs(&installation, CEILING_ROWS).await?;
    let part = median(&ceiling).map(|ceiling| flat.rate / ceiling);
    figures.push(
        Figure::new("P7.ceiling", "rows/s", median(&ceiling), None)
            .note(&format!("the same rows by psql, COPY of 1,000 with a commit each; runs {:.0?}", ceiling)),
    );
    figures.push(
        Figure::at_least("P7.part_of_ceiling", "ratio", part, PART_GOAL)
            .note(&format!("{stored} rows stored in all, none missing, none twice")),
    );
    installation.stop().await?;
    Ok(figures)
}

/// Every agent a round a second, so that all together say about `rate`.
fn rounds(agents: u32, rate: u32) -> Pace {
    let each = rate.div_ceil(agents.max(1)).max(1);
    // Few agents say much each; many say one round in a while.
    let every = ROUND.mul_f64(f64::from(each * agents) / f64::from(rate.max(1)));
    let urgent = each / URGENT_SHARE;
    Pace::Rounds { routine: each - urgent, urgent, every }
}

struct Window {
    rate: f64,
    waiting: u64,
    cores: String,
}

struct Clocks {
    at: Instant,
    acked: u64,
    coordinator: f64,
    postgres: f64,
    fleet: f64,
}

fn look(installation: &mut Installation, fleet: &Fleet) -> Result<Clocks> {
    Ok(Clocks {
        at: clock::now(),
        acked: Tally::read(&fleet.tally.acked),
        coordinator: proc::cpu_s(installation.pid()?)?,
        postgres: installation.postgres_cpu_s()?,
        fleet: proc::cpu_s(std::process::id())?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of rows")]
async fn at_rate(installation: &mut Installation, fleet: &Fleet, pace: Pace, long: Duration) -> Result<Window> {
    fleet.pace(pace);
    tokio::time::sleep(WARM_UP.min(long)).await;
    for lane in [Lane::Routine, Lane::Urgent] {
        fleet.tally.latency(lane).clear();
    }
    let from = look(installation, fleet)?;
    tokio::time::sleep(long).await;
    let to = look(installation, fleet)?;
    let waiting = Tally::read(&fleet.tally.waiting);
    fleet.pace(Pace::Idle);
    fleet.until("everything acknowledged", WAIT_MAX, |tally| Tally::read(&tally.waiting) == 0).await?;
    let seconds = (to.at - from.at).as_secs_f64();
    let cores = format!(
        "cores: coordinator {:.2}, Postgres {:.2}, fleet {:.2}",
        (to.coordinator - from.coordinator) / seconds,
        (to.postgres - from.postgres) / seconds,
        (to.fleet - from.fleet) / seconds
    );
    Ok(Window { rate: (to.acked - from.acked) as f64 / seconds, waiting, cores })
}
