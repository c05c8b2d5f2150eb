//! R16: the agent's whole job on weak hardware, with a coordinator that goes away in the middle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use parallax_proto::v1::Purpose;
use tokio::time::sleep;

use super::agent::{Agent, Setup};
use super::assignment::{self, ORDINARY_PROBES};
use super::cage::{Cage, Limits};
use super::coordinator::{Row, Seen};
use super::figure::Figure;
use super::proc;
use super::sitting::Sitting;
use crate::clock;

/// Between two looks at the process.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// To connect and take the assignment, under a tenth of a processor.
const BEGIN_MAX: Duration = Duration::from_secs(60);
/// After the outage, or at the end, for what waits in the spool to come.
const DRAIN_MAX: Duration = Duration::from_secs(60);

/// What is asked of the agent.
#[derive(Debug, Clone, Copy)]
pub struct Ordeal {
    /// How much it may have.
    pub limits: Limits,
    /// How long it works.
    pub work: Duration,
    /// Interval of every grid, ms.
    pub round_ms: u32,
    /// How long the coordinator is away, from the middle on.
    pub outage: Duration,
}

/// The figures.
///
/// # Errors
/// The agent ends by itself, or is killed for want of memory.
pub async fn figures(sitting: &Sitting, ordeal: Ordeal) -> Result<Vec<Figure>> {
    let mut cage = Cage::make(ordeal.limits);
    eprintln!("bench: {}", cage.describe());
    let work = assignment::ordinary(&sitting.targets, ordeal.round_ms);
    let (coordinator, setup) = sitting.pair("weak", work).await?;
    let command = cage.wrap(&setup.command);
    let mut agent = Agent::start(Setup { command, ..setup })?;
    cage.pace(agent.pid()?);
    coordinator
        .until("the first rows", BEGIN_MAX, |seen| !seen.rows.is_empty())
        .await
        .with_context(|| agent.log_tail())?;
    let began_ms = clock::unix_ms();
    let (mut peak, mut before) = (0, proc::cpu_s(agent.pid()?)?);
    let cpu_at_start = before;
    let start = clock::now();
    let mut away = false;
    while start.elapsed() < ordeal.work {
        sleep(LOOK_EVERY).await;
        let Ok(pid) = agent.pid() else {
            bail!("the agent ended: {} kills for want of memory; {}", cage.counted().kills, agent.log_tail());
        };
        peak = peak.max(proc::memory(pid)?.peak);
        before = proc::cpu_s(pid)?;
        let middle = ordeal.work / 2;
        let wanted_away = start.elapsed() >= middle && start.elapsed() < middle + ordeal.outage;
        if wanted_away != away {
            away = wanted_away;
            coordinator.go_away(away);
        }
    }
    let ended_ms = clock::unix_ms();
    let elapsed = start.elapsed().as_secs_f64();
    let counted = cage.counted();
    // What was measured up to now must all come.
    let drained = coordinator.until("what waits in the spool", DRAIN_MAX, |seen| {
        seen.rows.last().is_some_and(|row| row.ended_ms > ended_ms)
    });
    drained.await?;
    let pid = agent.pid()?;
    cage.open(pid);
    let stopped = agent.stop().await?;
    let seen = coordinator.seen();
    let found = judge(&seen, began_ms, ended_ms);
    let rounds = (ended_ms - began_ms) / f64::from(ordeal.round_ms);
    let missing = found.missing(whole(rounds));
    let limit_mib = count_mib(ordeal.limits.memory_bytes >> 10);
    let kept = if cage.is_kept_by_the_kernel() { "kept by the kernel" } else { "watched, not kept" };
    let cpu = (before - cpu_at_start) / elapsed * 100.0;
    Ok(vec![
        Figure::new("R16.missing", "probes", Some(count(missing)), Some(0.0)).note(&format!(
            "{} scheduled probes of {} subjects in {:.0} s of rounds every {:.0} s; coordinator away for {} s; {} streams; stopped when told: {stopped}",
            found.scheduled.values().sum::<usize>(),
            found.scheduled.len(),
            elapsed,
            f64::from(ordeal.round_ms) / 1000.0,
            ordeal.outage.as_secs(),
            seen.streams
        )),
        Figure::new("R16.false", "probes", Some(count(found.failed.values().sum())), Some(0.0))
            .note(&format!("no success although everything works: {:?}", found.failed)),
        Figure::new("R16.lost", "rows", Some(count(found.holes)), Some(0.0)).note("numbers that never came"),
        Figure::new("R16.peak", "MiB", Some(count_mib(peak)), Some(limit_mib)).note(&format!("largest resident set, limit {kept}")),
        Figure::new("R16.kills", "kills", Some(count(usize::try_from(counted.kills)?)), Some(0.0)),
        Figure::new("R16.cpu", "percent", Some(cpu), Some(count(usize::try_from(ordeal.limits.cpu_percent)?)))
            .note(&format!("of one processor; kept from running for {:.1} s in all", counted.throttled.as_secs_f64())),
    ])
}

/// What the rows of a stretch of time say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Scheduled probes of each subject.
    scheduled: BTreeMap<String, usize>,
    failed: BTreeMap<String, usize>,
    holes: usize,
}

impl Found {
    /// Probes that are not there, when so many rounds of everything were due. The stretch may cut one at its ends.
    fn missing(&self, rounds: usize) -> usize {
        let due = rounds.saturating_sub(1);
        let never = ORDINARY_PROBES.saturating_sub(self.scheduled.len()).saturating_mul(due);
        never + self.scheduled.values().map(|came| due.saturating_sub(*came)).sum::<usize>()
    }
}

fn judge(seen: &Seen, from_ms: f64, to_ms: f64) -> Found {
    let mut found = Found::default();
    let within = |row: &&Row| row.ended_ms >= from_ms && row.ended_ms < to_ms;
    // A batch whose acknowledgement was lost comes twice.
    let mut known = BTreeSet::new();
    for row in seen.rows.iter().filter(within) {
        if !known.insert((row.lane, row.observation.sequence)) {
            continue;
        }
        if row.observation.purpose() == Purpose::Scheduled && !row.is_about_the_agent() {
            *found.scheduled.entry(row.subject()).or_default() += 1;
        }
        if !row.works() {
            *found.failed.entry(format!("{:?} {}", row.outcome(), kind(&row.subject()))).or_default() += 1;
        }
    }
    let mut lanes: BTreeMap<i32, BTreeSet<u64>> = BTreeMap::new();
    for row in &seen.rows {
        lanes.entry(row.lane).or_default().insert(row.observation.sequence);
    }
    for numbers in lanes.values() {
        if let (Some(first), Some(last)) = (numbers.first(), numbers.last()) {
            let span = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
            found.holes += span.saturating_sub(numbers.len());
        }
    }
    found
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some thousand rounds")]
fn whole(number: f64) -> usize {
    number as usize
}

fn kind(subject: &str) -> &str {
    subject.split(' ').next().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "some thousand")]
fn count(number: usize) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "some megabytes")]
fn count_mib(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_that_was_left_out_is_not_made_up_for_by_another() {
        let mut found = Found::default();
        for number in 0..ORDINARY_PROBES {
            found.scheduled.insert(number.to_string(), 9);
        }
        assert_eq!(found.missing(10), 0);
        found.scheduled.insert("0".to_owned(), 99);
        found.scheduled.insert("1".to_owned(), 7);
        assert_eq!(found.missing(10), 2);
        found.scheduled.remove("2");
        assert_eq!(found.missing(10), 2 + 9);
    }
}
