//! What is dropped, and the records of it.

use std::io;
use std::path::Path;

use parallax_decide::observation::{Lane, LossReason};

use super::boot::{Boot, BootId};
use super::log::{self, Hole};
use super::loss::Loss;
use super::row::{Content, Row};
use super::{Spool, disk, segment};

impl Spool {
    /// Drops until `size` more bytes fit.
    pub(super) fn make_room(&mut self, size: u64) {
        if self.bytes() + size <= self.limits.bytes_max {
            return;
        }
        self.delete_done();
        while self.bytes() + size > self.limits.bytes_max {
            if !self.lose_oldest(LossReason::Full) {
                return;
            }
        }
    }

    /// Drops what is older than is kept.
    pub(super) fn drop_old(&mut self) {
        let age_max = i64::try_from(self.limits.age_max.as_millis()).unwrap_or(i64::MAX);
        let limit = i64::try_from(self.now_ms).unwrap_or(i64::MAX).saturating_sub(age_max);
        for index in (0..=self.earlier.len()).rev() {
            for lane in Lane::ALL {
                while self.newest_of_front(index, lane).is_some_and(|newest| newest < limit)
                    && self.lose_front(index, lane, LossReason::Old)
                {}
            }
        }
        self.forget_empty();
    }

    /// When the newest row of a lane's oldest segment ended, on our clock.
    pub(super) fn newest_of_front(&mut self, index: usize, lane: Lane) -> Option<i64> {
        let boot = self.earlier.get_mut(index).unwrap_or(&mut self.running);
        let segment = boot.logs.of_mut(lane).segments.front_mut()?;
        let newest = match segment.newest_ms {
            Some(newest) => newest,
            None => {
                let read = segment::load(&segment::path(&boot.folder, lane, segment.first));
                // Nothing readable in it: it is found when it is read, and dropped with what is behind it.
                let newest = read.ok().and_then(|contents| contents.rows.iter().map(|row| row.ended_ms).max());
                let newest = newest.unwrap_or(u64::MAX);
                segment.newest_ms = Some(newest);
                newest
            }
        };
        (newest != u64::MAX).then(|| boot.on_our_clock(newest))
    }

    /// Drops the oldest segment: of a routine lane, else of an urgent one. Whether there was one.
    pub(super) fn lose_oldest(&mut self, reason: LossReason) -> bool {
        self.lose_oldest_of(Lane::Routine, reason) || self.lose_oldest_of(Lane::Urgent, reason)
    }

    pub(super) fn lose_oldest_of(&mut self, lane: Lane, reason: LossReason) -> bool {
        let has = |index: &usize| !self.boot(*index).logs.of(lane).segments.is_empty();
        let Some(index) = (0..=self.earlier.len()).find(has) else { return false };
        let dropped = self.lose_front(index, lane, reason);
        self.forget_empty();
        dropped
    }

    /// Drops the oldest segment of a lane that is not being written; little comes free with that one.
    pub(super) fn lose_closed(&mut self, lane: Lane) -> bool {
        let open = usize::from(self.writers.of(lane).is_some());
        let closed = self.earlier.iter().any(|boot| !boot.logs.of(lane).segments.is_empty())
            || self.running.logs.of(lane).segments.len() > open;
        closed && self.lose_oldest_of(lane, LossReason::Full)
    }

    pub(super) fn lose_oldest_boot(&mut self) {
        for lane in Lane::ALL {
            while self.earlier.first().is_some_and(|boot| !boot.logs.of(lane).segments.is_empty())
                && self.lose_front(0, lane, LossReason::Full)
            {}
        }
        self.forget_empty();
    }

    /// Drops the oldest segment of a lane of a boot, and counts what was not done with. Not when the
    /// system is too short of something to look into it: whether it was dropped.
    pub(super) fn lose_front(&mut self, index: usize, lane: Lane, reason: LossReason) -> bool {
        let boot = self.earlier.get(index).unwrap_or(&self.running);
        let log = boot.logs.of(lane);
        let Some(segment) = log.segments.front().copied() else { return false };
        let path = segment::path(&boot.folder, lane, segment.first);
        if segment.last > log.acked {
            let rows = match segment::load(&path) {
                Ok(contents) => contents.rows,
                Err(error) if log::is_passing(&error) => return false,
                Err(_) => Vec::new(),
            };
            let first = log.acked.saturating_add(1).min(segment.first);
            let mut lost = Loss {
                reason,
                boot: boot.id,
                lane,
                count: 0,
                good: 0,
                sequences: (segment.first.max(log.acked.saturating_add(1)), segment.last),
                ended_ms: (i64::MAX, i64::MIN),
            };
            let mut records = Vec::new();
            let here = lost.sequences.0..=segment.last;
            for row in rows.iter().filter(|row| here.contains(&row.sequence) && !log.is_done(row.sequence)) {
                match row.content {
                    Content::Loss(loss) => records.push(loss),
                    Content::Observation(_) => {
                        let ended = boot.on_our_clock(row.ended_ms);
                        lost.count += 1;
                        lost.good += u64::from(row.good);
                        lost.ended_ms = (lost.ended_ms.0.min(ended), lost.ended_ms.1.max(ended));
                    }
                }
            }
            if lost.count == 0 {
                lost.ended_ms = (0, i64::try_from(self.now_ms).unwrap_or(i64::MAX));
            }
            // In it, and in files before it that are missing.
            let read = lost.count + records.len() as u64;
            let unread = log.not_done(lost.sequences.0, segment.last).saturating_sub(read)
                + log.not_done(first, segment.previous);
            let damaged = Loss {
                reason: LossReason::Damaged,
                count: unread,
                good: 0,
                sequences: (first, segment.last),
                ended_ms: (0, lost.ended_ms.1),
                ..lost
            };
            self.losses.add(lost, self.now_ms);
            self.losses.add(damaged, self.now_ms);
            for record in records {
                self.losses.carry(record, self.now_ms);
            }
            // Before anything else is done: a crash must not make it a silent loss.
            self.losses.due = true;
        }
        let log = self.earlier.get_mut(index).unwrap_or(&mut self.running).logs.of_mut(lane);
        log.drop_front();
        if self.running.logs.of(lane).segments.is_empty() {
            *self.writers.of_mut(lane) = None;
        }
        disk::remove_file(&path);
        true
    }

    /// Writes down what was lost, and then how far the lanes are done with.
    pub(super) fn write_losses(&mut self) {
        self.losses.due = false;
        let losses = self.losses.take();
        for loss in &losses {
            // A spool that stays full must not fill the log as well.
            if self.losses.is_news(self.now_ms) {
                tracing::warn!(
                    reason = loss.reason.word(), boot = %loss.boot, lane = %loss.lane, count = loss.count, in_all = self.losses.total,
                    "observations were lost before the coordinator had them; it is told"
                );
            }
            self.number(Lane::Urgent, self.now_ms, false, Content::Loss(*loss));
        }
        for loss in losses {
            let boot = self.earlier.iter_mut().chain([&mut self.running]).find(|boot| boot.id == loss.boot);
            if let Some(cursor) = boot.and_then(|boot| boot.cursor())
                && !self.owes_word(loss.boot)
            {
                // Not yet durable; what was dropped and is not covered is found by its numbers.
                let _ = cursor.write(false);
            }
        }
    }

    /// Whether a loss of that boot is not on disk yet: then no cursor may say that it is done with.
    pub(super) fn owes_word(&self, boot: BootId) -> bool {
        let of = |row: &Row| matches!(&row.content, Content::Loss(loss) if loss.boot == boot);
        self.losses.concern(boot) || self.memory.rows(Lane::Urgent).any(of)
    }

    pub(super) fn unreadable(&mut self, index: usize, lane: Lane, holes: &[Hole]) {
        for hole in holes {
            let boot = self.boot(index);
            // What is not known is taken so that the range holds them all.
            let first = hole.between_ms.0.map_or(0, |ended| boot.on_our_clock(ended));
            let now = i64::try_from(self.now_ms).unwrap_or(i64::MAX);
            let last = hole.between_ms.1.map_or(now, |ended| boot.on_our_clock(ended));
            tracing::warn!(boot = %boot.id, %lane, count = hole.count, sequences = ?hole.sequences, "observations in the spool are damaged; they are recorded as lost");
            let loss = Loss {
                reason: LossReason::Damaged,
                boot: boot.id,
                lane,
                count: hole.count,
                good: 0,
                sequences: hole.sequences,
                ended_ms: (first.min(last), last),
            };
            self.losses.add(loss, self.now_ms);
        }
    }

    pub(super) fn lose_row(&mut self, lane: Lane, row: &Row) {
        if let Content::Loss(loss) = row.content {
            self.losses.carry(loss, self.now_ms);
            return;
        }
        let ended = self.running.on_our_clock(row.ended_ms);
        let loss = Loss {
            reason: LossReason::Disk,
            boot: self.running.id,
            lane,
            count: 1,
            good: u64::from(row.good),
            sequences: (row.sequence, row.sequence),
            ended_ms: (ended, ended),
        };
        self.losses.add(loss, self.now_ms);
    }

    pub(super) fn forget_empty(&mut self) {
        self.earlier.retain(|boot| {
            if boot.is_empty() {
                remove_folder(&boot.folder);
            }
            !boot.is_empty()
        });
    }

    pub(super) fn bytes(&self) -> u64 {
        let of = |boot: &Boot| boot.logs.each().iter().map(|(_, log)| log.bytes()).sum::<u64>();
        self.earlier.iter().map(of).sum::<u64>() + of(&self.running)
    }
}

pub(super) fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove an emptied part of the spool");
    }
}
