//! One lane of one boot: its segments on disk, what of them was sent, and what is done with.

use parallax_decide::observation::Lane;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;

use super::row::Row;
use super::segment::{self, Frames, HEAD_BYTES, Segment};

/// One lane of one boot.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) lane: Lane,
    pub(super) segments: VecDeque<Segment>,
    /// Everything up to here is done with: stored by the coordinator, refused, or recorded as lost.
    pub(super) acked: u64,
    /// Everything up to here was handed out for sending.
    pub(super) sent: u64,
    /// Beyond `acked`: ranges nobody will acknowledge, because they were refused or could not be read.
    skipped: BTreeMap<u64, u64>,
    place: Option<Place>,
}

/// Where reading goes on.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The segment, by its first number.
    segment: u64,
    offset: u64,
    /// The number that comes next if nothing is damaged.
    expected: u64,
    /// When the row before ended.
    before_ms: Option<u64>,
}

/// Rows that should be there and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hole {
    pub(super) count: u64,
    pub(super) sequences: (u64, u64),
    /// When the rows before and behind it ended, where known.
    pub(super) between_ms: (Option<u64>, Option<u64>),
}

impl Log {
    pub(super) fn new(lane: Lane) -> Self {
        let (segments, skipped) = (VecDeque::new(), BTreeMap::new());
        Self { lane, segments, acked: 0, sent: 0, skipped, place: None }
    }

    /// Reads on. What cannot be read is passed over, and told once.
    ///
    /// # Errors
    /// When the system is short of something just now and nothing was read: worth trying again.
    pub(super) fn read(
        &mut self,
        folder: &Path,
        rows_max: usize,
        bytes_max: usize,
        holes: &mut Vec<Hole>,
    ) -> io::Result<Vec<Row>> {
        let (mut rows, mut bytes): (Vec<Row>, usize) = (Vec::new(), 0);
        while rows.len() < rows_max && bytes < bytes_max {
            let index = self.segments.partition_point(|segment| segment.last <= self.sent);
            let Some(segment) = self.segments.get(index).copied() else { break };
            let place = match self.place {
                Some(place) if place.segment == segment.first => place,
                known => {
                    let before_ms = known.and_then(|place| place.before_ms);
                    if segment.previous > self.sent {
                        self.hole((self.sent.saturating_add(1), segment.previous), (before_ms, None), holes);
                    }
                    Place { segment: segment.first, offset: HEAD_BYTES, expected: segment.first, before_ms }
                }
            };
            let frames = match segment::bytes_from(
                &segment::path(folder, self.lane, segment.first),
                place.offset,
                segment.bytes,
            ) {
                Ok(frames) => frames,
                Err(error) if is_passing(&error) && rows.is_empty() => return Err(error),
                // What was taken so far counts as sent, so it must go; the error comes again.
                Err(error) if is_passing(&error) => break,
                Err(error) => {
                    tracing::warn!(folder = %folder.display(), lane = %self.lane, first = segment.first, %error, "a segment of the spool cannot be read");
                    Vec::new()
                }
            };
            if !self.take_rows(segment, place, &frames, (rows_max, bytes_max), (&mut rows, &mut bytes), holes) {
                break;
            }
        }
        self.settle();
        Ok(rows)
    }

    /// Takes rows from the bytes of a segment; whether there is room for more.
    fn take_rows(
        &mut self,
        segment: Segment,
        mut place: Place,
        frames: &[u8],
        (rows_max, bytes_max): (usize, usize),
        (rows, bytes): (&mut Vec<Row>, &mut usize),
        holes: &mut Vec<Hole>,
    ) -> bool {
        let begin = place.offset;
        for (row, end) in Frames::new(frames) {
            if rows.len() >= rows_max || *bytes >= bytes_max {
                self.place = Some(place);
                return false;
            }
            place.offset = begin.saturating_add(end as u64);
            // A whole frame with a number that does not belong here is damage too.
            if row.sequence < place.expected || row.sequence > segment.last {
                continue;
            }
            if row.sequence > place.expected {
                let missing = (place.expected, row.sequence.saturating_sub(1));
                self.hole(missing, (place.before_ms, Some(row.ended_ms)), holes);
            }
            place.expected = row.sequence.saturating_add(1);
            place.before_ms = Some(row.ended_ms);
            if row.sequence > self.sent {
                self.sent = row.sequence;
                *bytes += row.bytes();
                rows.push(row);
            }
        }
        if place.expected <= segment.last {
            self.hole((place.expected, segment.last), (place.before_ms, None), holes);
        }
        // What is appended from now on begins behind everything that is there.
        let expected = segment.last.saturating_add(1);
        self.place = Some(Place { offset: segment.bytes, expected, ..place });
        self.sent = self.sent.max(segment.last);
        true
    }

    /// Numbers that cannot be read: nobody will acknowledge them.
    fn hole(&mut self, (first, last): (u64, u64), between_ms: (Option<u64>, Option<u64>), holes: &mut Vec<Hole>) {
        let first = first.max(self.acked.saturating_add(1));
        let count = self.skip(first, last);
        if count > 0 {
            holes.push(Hole { count, sequences: (first, last), between_ms });
        }
    }

    /// Puts a range among those nobody will acknowledge; how many of its numbers were not there yet.
    pub(super) fn skip(&mut self, mut first: u64, mut last: u64) -> u64 {
        if first > last {
            return 0;
        }
        let mut fresh = (last - first).saturating_add(1);
        // Ranges that overlap or touch become one.
        let touching: Vec<(u64, u64)> = self
            .skipped
            .range(..=last.saturating_add(1))
            .rev()
            .map(|(&from, &to)| (from, to))
            .take_while(|(_, to)| to.saturating_add(1) >= first)
            .collect();
        for (from, to) in touching {
            let (low, high) = (from.max(first), to.min(last));
            if low <= high {
                fresh = fresh.saturating_sub((high - low).saturating_add(1));
            }
            self.skipped.remove(&from);
            first = first.min(from);
            last = last.max(to);
        }
        self.skipped.insert(first, last);
        fresh
    }

    /// The coordinator has everything up to here, as far as it was sent.
    pub(super) fn acknowledge(&mut self, sequence: u64) {
        self.acked = self.acked.max(sequence.min(self.sent));
        self.settle();
    }

    /// The coordinator will never take this row. Only what was sent can be refused, which also
    /// bounds what is remembered.
    pub(super) fn refuse(&mut self, sequence: u64) {
        if sequence > self.acked && sequence <= self.sent {
            self.skip(sequence, sequence);
            self.settle();
        }
    }

    /// Moves on over what nobody will acknowledge.
    fn settle(&mut self) {
        while let Some(range) = self.skipped.first_entry()
            && *range.key() <= self.acked.saturating_add(1)
        {
            self.acked = self.acked.max(range.remove());
        }
        self.sent = self.sent.max(self.acked);
    }

    /// Everything not acknowledged is to be sent again.
    pub(super) fn rewind(&mut self) {
        self.sent = self.acked;
        self.place = None;
    }

    /// Takes the oldest segment out, and all there is to know of it. Nothing in it will be sent.
    pub(super) fn drop_front(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        if segment.last > self.acked {
            self.acked = segment.last;
            self.settle();
        }
        // Behind the damage of another segment there may be a place in this one.
        self.place = self.place.filter(|place| place.segment != segment.first);
        Some(segment)
    }

    /// Whether this number is among those nobody will acknowledge, or is done with.
    pub(super) fn is_done(&self, sequence: u64) -> bool {
        sequence <= self.acked || self.skipped.range(..=sequence).next_back().is_some_and(|(_, &last)| last >= sequence)
    }

    /// How many numbers of a range are neither done with nor among those nobody will acknowledge.
    pub(super) fn not_done(&self, first: u64, last: u64) -> u64 {
        let first = first.max(self.acked.saturating_add(1));
        if first > last {
            return 0;
        }
        let skipped = self.skipped.range(..=last).rev().take_while(|(_, to)| **to >= first);
        let skipped: u64 = skipped.map(|(&from, &to)| (to.min(last) - from.max(first)).saturating_add(1)).sum();
        (last - first).saturating_add(1).saturating_sub(skipped)
    }

    /// Last number that was ever on disk here.
    pub(super) fn last(&self) -> u64 {
        self.segments.back().map_or(self.acked, |segment| segment.last)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Whether the system is only short of something: file handles (EMFILE, ENFILE) or memory (ENOMEM).
pub(super) fn is_passing(error: &io::Error) -> bool {
    use nix::libc::{EINTR, EMFILE, ENFILE, ENOMEM};
    matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM | EINTR))
}
