//! P5 and R10: when probes begin while every target hangs.
//!
//! Nothing in the agent reports it. It is derived from what came: a row's end (its arrival less its age) less its
//! duration is when the probe began; the assignment's grid says when it should have. Both clocks are this machine's. A
//! round of a subject is missed when no row began in it; it is silent when no `missed` row tells of it either.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use parallax_proto::v1;
use parallax_proto::v1::observation::Fact;
use tokio::time::sleep;

use super::assignment::{self, ANSWERING_EVERY_MS, ANSWERING_NODES, STARTS_EVERY_MS, STARTS_SUBJECTS};
use super::coordinator::Row;
use super::figure::{Figure, quantile};
use super::sitting::Sitting;
use crate::clock;

/// Before the window that counts.
const SETTLE: Duration = Duration::from_secs(5);
/// After it, for the last probes to end and their rows to come.
const TAIL: Duration = Duration::from_secs(6);
/// A row may seem to begin this much before its grid's point, ms: ages and the agent's clock are whole milliseconds.
const EARLY_MS: f64 = 5.0;

/// What came of the window.
#[derive(Debug, Default, PartialEq)]
struct Starts {
    /// Start less grid point, ms, one each probe.
    errors: Vec<f64>,
    /// Grid points of a subject without a row.
    missed: usize,
    /// Grid points with more than one row of a subject.
    twice: usize,
    /// Probes begun, by kind of fact.
    kinds: BTreeMap<String, usize>,
}

/// A grid and how many subjects have a row at each of its points.
#[derive(Debug, Clone, Copy)]
struct Expected {
    every_ms: f64,
    subjects: usize,
    counts: fn(&Fact) -> bool,
}

/// P5: every target hangs.
///
/// # Errors
/// The agent breaks down.
pub async fn all_hang(sitting: &Sitting, window: Duration) -> Result<Vec<Figure>> {
    let every_ms = f64::from(STARTS_EVERY_MS);
    let expected = Expected { every_ms, subjects: STARTS_SUBJECTS, counts: |_| true };
    let all = assignment::everything_hangs(&sitting.targets);
    measure(sitting, "P5", all, expected, window, "all hanging for 2 s").await
}

/// R10: every endpoint takes connections and stays silent; the figures are of the nodes, which answer.
///
/// # Errors
/// The agent breaks down.
pub async fn endpoints_silent(sitting: &Sitting, window: Duration) -> Result<Vec<Figure>> {
    let every_ms = f64::from(ANSWERING_EVERY_MS);
    let counts = |fact: &Fact| matches!(fact, Fact::Connection(_));
    let expected = Expected { every_ms, subjects: ANSWERING_NODES, counts };
    let all = assignment::silent_endpoints(&sitting.targets);
    measure(sitting, "R10", all, expected, window, "answering, while 558 others hang at silent endpoints").await
}

async fn measure(
    sitting: &Sitting,
    name: &str,
    assignment: v1::Assignment,
    expected: Expected,
    window: Duration,
    what: &str,
) -> Result<Vec<Figure>> {
    let (coordinator, mut agent) = sitting.agent(&name.to_ascii_lowercase(), assignment).await?;
    sleep(SETTLE).await;
    let from = (clock::unix_ms() / expected.every_ms).ceil() * expected.every_ms;
    let grids = (window.as_secs_f64() * 1000.0 / expected.every_ms).ceil();
    let to = from + expected.every_ms * grids;
    sleep(window + TAIL).await;
    agent.pid()?;
    agent.stop().await?;
    let seen = coordinator.seen();
    let starts = starts(&seen.rows, from, to, expected);
    ensure!(!starts.errors.is_empty(), "no rows came");
    let told = usize::try_from(seen.rows.iter().map(Row::missed).sum::<u64>()).unwrap_or(usize::MAX);
    let worst = quantile(&starts.errors, 1.0).unwrap_or_default();
    let scheduled = expected.subjects.saturating_mul(usize::try_from(whole(grids)).unwrap_or(usize::MAX));
    let rate = count(scheduled) / (to - from) * 1000.0;
    let note = format!(
        "{rate:.0} probes/s scheduled, {what}; {} of {scheduled} began; median {:.1}, worst {worst:.0} ms; start = row's end less its duration, against the grid",
        starts.errors.len(),
        quantile(&starts.errors, 0.5).unwrap_or_default(),
    );
    let silent = starts.missed.saturating_sub(told);
    Ok(vec![
        Figure::new(&format!("{name}.p99"), "ms", quantile(&starts.errors, 0.99), Some(20.0)).note(&note),
        Figure::new(&format!("{name}.missed"), "probes", Some(count(starts.missed)), Some(0.0))
            .note(&format!("scheduled and not begun; {} begun twice; begun: {:?}", starts.twice, starts.kinds)),
        Figure::new(&format!("{name}.silent"), "probes", Some(count(silent)), Some(0.0))
            .note(&format!("not begun and told by no `missed` row; those told of {told}")),
    ])
}

/// Matches rows to grid points from `from` to before `to`. There must be this many subjects, with a row each a point.
fn starts(rows: &[Row], from: f64, to: f64, expected: Expected) -> Starts {
    let every = expected.every_ms;
    let mut subjects: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    let mut all = Starts::default();
    for row in rows {
        match &row.observation.fact {
            Some(Fact::Missed(_) | Fact::Loss(_) | Fact::Path(_)) | None => continue,
            Some(fact) if !(expected.counts)(fact) => continue,
            Some(_) => {}
        }
        let subject = row.subject();
        let kind = subject.split(' ').next().unwrap_or_default().to_owned();
        let points = subjects.entry(subject).or_default();
        let since = row.began_ms() - from + EARLY_MS;
        if since < 0.0 || row.began_ms() + EARLY_MS >= to {
            continue;
        }
        let point = (since / every).floor();
        *points.entry(whole(point)).or_default() += 1;
        *all.kinds.entry(kind).or_default() += 1;
        all.errors.push((row.began_ms() - from - point * every).max(0.0));
    }
    all.twice = subjects.values().flat_map(BTreeMap::values).filter(|count| **count > 1).count();
    let begun: usize = subjects.values().map(BTreeMap::len).sum();
    let grids = usize::try_from(whole(((to - from) / every).round())).unwrap_or(usize::MAX);
    all.missed = expected.subjects.saturating_mul(grids).saturating_sub(begun);
    all
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number that is not negative")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[expect(clippy::cast_precision_loss, reason = "some thousand")]
fn count(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(resolver: &str, began_ms: f64) -> Row {
        let check = v1::EndpointCheck { resolver: resolver.to_owned(), ..v1::EndpointCheck::default() };
        let observation = v1::Observation {
            duration_us: 2_000_000,
            fact: Some(Fact::EndpointCheck(check)),
            ..v1::Observation::default()
        };
        Row { ended_ms: began_ms + 2000.0, observation, lane: 1 }
    }

    #[test]
    fn rows_are_matched_to_grid_points_and_holes_are_counted() {
        let from = 10_000.0;
        let rows = [
            row("a", 10_001.0),
            row("a", 12_500.0),
            row("a", 12_520.0),
            // Just before its point by the rounding of an age.
            row("b", 9_998.0),
            // None of b at the second point; this one is after the window.
            row("b", 15_000.0),
        ];
        let expected = Expected { every_ms: 2500.0, subjects: 3, counts: |_| true };
        let starts = starts(&rows, from, 15_000.0, expected);
        assert_eq!(starts.errors, [1.0, 0.0, 20.0, 0.0]);
        assert_eq!((starts.missed, starts.twice), (3, 1), "one of b, and c was never heard of");
    }
}
