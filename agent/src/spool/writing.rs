//! The way of a row to the disk, or to memory when the disk does not take it.

use std::io;
use std::path::{Path, PathBuf};

use parallax_decide::observation::Lane;

use super::boot::{Boot, BootId};
use super::row::{Content, Row};
use super::segment::{HEAD_BYTES, Head, Segment};
use super::{MEMORY_BYTES_MAX, Spool, Writer, disk, health, segment};

impl Spool {
    pub(super) fn number(&mut self, lane: Lane, ended_ms: u64, good: bool, content: Content) -> u64 {
        let sequence = *self.next.of(lane);
        *self.next.of_mut(lane) = sequence.saturating_add(1);
        let row = Row { sequence, ended_ms, good, content };
        let tried = self.health.works() || self.health.is_due(self.now_ms);
        if !(tried && self.write_back()) {
            self.remember(lane, row);
        } else if let Err(error) = self.write(lane, &row) {
            self.failed(&error);
            self.remember(lane, row);
        }
        sequence
    }

    pub(super) fn failed(&mut self, error: &io::Error) {
        if self.health.failed(error, self.now_ms) {
            tracing::warn!(
                folder = %self.root.display(), %error, memory_bytes_max = MEMORY_BYTES_MAX,
                "the disk takes no observations; the newest are kept in memory and the disk is tried again, at least every minute; {}", health::remedy(error)
            );
        }
    }

    /// Keeps a row in memory. When that is full too, the oldest good one goes.
    pub(super) fn remember(&mut self, lane: Lane, row: Row) {
        self.memory.push(lane, row);
        while self.memory.is_over() {
            let lane = if self.memory.has(Lane::Routine) { Lane::Routine } else { Lane::Urgent };
            let Some(row) = self.memory.take(lane) else { return };
            self.lose_row(lane, &row);
        }
    }

    /// Tries a disk that failed. With nothing to write, only making the folder shows anything.
    pub(super) fn try_again(&mut self) {
        if self.attached || !self.memory.is_empty() {
            self.write_back();
            return;
        }
        match self.attach() {
            Ok(()) => self.worked(),
            Err(error) => self.failed(&error),
        }
    }

    fn worked(&mut self) {
        self.room_in_vain = false;
        if self.health.worked() {
            tracing::info!(folder = %self.root.display(), "the disk takes observations again");
        }
    }

    /// Gives the disk what is kept in memory; what it does not take stays there. Whether it took all.
    pub(super) fn write_back(&mut self) -> bool {
        for lane in Lane::ALL {
            while let Some(row) = self.memory.take(lane) {
                if let Err(error) = self.write(lane, &row) {
                    self.memory.put_back(lane, row);
                    self.failed(&error);
                    return false;
                }
            }
        }
        true
    }

    /// Writes a row to disk. A disk that is full gets room by the rule of the bounds: it may be full
    /// of our own rows. Where that was in vain, routine is given for evidence alone.
    pub(super) fn write(&mut self, lane: Lane, row: &Row) -> io::Result<()> {
        self.attach()?;
        let mut outcome = self.try_write(lane, row);
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // The folder was removed beneath us: it is made again.
            std::fs::create_dir_all(&self.running.folder)?;
            outcome = self.try_write(lane, row);
        }
        if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            let exchanged = match self.room_in_vain {
                false => Lane::ALL.into_iter().rev().any(|lane| self.lose_closed(lane)),
                true => self.memory.is_all_urgent() && self.lose_closed(Lane::Routine),
            };
            if exchanged {
                outcome = self.try_write(lane, row);
            }
            self.room_in_vain = outcome.is_err();
        }
        if outcome.is_ok() {
            self.worked();
        }
        outcome
    }

    pub(super) fn try_write(&mut self, lane: Lane, row: &Row) -> io::Result<()> {
        let Some(frame) = row.frame() else {
            // By the limits of the wire this cannot be; it must not stop what comes behind it.
            tracing::error!(bytes = row.bytes(), "an observation is larger than the spool stores; it is lost");
            self.lose_row(lane, row);
            return Ok(());
        };
        let size = frame.len() as u64;
        // It may have to begin a segment.
        self.make_room(size + HEAD_BYTES);
        let segment_max = segment::SEGMENT_BYTES_MAX.min(self.limits.bytes_max / 8);
        let span_ms = u64::try_from(self.limits.age_max.as_millis()).unwrap_or(u64::MAX) / 24;
        let log = self.running.logs.of_mut(lane);
        let writer = self.writers.of_mut(lane);
        let fits = log.segments.back().is_some_and(|segment| {
            let follows = segment.last.saturating_add(1) == row.sequence;
            let small = segment.bytes + size <= segment_max || segment.bytes <= HEAD_BYTES;
            follows && small
        });
        let young = writer.as_ref().is_some_and(|writer| row.ended_ms < writer.begun_ms.saturating_add(span_ms));
        if !(fits && young) {
            if let Some(Writer { file, unsynced: true, .. }) = writer.take() {
                self.closed.push(file);
            }
            let head = Head { lane, machine: self.machine, first: row.sequence, previous: log.last() };
            let (segment, file) = Segment::create(&self.running.folder, head)?;
            log.segments.push_back(segment);
            *writer = Some(Writer { file, begun_ms: row.ended_ms, unsynced: true });
            if !self.folders.contains(&self.running.folder) {
                self.folders.push(self.running.folder.clone());
            }
        }
        let (Some(open), Some(segment)) = (writer.as_mut(), log.segments.back_mut()) else {
            return Err(io::Error::other("the spool has no segment"));
        };
        open.unsynced = true;
        match segment.append(&mut open.file, &frame, row) {
            Ok(()) => Ok(()),
            Err((error, torn)) => {
                let empty = segment.bytes <= HEAD_BYTES;
                if torn || empty {
                    // The whole rows in front of the torn one are still to be made durable.
                    if let Some(Writer { file, unsynced: true, .. }) = writer.take() {
                        self.closed.push(file);
                    }
                }
                // A full disk must not be filled with empty segments.
                if empty && let Some(segment) = log.segments.pop_back() {
                    disk::remove_file(&segment::path(&self.running.folder, lane, segment.first));
                }
                Err(error)
            }
        }
    }

    /// Finds what is on disk and makes the running boot's folder, if that is not done yet.
    pub(super) fn attach(&mut self) -> io::Result<()> {
        if self.attached {
            return Ok(());
        }
        disk::fault(disk::Step::Create)?;
        std::fs::create_dir_all(&self.root)?;
        let mut counter = 0;
        let mut folders: Vec<PathBuf> =
            std::fs::read_dir(&self.root)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        folders.sort_unstable();
        for folder in folders {
            let Some((number, id)) = folder_name(&folder) else { continue };
            counter = counter.max(number);
            if self.earlier.iter().any(|boot| boot.folder == folder) {
                continue;
            }
            match Boot::open(&folder, id, self.machine) {
                Ok(boot) if boot.is_empty() => super::dropping::remove_folder(&folder),
                Ok(boot) => self.earlier.push(boot),
                Err(error) => tracing::warn!(folder = %folder.display(), %error, "a part of the spool is left out"),
            }
        }
        self.running.folder = self.root.join(format!("{:010}-{}", counter.saturating_add(1), self.running.id));
        std::fs::create_dir(&self.running.folder)?;
        self.folders.push(self.root.clone());
        self.attached = true;
        Ok(())
    }
}

pub(super) fn folder_name(folder: &Path) -> Option<(u64, BootId)> {
    let (number, id) = folder.file_name()?.to_str()?.split_once('-')?;
    Some((number.parse().ok()?, id.parse().ok()?))
}
