//! The only place of the coordinator that reads a clock.
//!
//! Judging compares times that the database stamped, so `now` must be the database's time too:
//! between two alignments the clock advances with the monotonic clock only, and a jump of this
//! machine's wall clock changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parallax_decide::time::Timestamp;
use time::OffsetDateTime;

/// A reply of the database that took longer than this, in milliseconds, is taken for a step of its clock.
const STEP_BACK_MIN_MS: i64 = 1000;

/// Tells the time. Clones tell the same time.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Source>);

#[derive(Debug)]
enum Source {
    /// Milliseconds since 1970 at `started`, corrected by each alignment.
    Running { started: Instant, at_start_ms: AtomicI64 },
    /// Moves only when told to.
    Manual { now_ms: AtomicI64 },
}

impl Clock {
    /// Starts from this machine's wall clock.
    #[must_use]
    pub fn system() -> Self {
        let at_start_ms = AtomicI64::new(wall_ms());
        Self(Arc::new(Source::Running { started: monotonic(), at_start_ms }))
    }

    /// A clock that stands still until it is moved: for tests and replay.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self(Arc::new(Source::Manual { now_ms: AtomicI64::new(now.0) }))
    }

    /// The time, in milliseconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &*self.0 {
            Source::Running { started, at_start_ms } => {
                Timestamp(at_start_ms.load(Ordering::Relaxed)).plus(started.elapsed())
            }
            Source::Manual { now_ms } => Timestamp(now_ms.load(Ordering::Relaxed)),
        }
    }

    /// Sets a running clock to the database's time. A manual clock stays where it is.
    ///
    /// What the database said is older by the way of its reply, so of several readings the latest is
    /// the truest: the clock is set back only when the database's own clock was, by more than
    /// a second.
    pub fn align(&self, database_now: Timestamp) {
        match &*self.0 {
            Source::Running { started, at_start_ms } => {
                let read = database_now.minus(started.elapsed()).0;
                let known = at_start_ms.load(Ordering::Relaxed);
                if read > known || known - read > STEP_BACK_MIN_MS {
                    at_start_ms.store(read, Ordering::Relaxed);
                }
            }
            Source::Manual { .. } => {}
        }
    }

    /// Moves a manual clock forward. A running clock moves by itself.
    pub fn advance(&self, span: Duration) {
        match &*self.0 {
            Source::Running { .. } => {}
            Source::Manual { now_ms } => now_ms.store(self.now().plus(span).0, Ordering::Relaxed),
        }
    }
}

/// The monotonic clock, for time-outs and for the time a message waited here.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this file is where the coordinator reads clocks")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The wall clock in UTC, for validity of certificates, whose readers use wall clocks as well, and to tell agents.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this file is where the coordinator reads clocks")]
pub fn wall() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// The same in milliseconds since 1970, as agents are told it.
#[must_use]
pub fn wall_ms() -> i64 {
    i64::try_from(wall().unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_clock_follows_the_database() {
        let clock = Clock::system();
        clock.align(Timestamp(5_000_000));
        let now = clock.now();
        assert!(now >= Timestamp(5_000_000) && now.since(Timestamp(5_000_000)) < Duration::from_secs(60));
    }

    #[test]
    fn a_slow_reply_does_not_set_the_clock_back_but_a_step_does() {
        let clock = Clock::system();
        clock.align(Timestamp(5_000_000));
        clock.align(Timestamp(5_000_000 - 900));
        assert!(clock.now() >= Timestamp(5_000_000));
        clock.align(Timestamp(4_000_000));
        assert!(clock.now() < Timestamp(4_900_000));
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(Timestamp(100));
        clock.align(Timestamp(7));
        assert_eq!(clock.now(), Timestamp(100));
        clock.clone().advance(Duration::from_secs(1));
        assert_eq!(clock.now(), Timestamp(1100));
    }
}
