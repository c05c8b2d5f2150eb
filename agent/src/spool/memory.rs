//! Rows the disk does not take, kept in memory until it does.

use std::collections::VecDeque;

use parallax_decide::observation::Lane;

use super::lanes::Lanes;
use super::row::Row;

/// Most bytes kept so: minutes of usual probing, and little beside the agent itself.
pub const MEMORY_BYTES_MAX: usize = 256 << 10;

/// What a row costs besides its own bytes.
const ROW_COST: usize = 64;

/// Rows of the running boot that are not on disk; everything on disk is older.
#[derive(Debug, Default)]
pub(super) struct Memory {
    rows: Lanes<VecDeque<Row>>,
    bytes: usize,
}

impl Memory {
    pub(super) fn push(&mut self, lane: Lane, row: Row) {
        self.bytes += row.bytes() + ROW_COST;
        self.rows.of_mut(lane).push_back(row);
    }

    /// Puts back what was taken with [`Self::take`].
    pub(super) fn put_back(&mut self, lane: Lane, row: Row) {
        self.bytes += row.bytes() + ROW_COST;
        self.rows.of_mut(lane).push_front(row);
    }

    /// Takes the oldest row of a lane.
    pub(super) fn take(&mut self, lane: Lane) -> Option<Row> {
        let row = self.rows.of_mut(lane).pop_front()?;
        self.bytes = self.bytes.saturating_sub(row.bytes() + ROW_COST);
        Some(row)
    }

    /// Whether there is more than may be kept.
    pub(super) fn is_over(&self) -> bool {
        self.bytes > MEMORY_BYTES_MAX
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.urgent.is_empty() && self.rows.routine.is_empty()
    }

    pub(super) fn has(&self, lane: Lane) -> bool {
        !self.rows.of(lane).is_empty()
    }

    /// Whether nothing good could make room for evidence any more.
    pub(super) fn is_all_urgent(&self) -> bool {
        self.rows.routine.is_empty() && self.bytes > MEMORY_BYTES_MAX / 2
    }

    pub(super) fn rows(&self, lane: Lane) -> impl Iterator<Item = &Row> {
        self.rows.of(lane).iter()
    }

    /// Number of its newest row.
    pub(super) fn last(&self, lane: Lane) -> Option<u64> {
        self.rows.of(lane).back().map(|row| row.sequence)
    }

    /// Everything up to here is done with.
    pub(super) fn forget(&mut self, lane: Lane, sequence: u64) {
        while self.rows.of(lane).front().is_some_and(|row| row.sequence <= sequence) {
            self.take(lane);
        }
    }
}
