//! How far this machine's wall clock is from the coordinator's.
//!
//! Each heartbeat's answer carries the coordinator's wall clock; half the round trip is taken off
//! it. The sample of the last few with the shortest round trip counts: a late answer says little. A
//! sample is kept as the coordinator's clock against the monotonic one here, so that a step of our
//! own wall clock is seen at once and not after new samples.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::certificate::Validity;
use crate::clock;
use crate::date;

/// Samples kept.
const SAMPLES_MAX: usize = 8;

/// A sample counts for this long; then a quartz (100 ppm) has drifted by a third of a second.
const SAMPLE_AGE_MAX_MS: u64 = 3_600_000;

/// A skew above this is told to the owner.
pub const SKEW_MS_MAX: i64 = 2_000;

/// Told again only after it was below this in between.
const SKEW_OVER_MS: i64 = 1_000;

/// A date of HTTP is in whole seconds and from anybody: only a gross difference says something.
const HTTP_SKEW_S_MAX: i64 = 300;

/// No clock is right that stands before this: when this version was made, in seconds since 1970.
const BUILT_S: i64 = 1_793_491_200;

/// The offset, shared with those who report it. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct ClockOffset {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    samples: VecDeque<Sample>,
    told: bool,
    /// Clock of an HTTP answer, in seconds since 1970, and when it came.
    http: Option<(i64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    /// The coordinator's wall clock less our boot-time clock, in ms.
    base_ms: i64,
    round_trip_ms: u64,
    at_ms: u64,
}

/// The two clocks of this machine at one moment, in ms.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since boot, sleep included.
    pub boot_ms: u64,
    /// Since 1970, as this machine believes.
    pub unix_ms: u64,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { boot_ms: clock::boottime_ms(), unix_ms: clock::unix_ms() }
    }
}

impl ClockOffset {
    /// This agent's wall clock less the coordinator's, in ms; `None`: not known.
    #[must_use]
    pub fn ms(&self) -> Option<i64> {
        self.ms_at(Moment::now())
    }

    fn ms_at(&self, now: Moment) -> Option<i64> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = inner.samples.iter().filter(|one| now.boot_ms.saturating_sub(one.at_ms) <= SAMPLE_AGE_MAX_MS);
        let best = fresh.min_by_key(|one| one.round_trip_ms)?;
        Some(signed(now.unix_ms) - (best.base_ms + signed(now.boot_ms)))
    }

    /// The coordinator said `unix_ms` in answer to what was sent at `sent_ms` by the boot-time clock.
    /// Tells the owner once when the clocks are too far apart, and once when they agree again.
    pub fn heard(&self, unix_ms: u64, sent_ms: u64) {
        self.heard_at(unix_ms, sent_ms, Moment::now());
    }

    fn heard_at(&self, unix_ms: u64, sent_ms: u64, now: Moment) {
        let round_trip_ms = now.boot_ms.saturating_sub(sent_ms);
        let base_ms = signed(unix_ms) + signed(round_trip_ms / 2) - signed(now.boot_ms);
        {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // A clock that was set over there makes its older samples wrong.
            inner.samples.retain(|old| {
                (old.base_ms - base_ms).abs() <= SKEW_OVER_MS + signed(old.round_trip_ms + round_trip_ms)
            });
            if inner.samples.len() >= SAMPLES_MAX {
                inner.samples.pop_front();
            }
            inner.samples.push_back(Sample { base_ms, round_trip_ms, at_ms: now.boot_ms });
        }
        let Some(offset_ms) = self.ms_at(now) else { return };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if offset_ms.abs() > SKEW_MS_MAX && !inner.told {
            inner.told = true;
            tracing::warn!(
                reason = "clock_skew",
                offset_ms,
                round_trip_ms,
                "this machine's clock and the coordinator's are apart (positive: this one is ahead); compare both with a third and set the wrong one, for example by running a time service (chrony, systemd-timesyncd) on both"
            );
        } else if offset_ms.abs() <= SKEW_OVER_MS && inner.told {
            inner.told = false;
            tracing::info!(offset_ms, "this machine's clock and the coordinator's agree again");
        }
    }

    /// An HTTP answer carried this date, in seconds since 1970.
    pub fn heard_http(&self, unix_s: i64) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).http = Some((unix_s, clock::boottime_ms()));
    }

    /// What else is known of the time when a certificate is refused for its dates. `own` is when our
    /// own certificate holds.
    #[must_use]
    pub fn doubt(&self, own: Option<Validity>) -> Doubt {
        self.doubt_at(own, Moment::now())
    }

    fn doubt_at(&self, own: Option<Validity>, now: Moment) -> Doubt {
        let now_s = signed(now.unix_ms) / 1000;
        let mut doubt = Doubt { ours: false, fine: false, evidence: Vec::new() };
        let mut against = |evidence: String| {
            doubt.ours = true;
            doubt.evidence.push(evidence);
        };
        if now_s < BUILT_S {
            against(format!("it stands before this agent was built ({})", date::text(BUILT_S)));
        }
        if let Some(own) = own.filter(|own| now_s < own.not_before_s) {
            against(format!(
                "it stands before this agent's own certificate was issued ({})",
                date::text(own.not_before_s)
            ));
        }
        match self.ms_at(now) {
            Some(ms) if ms.abs() > SKEW_MS_MAX => against(format!("it differs from the coordinator's by {ms} ms")),
            Some(ms) => {
                doubt.fine = true;
                doubt.evidence.push(format!("it agreed with the coordinator's within {} ms", ms.abs()));
            }
            None => {}
        }
        let http = self.inner.lock().unwrap_or_else(PoisonError::into_inner).http;
        if let Some((unix_s, at_ms)) = http {
            let apart_s = now_s - (unix_s + signed(now.boot_ms.saturating_sub(at_ms)) / 1000);
            if apart_s.abs() > HTTP_SKEW_S_MAX {
                doubt.ours = true;
                doubt.evidence.push(format!("it differs from the date of an HTTP answer by {apart_s} s"));
            }
        }
        doubt
    }
}

/// What speaks for and against our own clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// Something says that our clock is wrong.
    pub ours: bool,
    /// The coordinator's clock agreed with ours a short while ago.
    pub fine: bool,
    /// In words.
    pub evidence: Vec<String>,
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_796_040_000_000;

    fn at(boot_ms: u64, unix_ms: u64) -> Moment {
        Moment { boot_ms, unix_ms }
    }

    #[test]
    fn half_the_round_trip_is_taken_off_and_the_shortest_counts() {
        let offset = ClockOffset::default();
        assert_eq!(offset.ms_at(at(0, NOON)), None);
        // Sent at 1000, back at 1100: the coordinator spoke at 1050, when it said NOON + 50.
        offset.heard_at(NOON + 50, 1000, at(1100, NOON + 100 + 30));
        assert_eq!(offset.ms_at(at(1100, NOON + 130)), Some(30));
        // A late answer that would say 400 ms changes nothing.
        offset.heard_at(NOON + 100, 1100, at(2100, NOON + 1130));
        assert_eq!(offset.ms_at(at(2100, NOON + 1130)), Some(30));
    }

    /// B65: the wall clock is set in the middle of everything.
    #[test]
    fn a_step_of_either_clock_is_seen_with_the_next_look() {
        let offset = ClockOffset::default();
        offset.heard_at(NOON, 1000, at(1000, NOON));
        assert_eq!(offset.ms_at(at(2000, NOON + 1000 - 600_000)), Some(-600_000), "ours was set back");
        offset.heard_at(NOON + 3_600_000 + 1000, 2000, at(2000, NOON + 1000));
        assert_eq!(offset.ms_at(at(2000, NOON + 1000)), Some(-3_600_000), "theirs was set forward");
        assert_eq!(offset.ms_at(at(2001 + SAMPLE_AGE_MAX_MS, NOON)), None, "what is old is not known");
    }

    #[test]
    fn b64_a_clock_of_2019_is_suspected_with_evidence() {
        let offset = ClockOffset::default();
        let own = Validity { not_before_s: BUILT_S + 100, not_after_s: BUILT_S + 2_592_000 };
        let doubt = offset.doubt_at(Some(own), at(5, 1_546_300_800_000));
        assert!(doubt.ours && !doubt.fine && doubt.evidence.len() == 2, "{doubt:?}");
        assert!(doubt.evidence.concat().contains("2026-11-01"), "{doubt:?}");
        // Two years ahead nothing here speaks against it, until somebody told the time.
        let ahead = at(5, NOON + 2 * 365 * 86_400_000);
        assert!(!offset.doubt_at(Some(own), ahead).ours);
        offset.inner.lock().unwrap().http = Some((signed(NOON) / 1000, 5));
        assert!(offset.doubt_at(Some(own), ahead).ours);
        offset.heard_at(NOON, 5, at(5, NOON));
        assert!(offset.doubt_at(Some(own), ahead).evidence.len() == 2);
        assert!(offset.doubt_at(Some(own), at(5, NOON)).fine);
    }
}
