//! Which incident of a course is which stored one, and how often the same thing came back.

use std::collections::BTreeSet;
use std::time::Duration;

use parallax_decide::incident::IncidentId;
use parallax_decide::time::Timestamp;

use super::course::{Incident, WouldBe};
use super::remedies::Kept;
use crate::store::read::replay::Really;

/// A change that was made by hand of the same plan is looked for this long after it would have been decided.
const MADE_WITHIN: Duration = Duration::from_secs(60);

/// The stored one of each incident: of the same key and open at the same time, the nearest opening first; each stored one
/// once.
#[must_use]
pub fn matched<'a>(incidents: &[&Incident], really: &'a [Really], to: Timestamp) -> Vec<Option<&'a Really>> {
    let mut taken: BTreeSet<IncidentId> = BTreeSet::new();
    let mut matches = Vec::with_capacity(incidents.len());
    for one in incidents {
        let overlaps = |stored: &&Really| {
            stored.opened_at <= one.closed_at.unwrap_or(to) && stored.closed_at.unwrap_or(to) >= one.opened_at
        };
        let found = really
            .iter()
            .filter(|stored| stored.key == one.key && !taken.contains(&stored.id))
            .filter(overlaps)
            .min_by_key(|stored| stored.opened_at.0.abs_diff(one.opened_at.0));
        taken.extend(found.map(|stored| stored.id));
        matches.push(found);
    }
    matches
}

/// The stored plan of each would-be change.
#[must_use]
pub fn planned<'a>(changes: &[&WouldBe], plans: &'a [Kept]) -> Vec<Option<&'a Kept>> {
    let mut taken = BTreeSet::new();
    let mut matches = Vec::with_capacity(changes.len());
    for one in changes {
        let same = |kept: &&Kept| {
            kept.record.plan.change == one.change
                && kept.record.plan.vantage == one.vantage
                && kept.record.created_at.0.abs_diff(one.at.0) <= u64::try_from(MADE_WITHIN.as_millis()).unwrap_or(0)
        };
        let found = plans.iter().filter(|kept| !taken.contains(&kept.record.id)).find(same);
        taken.extend(found.map(|kept| kept.record.id));
        matches.push(found);
    }
    matches
}

/// How many of these came back within a window after the last one of the same key had closed.
#[must_use]
pub fn flaps<'a>(lives: impl Iterator<Item = (&'a str, Timestamp, Option<Timestamp>)>, window: Duration) -> usize {
    let mut lives: Vec<_> = lives.collect();
    lives.sort();
    let again = |pair: &[(&str, Timestamp, Option<Timestamp>)]| match pair {
        [(key, _, Some(closed)), (next, opened, _)] => key == next && opened.since(*closed) <= window,
        _ => false,
    };
    lives.windows(2).filter(|pair| again(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_within_the_window_has_flapped() {
        let life = |key, opened: i64, closed: i64| (key, Timestamp(opened * 1000), Some(Timestamp(closed * 1000)));
        let lives = [life("a", 0, 10), life("a", 30, 40), life("a", 500, 600), life("b", 35, 40)];
        assert_eq!(flaps(lives.into_iter(), Duration::from_secs(60)), 1);
        assert_eq!(flaps(lives.into_iter(), Duration::from_secs(600)), 2);
        assert_eq!(flaps([].into_iter(), Duration::from_secs(600)), 0);
    }
}
