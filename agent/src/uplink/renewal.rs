//! When the next certificate is asked for, in time scaled to the life of the one in use: an hour's
//! certificate is renewed within the hour, one of thirty days within days, and the fleet not all at once.

use std::time::Duration;

use crate::certificate::Validity;
use crate::clock::Instant;
use crate::entropy::{self, NoEntropy};
use crate::identity::key::Key;

/// Asked for at a random moment between half and two thirds of its life.
const FROM_HALF: u32 = 2;
const WINDOW_SIXTH: u32 = 6;

/// First wait after a failure: this share of the life, within these bounds; doubled each time.
const WAIT_SHARE: u32 = 240;
const WAIT_BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));

/// Longest wait after failures: this share of the life, and no more than so long.
const LONGEST_SHARE: u32 = 24;
const LONGEST_MAX: Duration = Duration::from_secs(6 * 3600);

/// An answer that has not come after this share of the life, within these bounds, will not come.
const ANSWER_SHARE: u32 = 60;
const ANSWER_BOUNDS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The next certificate.
#[derive(Debug, Default)]
pub struct Renewal {
    plan: Option<Plan>,
    /// The key a certificate was asked for, and when.
    asked: Option<(Key, Instant)>,
    failures: u32,
    again_at: Option<Instant>,
    /// Whether a refusal was told, and that the folder cannot be written.
    pub(super) told: bool,
}

/// When the certificate in use is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    of: Validity,
    life: Duration,
    /// In ms since 1970.
    due_ms: u64,
}

impl Plan {
    fn new(of: Validity, below: fn(Duration) -> Duration) -> Self {
        let life = Duration::from_secs(u64::try_from(of.not_after_s.saturating_sub(of.not_before_s)).unwrap_or(0));
        let after = life / FROM_HALF + below(life / WINDOW_SIXTH);
        let begins_ms = u64::try_from(of.not_before_s).unwrap_or(0).saturating_mul(1000);
        Self { of, life, due_ms: begins_ms.saturating_add(crate::clock::millis(after)) }
    }
}

impl Renewal {
    /// A request to send now, if it is time: for a fresh key, kept here until the answer comes.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn due(&mut self, held: Validity, unix_ms: u64, now: Instant) -> Result<Option<Vec<u8>>, NoEntropy> {
        let plan = match self.plan {
            Some(plan) if plan.of == held => plan,
            Some(_) | None => {
                let plan = Plan::new(held, entropy::below);
                *self = Self { plan: Some(plan), ..Self::default() };
                plan
            }
        };
        if unix_ms < plan.due_ms || self.again_at.is_some_and(|at| now < at) {
            return Ok(None);
        }
        if let Some((_, at)) = &self.asked {
            if now.saturating_duration_since(*at) < within(plan.life / ANSWER_SHARE, ANSWER_BOUNDS) {
                return Ok(None);
            }
            self.failed(now);
            return Ok(None);
        }
        let key = Key::generate()?;
        let request = key.request()?;
        self.asked = Some((key, now));
        Ok(Some(request))
    }

    /// An answer came: the key it is for, if one was asked for.
    pub fn answered(&mut self) -> Option<Key> {
        self.asked.take().map(|(key, _)| key)
    }

    /// It came to nothing: tried again later.
    pub fn failed(&mut self, now: Instant) {
        self.asked = None;
        let life = self.plan.map_or(Duration::ZERO, |plan| plan.life);
        let longest = (life / LONGEST_SHARE).min(LONGEST_MAX);
        let first = within(life / WAIT_SHARE, WAIT_BOUNDS);
        let wait = first.saturating_mul(1 << self.failures.min(16)).min(longest.max(first));
        self.failures = self.failures.saturating_add(1);
        self.again_at = Some(now + wait / 2 + entropy::below(wait / 2));
    }
}

fn within(wanted: Duration, (least, most): (Duration, Duration)) -> Duration {
    wanted.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn held(life_s: i64) -> Validity {
        Validity { not_before_s: 1_000_000, not_after_s: 1_000_000 + life_s }
    }

    #[test]
    fn b67_it_is_asked_for_between_half_and_two_thirds_of_any_life() {
        for life_s in [6, 3600, 30 * 86_400] {
            let earliest = Plan::new(held(life_s), |_| Duration::ZERO).due_ms - 1_000_000_000;
            let latest = Plan::new(held(life_s), |limit| limit).due_ms - 1_000_000_000;
            let life_ms = u64::try_from(life_s * 1000).unwrap();
            assert_eq!((earliest, latest), (life_ms / 2, life_ms * 2 / 3), "{life_s} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn b67_a_renewal_that_fails_is_tried_again_ever_more_seldom_and_often_enough() {
        for life_s in [3600, 30 * 86_400] {
            let mut renewal = Renewal::default();
            let (mut unix_ms, mut asked) = (1_000_000_000, Vec::new());
            while unix_ms < 1_000_000_000 + u64::try_from(life_s * 1000).unwrap() {
                if renewal.due(held(life_s), unix_ms, now()).unwrap().is_some() {
                    asked.push(unix_ms);
                    assert!(renewal.answered().is_some());
                    renewal.failed(now());
                }
                let step = Duration::from_secs(30);
                tokio::time::advance(step).await;
                unix_ms += crate::clock::millis(step);
            }
            assert!((5..100).contains(&asked.len()), "{} times in {life_s} s", asked.len());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_is_waited_for_only_so_long_and_a_new_certificate_begins_anew() {
        let mut renewal = Renewal::default();
        let late = 1_000_000_000 + 3_000_000;
        assert!(renewal.due(held(3600), late, now()).unwrap().is_some());
        assert!(renewal.due(held(3600), late, now()).unwrap().is_none(), "asked already");
        tokio::time::advance(ANSWER_BOUNDS.1).await;
        assert!(renewal.due(held(3600), late, now()).unwrap().is_none(), "given up");
        assert!(renewal.answered().is_none(), "an answer now is too late");
        tokio::time::advance(WAIT_BOUNDS.1).await;
        assert!(renewal.due(held(3600), late, now()).unwrap().is_some());
        let next = Validity { not_before_s: 1_003_000, not_after_s: 1_006_600 };
        assert!(renewal.due(next, late, now()).unwrap().is_none(), "it has just begun");
    }
}
