//! One start of the agent: its identity, and what is on disk of it.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::disk;
use super::segment::{self, Row, Segment};

/// Random identity of one start of the agent. Sequence numbers count within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId(pub(super) u128);

impl BootId {
    /// A new one.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub fn random() -> Result<Self, crate::entropy::NoEntropy> {
        crate::entropy::bytes().map(|bytes| Self(u128::from_be_bytes(bytes)))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BootId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hex { u128::from_str_radix(text, 16).map(Self).map_err(|_| ()) } else { Err(()) }
    }
}

/// Name of the cursor's file in the folder.
const CURSOR: &str = "cursor";

/// A cursor on its way to the disk.
#[derive(Debug)]
pub(super) struct Cursor {
    path: PathBuf,
    acked: u64,
}

impl Cursor {
    /// Writes it. A folder that is gone meanwhile has no need of it any more.
    pub(super) fn write(&self) -> io::Result<()> {
        match disk::write_checked(&self.path, &self.acked.to_le_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }
}

/// What is on disk of one start of the agent.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) id: BootId,
    pub(super) folder: PathBuf,
    pub(super) segments: VecDeque<Segment>,
    /// Everything up to here is acknowledged.
    pub(super) acked: u64,
    /// Everything up to here was handed out for sending.
    pub(super) sent: u64,
    /// Refused one by one, beyond `acked`.
    pub(super) refused: BTreeSet<u64>,
    /// Where reading goes on: first sequence number of the segment, and offset in it.
    pub(super) place: Option<(u64, u64)>,
    /// Whether `acked` rose since it was last handed out for writing.
    pub(super) cursor_dirty: bool,
}

impl Boot {
    pub(super) fn new(id: BootId, folder: PathBuf) -> Self {
        let segments = VecDeque::new();
        Self { id, folder, segments, acked: 0, sent: 0, refused: BTreeSet::new(), place: None, cursor_dirty: false }
    }

    /// What an earlier boot left; `None` when nothing of it is left to send.
    ///
    /// # Errors
    /// When none of what is left can be read: it may be readable at the next start.
    pub(super) fn open(folder: &Path, id: BootId) -> io::Result<Option<Self>> {
        let mut boot = Self::new(id, folder.to_owned());
        boot.acked = boot.read_cursor();
        boot.sent = boot.acked;
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        paths.sort_unstable();
        let mut left_out = None;
        for path in paths.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "segment")) {
            match Segment::recover(&path) {
                Ok(Some(segment)) if segment.last > boot.acked => boot.segments.push_back(segment),
                Ok(Some(_) | None) => segment::remove_file(&path),
                Err(error) => {
                    tracing::warn!(file = %path.display(), %error, "a segment of the spool is left out");
                    left_out = Some(error);
                }
            }
        }
        match (boot.segments.is_empty(), left_out) {
            (true, Some(error)) => Err(error),
            (true, None) => Ok(None),
            (false, _) => Ok(Some(boot)),
        }
    }

    pub(super) fn advance(&mut self, sequence: u64) {
        let before = self.acked;
        self.acked = self.acked.max(sequence.min(self.sent));
        while self.refused.remove(&self.acked.saturating_add(1)) {
            self.acked = self.acked.saturating_add(1);
        }
        self.refused = self.refused.split_off(&self.acked.saturating_add(1));
        self.sent = self.sent.max(self.acked);
        self.cursor_dirty |= self.acked != before;
    }

    pub(super) fn read(&mut self, rows_max: usize, bytes_max: usize, dropped: &mut u64) -> io::Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        let mut bytes = 0;
        let unsent_from = self.segments.partition_point(|segment| segment.last <= self.sent);
        for segment in self.segments.iter().skip(unsent_from) {
            let offset = match self.place {
                Some((first, offset)) if first == segment.first => offset,
                Some(_) | None => 0,
            };
            let mut reader = match segment.reader(offset) {
                Ok(reader) => Ok(reader),
                // Gone or locked away: what lies behind it must not wait for it for ever.
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
                    Err(Some(error))
                }
                Err(error) if rows.is_empty() => return Err(error),
                // What was taken so far counts as sent, so it must go; the error comes again.
                Err(_) => return Ok(rows),
            };
            loop {
                if rows.len() >= rows_max || bytes >= bytes_max {
                    return Ok(rows);
                }
                let next = match &mut reader {
                    Ok(reader) => reader.next_row().map(|row| row.map(|row| (row, reader.offset))),
                    Err(error) => error.take().map(Err),
                };
                match next {
                    Some(Ok((row, offset))) => {
                        self.place = Some((segment.first, offset));
                        if row.sequence > self.sent {
                            self.sent = row.sequence;
                            bytes += row.observation.len();
                            rows.push(row);
                        }
                    }
                    None => break,
                    Some(Err(error)) => {
                        let lost = segment.last.saturating_sub(self.sent);
                        tracing::warn!(file = %segment.path.display(), %error, lost, "observations cannot be read back");
                        *dropped += lost;
                        self.sent = segment.last;
                        // What is appended from now on begins after everything that is there.
                        self.place = Some((segment.first, segment.bytes));
                        break;
                    }
                }
            }
        }
        Ok(rows)
    }

    /// The cursor that is to be written, if it changed since the last time.
    pub(super) fn take_cursor(&mut self) -> Option<Cursor> {
        let path = self.folder.join(CURSOR);
        std::mem::take(&mut self.cursor_dirty).then_some(Cursor { path, acked: self.acked })
    }

    /// A cursor that cannot be read means that some rows are sent again, which changes nothing.
    pub(super) fn read_cursor(&self) -> u64 {
        let bytes = disk::read_checked(&self.folder.join(CURSOR)).ok().flatten();
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}
