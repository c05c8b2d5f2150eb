//! The rows of one lane that are not acknowledged yet: a simulated agent's spool, in memory.

use std::collections::VecDeque;
use std::time::Instant;

use parallax_proto::v1::{self, Lane};

use super::facts;

/// One lane.
#[derive(Debug)]
pub struct Queue {
    lane: Lane,
    /// Batches on their way at once, as the agent's `uplink` has it.
    flying_max: usize,
    /// Everything up to here is acknowledged.
    acked: u64,
    /// Everything up to here was sent on this stream.
    sent: u64,
    /// When the probe of each row behind `acked` ended.
    ended: VecDeque<Instant>,
    /// Last number of each batch that is on its way.
    flying: VecDeque<u64>,
}

impl Queue {
    /// An empty one.
    #[must_use]
    pub fn new(lane: Lane) -> Self {
        let flying_max = match lane {
            Lane::Urgent => 4,
            Lane::Routine | Lane::Unspecified => 2,
        };
        Self { lane, flying_max, acked: 0, sent: 0, ended: VecDeque::new(), flying: VecDeque::new() }
    }

    /// Numbers a row whose probe ended then.
    pub fn add(&mut self, ended: Instant) {
        self.ended.push_back(ended);
    }

    /// Number of the last row.
    #[must_use]
    pub fn last(&self) -> u64 {
        self.acked + u64::try_from(self.ended.len()).unwrap_or_default()
    }

    /// Rows that are not acknowledged.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.last() - self.acked
    }

    /// Whether another batch may be on its way.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.flying.len() < self.flying_max
    }

    /// The next batch to send; none when all was sent or enough is on its way.
    pub fn batch(&mut self, boot_id: &str, rows_max: usize, now: Instant) -> Option<v1::Batch> {
        if !self.has_room() || self.sent == self.last() {
            return None;
        }
        let first = self.sent + 1;
        let skipped = usize::try_from(self.sent - self.acked).unwrap_or(usize::MAX);
        let rows = self.ended.iter().skip(skipped).take(rows_max).zip(first..);
        let observations: Vec<v1::Observation> = rows
            .map(|(ended, sequence)| {
                let age = now.saturating_duration_since(*ended);
                facts::observation(self.lane, sequence, u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
            })
            .collect();
        self.sent = observations.last()?.sequence;
        self.flying.push_back(self.sent);
        Some(v1::Batch { boot_id: boot_id.to_owned(), observations, lane: self.lane.into(), ..v1::Batch::default() })
    }

    /// Everything up to `sequence` is stored: when their probes ended, oldest first.
    pub fn acknowledge(&mut self, sequence: u64) -> impl Iterator<Item = Instant> {
        self.flying.retain(|last| *last > sequence);
        let sequence = sequence.min(self.last());
        let count = usize::try_from(sequence.saturating_sub(self.acked)).unwrap_or_default();
        self.acked += u64::try_from(count).unwrap_or_default();
        self.sent = self.sent.max(self.acked);
        self.ended.drain(..count)
    }

    /// The stream is gone: whatever was not acknowledged is sent again.
    pub fn rewind(&mut self) {
        self.sent = self.acked;
        self.flying.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn what_was_not_acknowledged_is_sent_again_with_the_same_numbers() {
        let now = clock::now();
        let mut queue = Queue::new(Lane::Routine);
        (0..5).for_each(|_| queue.add(now));
        let sequences = |batch: v1::Batch| batch.observations.iter().map(|row| row.sequence).collect::<Vec<_>>();
        assert_eq!(sequences(queue.batch("b", 2, now).unwrap()), [1, 2]);
        assert_eq!(sequences(queue.batch("b", 2, now).unwrap()), [3, 4]);
        assert!(!queue.has_room() && queue.batch("b", 2, now).is_none());
        assert_eq!(queue.acknowledge(2).count(), 2);
        assert_eq!((queue.waiting(), queue.last()), (3, 5));
        queue.rewind();
        assert_eq!(sequences(queue.batch("b", 500, now).unwrap()), [3, 4, 5]);
        assert_eq!(queue.acknowledge(99).count(), 3);
        assert_eq!(queue.acknowledge(5).count(), 0);
        assert!(queue.batch("b", 500, now).is_none());
    }
}
