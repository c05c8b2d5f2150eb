//! P5 and R10: when probes begin while every target hangs.
//!
//! Nothing in the agent reports it. It is derived from what came: a row's end (its arrival less its age) less its
//! duration is when the probe began; the assignment's grid says when it should have. Both clocks are this machine's. A
//! round of a subject is missed when no row began in it; it is silent when no `missed` row tells of it either.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use parallax_proto::v1::observation::Fact;
use tokio::time::sleep;

use super::assignment::{self, STARTS_EVERY_MS, STARTS_SUBJECTS};
use super::coordinator::{Row, Seen};
use super::figure::{Figure, quantile};
use super::sitting::Sitting;
use crate::clock;

/// Grids before the window that counts.
const SETTLE_GRIDS: u32 = 2;
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
}

/// The figures.
///
/// # Errors
/// The agent breaks down.
pub async fn figures(sitting: &Sitting, grids: u32) -> Result<Vec<Figure>> {
    let (coordinator, mut agent) = sitting.agent("starts", assignment::everything_hangs(&sitting.targets)).await?;
    let every = Duration::from_millis(u64::from(STARTS_EVERY_MS));
    sleep(every * SETTLE_GRIDS).await;
    let from = next_point(clock::unix_ms());
    let to = from + f64::from(STARTS_EVERY_MS) * f64::from(grids);
    // One more for the last round to end in, and a moment for its rows to come.
    sleep(every * (grids + 2)).await;
    agent.pid()?;
    agent.stop().await?;
    let seen = coordinator.seen();
    let starts = starts(&seen.rows, from, to, STARTS_SUBJECTS);
    ensure!(!starts.errors.is_empty(), "no rows came");
    let told = told(&seen);
    let worst = quantile(&starts.errors, 1.0).unwrap_or_default();
    let subjects = starts.errors.len() + starts.missed;
    let rate = per_s(subjects, to - from);
    let note = format!(
        "{rate:.0} probes/s scheduled, all hanging for 2 s, {} of {subjects} began; worst {worst:.0} ms; start = row's end less its duration, against the grid",
        starts.errors.len()
    );
    let p99 = quantile(&starts.errors, 0.99);
    let silent = starts.missed.saturating_sub(told);
    Ok(vec![
        Figure::new("P5.p99", "ms", p99, Some(20.0)).note(&note),
        Figure::new("P5.missed", "probes", Some(count(starts.missed)), Some(0.0))
            .note(&format!("scheduled and not begun; {} begun twice", starts.twice)),
        Figure::new("P5.silent", "probes", Some(count(silent)), Some(0.0))
            .note(&format!("not begun and told by no `missed` row, which told of {told}")),
    ])
}

fn next_point(now_ms: f64) -> f64 {
    let every = f64::from(STARTS_EVERY_MS);
    (now_ms / every).ceil() * every
}

/// Matches rows to grid points from `from` to before `to`. There must be this many subjects, with a row each a point.
fn starts(rows: &[Row], from: f64, to: f64, expected: usize) -> Starts {
    let every = f64::from(STARTS_EVERY_MS);
    let mut subjects: BTreeMap<String, BTreeMap<u64, usize>> = BTreeMap::new();
    let mut all = Starts::default();
    for row in rows {
        if matches!(row.observation.fact, Some(Fact::Missed(_) | Fact::Loss(_) | Fact::Path(_)) | None) {
            continue;
        }
        let points = subjects.entry(row.subject()).or_default();
        let since = row.began_ms() - from + EARLY_MS;
        if since < 0.0 || row.began_ms() + EARLY_MS >= to {
            continue;
        }
        let point = (since / every).floor();
        *points.entry(whole(point)).or_default() += 1;
        all.errors.push((row.began_ms() - from - point * every).max(0.0));
    }
    all.twice = subjects.values().flat_map(BTreeMap::values).filter(|count| **count > 1).count();
    let begun: usize = subjects.values().map(BTreeMap::len).sum();
    let grids = usize::try_from(whole(((to - from) / every).round())).unwrap_or(usize::MAX);
    all.missed = expected.saturating_mul(grids).saturating_sub(begun);
    all
}

/// Rounds that the agent itself says it missed.
fn told(seen: &Seen) -> usize {
    let missed = seen.rows.iter().filter_map(|row| match &row.observation.fact {
        Some(Fact::Missed(missed)) => usize::try_from(missed.count).ok(),
        Some(_) | None => None,
    });
    missed.sum()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number that is not negative")]
fn whole(number: f64) -> u64 {
    number as u64
}

#[expect(clippy::cast_precision_loss, reason = "some thousand")]
fn count(number: usize) -> f64 {
    number as f64
}

fn per_s(number: usize, ms: f64) -> f64 {
    count(number) / ms * 1000.0
}

#[cfg(test)]
mod tests {
    use parallax_proto::v1;

    use super::*;

    fn row(resolver: &str, began_ms: f64) -> Row {
        let check = v1::EndpointCheck { resolver: resolver.to_owned(), ..v1::EndpointCheck::default() };
        let observation =
            v1::Observation { duration_us: 2_000_000, fact: Some(Fact::EndpointCheck(check)), ..v1::Observation::default() };
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
        let starts = starts(&rows, from, 15_000.0, 3);
        assert_eq!(starts.errors, [1.0, 0.0, 20.0, 0.0]);
        assert_eq!((starts.missed, starts.twice), (3, 1), "one of b, and c was never heard of");
    }
}
