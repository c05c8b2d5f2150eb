//! What was sent and is not acknowledged yet, lane by lane, and how much may be.
//!
//! Each lane has its own room, so that urgent observations never wait for routine ones. Batches are
//! small against a slow line: 64 KiB are two seconds of 256 kbit/s, and what is urgent, or the
//! heartbeat, waits at most behind those that are on the line already.

use std::collections::VecDeque;
use std::time::Duration;

use parallax_decide::observation::Lane;
use parallax_proto::BATCH_OBSERVATIONS_MAX;

use crate::clock::Instant;
use crate::spool::BootId;

/// Encoded observations of one batch, in bytes; far below the message limit. A single larger one
/// travels alone.
pub const BATCH_BYTES_MAX: usize = 64 << 10;

/// Batches of a lane on their way at once.
const URGENT_MAX: usize = 4;
const ROUTINE_MAX: usize = 2;

/// Between two batches of a routine backlog: a fleet that comes back must not fall on its
/// coordinator. Some hundreds of observations a second; a day's are back within minutes.
const ROUTINE_GAP: Duration = Duration::from_millis(500);

/// Acknowledged batches after which a cut batch may grow again.
const GROW_AFTER: u32 = 8;

/// A single observation is set aside when it was refused for its size so often.
const STRIKES_MAX: u32 = 3;

/// A batch that was sent and not yet acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flying {
    /// Who numbered it.
    pub boot: BootId,
    /// Its lane.
    pub lane: Lane,
    /// First number.
    pub first: u64,
    /// Last number.
    pub last: u64,
    /// How many observations.
    pub rows: usize,
    /// When it was sent.
    pub sent_at: Instant,
}

/// All batches on their way.
#[derive(Debug, Default)]
pub struct Flight {
    flying: VecDeque<Flying>,
    /// No routine batch before this.
    routine_at: Option<Instant>,
}

impl Flight {
    /// Whether a batch of this lane may be sent now.
    #[must_use]
    pub fn has_room(&self, lane: Lane, now: Instant, cut: &Cut) -> bool {
        if cut.is_small() {
            // One at a time, so that a refusal for size tells which one is meant.
            return self.flying.is_empty();
        }
        let count = self.flying.iter().filter(|batch| batch.lane == lane).count();
        match lane {
            Lane::Urgent => count < URGENT_MAX,
            Lane::Routine => count < ROUTINE_MAX && self.routine_at.is_none_or(|at| now >= at),
        }
    }

    /// A batch was sent. `more`: others of its lane wait.
    pub fn sent(&mut self, batch: Flying, more: bool) {
        match batch.lane {
            Lane::Routine if more => self.routine_at = Some(batch.sent_at + ROUTINE_GAP),
            Lane::Routine | Lane::Urgent => {}
        }
        self.flying.push_back(batch);
    }

    /// When the pause between two routine batches ends.
    #[must_use]
    pub fn routine_at(&self) -> Option<Instant> {
        self.routine_at
    }

    /// Everything up to `sequence` of that lane of that boot is done with.
    pub fn done(&mut self, boot: BootId, lane: Lane, sequence: u64) {
        self.flying.retain(|batch| batch.boot != boot || batch.lane != lane || batch.last > sequence);
    }

    /// The oldest one of that lane of that boot.
    #[must_use]
    pub fn oldest_of(&self, boot: BootId, lane: Lane) -> Option<&Flying> {
        self.flying.iter().find(|batch| batch.boot == boot && batch.lane == lane)
    }

    /// The oldest one.
    #[must_use]
    pub fn oldest(&self) -> Option<&Flying> {
        self.flying.front()
    }

    /// Whether nothing is on its way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flying.is_empty()
    }

    /// Observations of the largest batch.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.flying.iter().map(|batch| batch.rows).max().unwrap_or_default()
    }
}

/// How much goes into one batch: less after a refusal for size, which outlives the stream.
#[derive(Debug)]
pub struct Cut {
    rows: usize,
    acked: u32,
    /// A row that was refused by itself, and how often. Acknowledgements of others acquit it of nothing.
    suspect: Option<(BootId, Lane, u64, u32)>,
}

impl Default for Cut {
    fn default() -> Self {
        Self { rows: BATCH_OBSERVATIONS_MAX, acked: 0, suspect: None }
    }
}

impl Cut {
    /// Most observations of a batch.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    fn is_small(&self) -> bool {
        self.rows < BATCH_OBSERVATIONS_MAX
    }

    /// A batch was acknowledged.
    pub fn acked(&mut self) {
        self.acked = self.acked.saturating_add(1);
        if self.acked >= GROW_AFTER && self.is_small() {
            self.acked = 0;
            self.rows = self.rows.saturating_mul(2).min(BATCH_OBSERVATIONS_MAX);
        }
    }

    /// What was on its way was too large: nothing is sent unchanged. Gives the single observation
    /// that is to be set aside, when it came to that.
    pub fn refused(&mut self, flight: &Flight) -> Option<Flying> {
        self.acked = 0;
        let oldest = flight.oldest()?;
        if self.rows > 1 {
            self.rows = (self.rows.min(flight.largest()) / 2).max(1);
            return None;
        }
        let strikes = match self.suspect {
            Some((boot, lane, row, strikes)) if (boot, lane, row) == (oldest.boot, oldest.lane, oldest.first) => {
                strikes + 1
            }
            Some(_) | None => 1,
        };
        self.suspect = (strikes < STRIKES_MAX).then_some((oldest.boot, oldest.lane, oldest.first, strikes));
        (strikes >= STRIKES_MAX).then(|| oldest.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    fn batch(lane: Lane, first: u64, rows: usize) -> Flying {
        let last = first + rows as u64 - 1;
        Flying { boot: "0".repeat(32).parse().unwrap(), lane, first, last, rows, sent_at: now() }
    }

    #[test]
    fn urgent_has_its_own_room_and_a_routine_backlog_is_drained_at_a_pace() {
        let (mut flight, cut, start) = (Flight::default(), Cut::default(), now());
        flight.sent(batch(Lane::Routine, 1, 500), true);
        assert!(!flight.has_room(Lane::Routine, start, &cut), "the pause");
        assert!(flight.has_room(Lane::Routine, flight.routine_at().unwrap(), &cut));
        flight.sent(batch(Lane::Routine, 501, 500), true);
        let later = start + Duration::from_secs(60);
        assert!(!flight.has_room(Lane::Routine, later, &cut), "no room");
        for first in 1..=4 {
            assert!(flight.has_room(Lane::Urgent, start, &cut));
            flight.sent(batch(Lane::Urgent, first, 1), true);
        }
        assert!(!flight.has_room(Lane::Urgent, later, &cut));
        let boot = flight.oldest().unwrap().boot;
        flight.done(boot, Lane::Urgent, 3);
        assert_eq!(flight.oldest_of(boot, Lane::Urgent).map(|batch| batch.first), Some(4));
        assert!(flight.has_room(Lane::Urgent, later, &cut) && !flight.has_room(Lane::Routine, later, &cut));
    }

    #[test]
    fn b77_a_refusal_for_size_halves_until_one_is_left_and_then_sets_it_aside() {
        let mut cut = Cut::default();
        let flight = |rows| {
            let mut flight = Flight::default();
            flight.sent(batch(Lane::Urgent, 7, rows), false);
            flight
        };
        assert_eq!(cut.refused(&Flight::default()), None);
        let mut sizes = Vec::new();
        while cut.rows() > 1 {
            assert_eq!(cut.refused(&flight(cut.rows())), None);
            sizes.push(cut.rows());
        }
        assert_eq!(sizes, [250, 125, 62, 31, 15, 7, 3, 1]);
        assert!(!flight(1).has_room(Lane::Routine, now(), &cut), "one at a time");
        // Others are acknowledged in between, as at the beginning of every stream: that acquits it of nothing.
        assert_eq!(cut.refused(&flight(1)), None);
        cut.acked();
        assert_eq!(cut.refused(&flight(1)), None);
        cut.acked();
        assert_eq!(cut.refused(&flight(1)).map(|one| (one.first, one.last)), Some((7, 7)));
        for _ in 0..9 * GROW_AFTER {
            cut.acked();
        }
        assert_eq!(cut.rows(), BATCH_OBSERVATIONS_MAX);
    }
}
