//! When: fixed grids, as a pure function of time.
//!
//! A grid's phase comes from the wall clock read once at the start, so that the vantages of a fleet
//! are spread over each interval; from then on the monotonic clock counts. A wrong wall clock costs
//! nothing but that spread. There is no catching up: after a stall the next tick is the next point
//! of the grid.

use std::time::Duration;

use crate::assignment::Schedule;
use crate::clock::{self, Instant};

/// What is started on a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Every canary: resolutions, then connections.
    Canaries,
    /// Every node.
    Nodes,
    /// Every control.
    Controls,
    /// Every resolver's endpoint.
    Endpoints,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Canaries, Self::Nodes, Self::Controls, Self::Endpoints];

    /// Its word in records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Canaries => "canaries",
            Self::Nodes => "nodes",
            Self::Controls => "controls",
            Self::Endpoints => "endpoints",
        }
    }

    /// The interval of this kind.
    #[must_use]
    pub fn every(self, schedule: &Schedule) -> Duration {
        match self {
            Self::Canaries => schedule.canary_every,
            Self::Nodes => schedule.node_every,
            Self::Controls => schedule.control_every,
            Self::Endpoints => schedule.endpoint_every,
        }
    }
}

/// Points in time at `offset + n * every`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    every: Duration,
    offset: Duration,
}

impl Grid {
    /// The grid of one kind at this vantage.
    #[must_use]
    pub fn of(kind: Kind, schedule: &Schedule) -> Self {
        let every = kind.every(schedule);
        Self { every, offset: every * schedule.offset_permille / 1000 }
    }

    /// The first point after `elapsed`, both counted from the timeline's origin.
    #[must_use]
    pub fn next_after(&self, elapsed: Duration) -> Duration {
        let every = self.every.as_millis().max(1);
        let offset = self.offset.as_millis();
        let elapsed = elapsed.as_millis();
        let next = match elapsed.checked_sub(offset) {
            None => offset,
            Some(since) => offset + (since / every + 1) * every,
        };
        Duration::from_millis(u64::try_from(next).unwrap_or(u64::MAX))
    }
}

/// Time counted from 1970 by the monotonic clock, fixed to the wall clock once.
#[derive(Debug, Clone, Copy)]
pub struct Timeline {
    start: Instant,
    start_unix: Duration,
}

impl Timeline {
    /// A timeline that begins now; `unix` is the wall clock's time since 1970.
    #[must_use]
    pub fn begin(unix: Duration) -> Self {
        Self { start: clock::now(), start_unix: unix }
    }

    /// The next point of a grid after `now`.
    #[must_use]
    pub fn next(&self, grid: Grid, now: Instant) -> Instant {
        let elapsed = self.start_unix + now.saturating_duration_since(self.start);
        now + grid.next_after(elapsed).saturating_sub(elapsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_next_point_is_always_later_and_on_the_grid() {
        let grid = Grid { every: ms(5000), offset: ms(1650) };
        for (elapsed, next) in [
            (0, 1650),
            (1649, 1650),
            (1650, 6650),
            (1651, 6650),
            (6649, 6650),
            (6650, 11_650),
            // After a stall of an hour: one point, not 720.
            (3_600_000, 3_601_650),
        ] {
            assert_eq!(grid.next_after(ms(elapsed)), ms(next), "after {elapsed}");
        }
    }

    #[test]
    fn walking_the_grid_never_bunches_up() {
        let grid = Grid { every: ms(1000), offset: ms(999) };
        let mut at = ms(123_456);
        for _ in 0..1000 {
            let next = grid.next_after(at);
            assert!(next > at && next - at <= ms(1000));
            at = next;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeline_follows_the_monotonic_clock() {
        let timeline = Timeline::begin(ms(7000));
        let grid = Grid { every: ms(5000), offset: ms(0) };
        assert_eq!(timeline.next(grid, clock::now()) - clock::now(), ms(3000));
        tokio::time::advance(ms(3000)).await;
        assert_eq!(timeline.next(grid, clock::now()) - clock::now(), ms(5000));
    }
}
