//! How long to wait before the next try.
//!
//! Each wait is drawn evenly from zero to a limit ("full jitter"), so that a fleet does not return
//! as one. The limit doubles with each failure and goes back only after a stream that held: one
//! that breaks again and again is no success. What struck the whole fleet at once, a coordinator
//! that ended, starts from the highest limit: a small one would bring everybody back together.

use std::time::Duration;

use super::timing::Timing;

/// Limits for trouble that only a person can end (a clock, an inspecting proxy, a refused
/// certificate): trying often would change nothing and look like an attack.
const SLOW_LIMIT_MIN: Duration = Duration::from_secs(20);
const SLOW_LIMIT_MAX: Duration = Duration::from_secs(120);

/// Least wait before the next try at such trouble: full jitter alone could draw almost nothing.
const SLOW_WAIT_MIN: Duration = Duration::from_secs(5);

/// Longest wait that a coordinator may ask for: whoever asks for more would silence a vantage.
pub const ASKED_MAX: Duration = Duration::from_secs(300);

/// A stream that was acknowledged for this long starts the backing off anew.
pub const STABLE_AFTER: Duration = Duration::from_secs(60);

/// What kind of trouble ended the last try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Ours alone, as far as can be told: a path, a name.
    Usual,
    /// Everybody's: the coordinator ended or closed the stream.
    Spread,
    /// Nothing that another try mends.
    Slow,
    /// The coordinator asked to be left alone for so long.
    Asked(Duration),
}

impl Pace {
    /// The one that comes again sooner: of several coordinators the most hopeful decides.
    #[must_use]
    pub fn sooner(self, other: Self) -> Self {
        if self.rank() <= other.rank() { self } else { other }
    }

    fn rank(self) -> u8 {
        match self {
            Self::Usual => 0,
            Self::Spread => 1,
            Self::Asked(_) => 2,
            Self::Slow => 3,
        }
    }
}

/// Failures in a row.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    wait_min: Duration,
    wait_max: Duration,
}

impl Backoff {
    /// With the first and the highest limit.
    #[must_use]
    pub fn new(timing: &Timing) -> Self {
        Self { failures: 0, wait_min: timing.wait_min, wait_max: timing.wait_max }
    }

    /// Failures since the last stable stream.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Notes a failure after a stream that was acknowledged for `held` (zero: there was none), and
    /// says how long to wait. `draw` gives a random duration below its argument.
    pub fn wait(&mut self, pace: Pace, held: Duration, draw: impl FnOnce(Duration) -> Duration) -> Duration {
        if held >= STABLE_AFTER {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let doubled = |first: Duration, max: Duration| {
            first.saturating_mul(2_u32.saturating_pow(self.failures.saturating_sub(1).min(16))).min(max)
        };
        match pace {
            Pace::Usual => draw(doubled(self.wait_min, self.wait_max)),
            Pace::Spread => draw(self.wait_max),
            Pace::Slow => SLOW_WAIT_MIN + draw(doubled(SLOW_LIMIT_MIN, SLOW_LIMIT_MAX)),
            Pace::Asked(asked) => {
                // Everyone is told the same; so half as much again, at random.
                let asked = asked.min(ASKED_MAX);
                asked + draw((asked / 2).max(self.wait_max))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws evenly, the same in every run (constants of Knuth's MMIX).
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, limit: Duration) -> Duration {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
            let unit = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
            limit.mul_f64(unit)
        }
    }

    /// The most connections in one second, and the mean, when the coordinator is away for `down`.
    fn fleet(agents: u32, down: Duration, seed: u64, first: Pace) -> (u32, f64) {
        let mut dice = Dice(seed);
        let mut returns: Vec<Duration> = (0..agents)
            .map(|_| {
                let mut backoff = Backoff::new(&Timing::default());
                let mut at = backoff.wait(first, STABLE_AFTER, |limit| dice.below(limit));
                while at < down {
                    at += backoff.wait(Pace::Spread, Duration::ZERO, |limit| dice.below(limit));
                }
                at - down
            })
            .collect();
        returns.sort_unstable();
        let mut seconds = std::collections::BTreeMap::<u64, u32>::new();
        for at in &returns {
            *seconds.entry(at.as_secs()).or_default() += 1;
        }
        let window = returns.last().unwrap().as_secs_f64();
        (seconds.into_values().max().unwrap(), f64::from(agents) / window)
    }

    #[test]
    fn b62_a_fleet_returns_spread_whatever_the_time_its_coordinator_was_away() {
        for seed in 0..20 {
            for down_s in [0, 1, 3, 5, 10, 20, 60, 600] {
                let (peak, mean) = fleet(200, Duration::from_secs(down_s), seed, Pace::Spread);
                assert!(f64::from(peak) < 3.0 * mean, "down {down_s} s: peak {peak}, mean {mean:.1} a second");
            }
        }
    }

    #[test]
    fn b62_a_fleet_that_was_told_to_slow_down_comes_later_and_spread() {
        for seed in 0..20 {
            let (peak, mean) = fleet(200, Duration::ZERO, seed, Pace::Asked(Duration::from_secs(30)));
            // The wait itself is in the window; what counts is the spread after it.
            assert!(f64::from(peak) < 3.0 * mean * 45.0 / 15.0, "peak {peak}, mean {mean:.1}");
        }
        let longest = Backoff::new(&Timing::default()).wait(Pace::Asked(Duration::MAX), Duration::ZERO, |limit| limit);
        assert_eq!(longest, ASKED_MAX * 3 / 2, "no coordinator can silence a vantage");
        let least = Backoff::new(&Timing::default())
            .wait(Pace::Asked(Duration::from_secs(7)), Duration::ZERO, |_| Duration::ZERO);
        assert_eq!(least, Duration::from_secs(7), "what was asked for is waited whole");
    }

    #[test]
    fn the_limit_doubles_and_only_a_stream_that_held_brings_it_back() {
        let mut backoff = Backoff::new(&Timing::default());
        let mut limits = Vec::new();
        let short = STABLE_AFTER / 2;
        for _ in 0..7 {
            limits.push(backoff.wait(Pace::Usual, short, |limit| limit).as_millis());
        }
        assert_eq!(limits, [500, 1000, 2000, 4000, 5000, 5000, 5000]);
        assert_eq!(backoff.wait(Pace::Usual, STABLE_AFTER, |limit| limit), Timing::default().wait_min);
        assert_eq!(backoff.failures(), 1);
    }

    #[test]
    fn trouble_that_a_person_must_end_is_tried_slowly_and_for_ever() {
        let mut backoff = Backoff::new(&Timing::default());
        for _ in 0..100 {
            assert!(backoff.wait(Pace::Slow, Duration::ZERO, |_| Duration::ZERO) >= SLOW_WAIT_MIN);
        }
        assert_eq!(backoff.wait(Pace::Slow, Duration::ZERO, |limit| limit), SLOW_WAIT_MIN + SLOW_LIMIT_MAX);
    }
}
