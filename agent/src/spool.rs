//! Observations on disk until the coordinator has acknowledged them.
//!
//! ```text
//! spool/
//!   0000000003-5f0c…e1/            one folder a start of the agent; the counter gives the order
//!     00000000000000000001.segment named after its first sequence number
//!     00000000000000000513.segment
//!     cursor                       everything up to this sequence number is acknowledged
//! ```
//!
//! A segment is a row of frames: length and CRC32C (4 bytes each, little endian), then sequence
//! number, end of the probe by the boot-time clock in ms (8 bytes each), and the encoded
//! observation. Frames are appended before they are sent; whole segments are deleted once they are
//! acknowledged. A tail torn by a crash is cut off when the spool is opened. When the spool is full
//! the oldest segment is dropped and counted; the hole in the sequence numbers tells the
//! coordinator. The live boot is sent first, what earlier boots left when there is nothing else.
//!
//! The cursor may lag behind: then some rows are sent again, which changes nothing.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use boot::BootId;
use boot::{Boot, Cursor};
use segment::{Row, Segment};

pub mod boot;
pub mod disk;
pub mod segment;

/// Default for the most bytes kept on disk: days of usual probing (some ten megabytes a day).
pub const SPOOL_BYTES_MAX: u64 = 64 << 20;

/// Least that may be configured: a few segments must fit.
pub const SPOOL_BYTES_MIN: u64 = 64 << 10;

/// A segment is closed at this size: what is dropped or deleted at once, small against the cap.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;

/// Rows to send, of one boot, in sequence order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The boot that numbered them.
    pub boot: BootId,
    /// The rows; never empty.
    pub rows: Vec<Row>,
}

/// The spool.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    bytes_max: u64,
    /// Earlier boots in order, the running one last.
    boots: Vec<Boot>,
    /// Segment being written, of the running boot.
    open: Option<File>,
    next_sequence: u64,
    /// Rows of unread or unacknowledged segments that were dropped since the start.
    dropped: u64,
    unsynced: bool,
}

/// What makes the spool durable, to be done off the runtime's thread: flash can take long.
#[derive(Debug)]
pub struct SyncWork {
    file: Option<File>,
    cursors: Vec<Cursor>,
}

impl SyncWork {
    /// Does it.
    ///
    /// # Errors
    /// What the disk said first; the rest is tried nevertheless.
    pub fn run(self) -> io::Result<()> {
        let synced = self.file.map_or(Ok(()), |file| file.sync_data());
        self.cursors.iter().map(Cursor::write).fold(synced, Result::and)
    }
}

/// What an append did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Number of the row.
    pub sequence: u64,
    /// Rows that were dropped to make room.
    pub dropped: u64,
}

impl Spool {
    /// Opens the spool for a new boot; what earlier boots left stays to be sent.
    ///
    /// # Errors
    /// When the folder cannot be used. Damaged contents are no error: they are cut off, with a warning.
    pub fn open(root: PathBuf, boot: BootId, bytes_max: u64) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let mut boots = Vec::new();
        let mut counter = 0;
        let mut folders: Vec<PathBuf> =
            std::fs::read_dir(&root)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        folders.sort_unstable();
        for folder in folders {
            let Some((number, id)) = folder_name(&folder) else { continue };
            counter = counter.max(number);
            match Boot::open(&folder, id) {
                Ok(Some(boot)) => boots.push(boot),
                Ok(None) => remove_folder(&folder),
                Err(error) => tracing::warn!(folder = %folder.display(), %error, "a part of the spool is left out"),
            }
        }
        let folder = root.join(format!("{:010}-{boot}", counter.saturating_add(1)));
        std::fs::create_dir(&folder)?;
        disk::sync_folder(&root)?;
        boots.push(Boot::new(boot, folder));
        let mut spool = Self { root, bytes_max, boots, open: None, next_sequence: 1, dropped: 0, unsynced: false };
        // A backlog above a cap that was lowered is dropped by the same rule, and the start goes on.
        let dropped = spool.make_room(0);
        if dropped > 0 {
            tracing::warn!(dropped, bytes_max, "the spool was above its cap; its oldest observations were dropped");
        }
        Ok(spool)
    }

    /// Appends a row.
    ///
    /// # Errors
    /// What the disk said. The row is then lost, its number stays unused, and the hole tells so.
    pub fn append(&mut self, ended_ms: u64, observation: &[u8]) -> io::Result<Appended> {
        let sequence = self.next_sequence;
        self.next_sequence = sequence.saturating_add(1);
        let frame = segment::frame(&Row { sequence, ended_ms, observation: observation.to_vec() })?;
        let size = frame.len() as u64;
        let dropped = self.make_room(size);
        let limit = SEGMENT_BYTES_MAX.min(self.bytes_max / 4);
        let Some(boot) = self.boots.last_mut() else { return Err(io::Error::other("the spool has no boot")) };
        let full = boot.segments.back().is_none_or(|segment| segment.bytes + size > limit);
        if full || self.open.is_none() {
            if let Some(file) = self.open.take() {
                file.sync_data()?;
            }
            let (segment, file) = Segment::create(&boot.folder, sequence)?;
            self.open = Some(file);
            boot.segments.push_back(segment);
        }
        let (Some(file), Some(segment)) = (&mut self.open, boot.segments.back_mut()) else {
            return Err(io::Error::other("the spool has no segment"));
        };
        self.unsynced = true;
        if let Err(failed) = segment.append(file, &frame, sequence) {
            if failed.torn {
                // Half a frame must not stay in front of the next one: begin a new segment. A full
                // disk must not be filled with empty ones.
                self.open = None;
                if segment.bytes == 0
                    && let Some(empty) = boot.segments.pop_back()
                {
                    empty.remove();
                }
            }
            return Err(failed.error);
        }
        Ok(Appended { sequence, dropped })
    }

    /// The next rows to send: the running boot's, then what earlier boots left. `None`: nothing.
    ///
    /// # Errors
    /// What the disk said.
    pub fn next_batch(&mut self, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        for boot in self.boots.iter_mut().rev() {
            let rows = boot.read(rows_max, bytes_max, &mut self.dropped)?;
            if !rows.is_empty() {
                return Ok(Some(Batch { boot: boot.id, rows }));
            }
        }
        Ok(None)
    }

    /// Whether something is left to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.boots.iter().any(|boot| boot.segments.back().is_some_and(|segment| segment.last > boot.sent))
    }

    /// The connection was lost: everything not acknowledged is to be sent again.
    pub fn rewind(&mut self) {
        for boot in &mut self.boots {
            boot.sent = boot.acked;
            boot.place = None;
        }
    }

    /// Everything up to `sequence` of that boot is stored by the coordinator. Deletes what is
    /// wholly acknowledged. An acknowledgement of what was never sent is cut to what was. Returns
    /// up to where that boot is done with now, refused rows included.
    pub fn acked(&mut self, id: BootId, sequence: u64) -> u64 {
        let Some(position) = self.boots.iter().position(|boot| boot.id == id) else { return u64::MAX };
        let running = position + 1 == self.boots.len();
        let Some(boot) = self.boots.get_mut(position) else { return u64::MAX };
        boot.advance(sequence);
        let done = boot.acked;
        // The segment being written stays: it has room for the next rows.
        while boot.segments.front().is_some_and(|segment| segment.last <= boot.acked)
            && !(running && boot.segments.len() == 1)
        {
            if let Some(segment) = boot.segments.pop_front() {
                segment.remove();
            }
        }
        if !running && boot.segments.is_empty() {
            remove_folder(&self.boots.remove(position).folder);
        }
        done
    }

    /// The coordinator refused one row: it will never take it, so it is done with, as soon as
    /// those before it are. Returns as [`Self::acked`].
    pub fn refused(&mut self, id: BootId, sequence: u64) -> u64 {
        let Some(boot) = self.boots.iter_mut().find(|boot| boot.id == id) else { return u64::MAX };
        // Only what was sent can be refused, which also bounds what is remembered.
        if sequence > boot.acked && sequence <= boot.sent {
            boot.refused.insert(sequence);
        }
        let up_to = boot.acked;
        self.acked(id, up_to)
    }

    /// Rows dropped since the start, for want of room or because they could not be read.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Work that makes everything appended so far durable, and writes the cursors that changed;
    /// `None` when there is none.
    ///
    /// # Errors
    /// What the disk said.
    pub fn sync_work(&mut self) -> io::Result<Option<SyncWork>> {
        let file = match std::mem::take(&mut self.unsynced) {
            true => self.open.as_ref().map(File::try_clone).transpose()?,
            false => None,
        };
        let cursors: Vec<Cursor> = self.boots.iter_mut().filter_map(Boot::take_cursor).collect();
        Ok((file.is_some() || !cursors.is_empty()).then_some(SyncWork { file, cursors }))
    }

    /// Makes everything durable now.
    ///
    /// # Errors
    /// What the disk said.
    pub fn sync(&mut self) -> io::Result<()> {
        self.sync_work()?.map_or(Ok(()), SyncWork::run)
    }

    /// Drops the oldest segments until `size` more bytes fit; how many unacknowledged rows that cost.
    fn make_room(&mut self, size: u64) -> u64 {
        let mut lost = 0;
        while self.bytes() + size > self.bytes_max {
            let last = self.boots.len().saturating_sub(1);
            let Some(position) = self.boots.iter().position(|boot| !boot.segments.is_empty()) else { break };
            let Some(boot) = self.boots.get_mut(position) else { break };
            let Some(segment) = boot.segments.pop_front() else { break };
            lost += segment.last.saturating_sub(segment.first.saturating_sub(1).max(boot.acked));
            segment.remove();
            boot.place = None;
            if boot.segments.is_empty() {
                if position == last {
                    self.open = None;
                } else {
                    remove_folder(&self.boots.remove(position).folder);
                }
            }
        }
        self.dropped += lost;
        lost
    }

    fn bytes(&self) -> u64 {
        self.boots.iter().flat_map(|boot| &boot.segments).map(|segment| segment.bytes).sum()
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = self.sync() {
            tracing::warn!(folder = %self.root.display(), %error, "the end of the spool may not be on disk");
        }
    }
}

fn folder_name(folder: &Path) -> Option<(u64, BootId)> {
    let (number, id) = folder.file_name()?.to_str()?.split_once('-')?;
    Some((number.parse().ok()?, id.parse().ok()?))
}

fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove an emptied part of the spool");
    }
}

#[cfg(test)]
mod tests;
