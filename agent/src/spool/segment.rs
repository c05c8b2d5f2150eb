//! One segment file: a head, then rows in frames, numbered without gaps.
//!
//! ```text
//! "PXSPOOL1" 8 | CRC32C of what follows 4 | lane 1 | 0 0 0 | machine's boot 16 | first 8 | previous 8
//! ```
//!
//! `previous` is the last number before this segment that was ever on disk: what lies between it and
//! `first` never was, and its loss is recorded. So a missing file is told from a known hole.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use parallax_decide::observation::Lane;

use super::disk;
use super::row::{self, Found, Row};

/// A segment is closed at this size. Small, because it is dropped and read whole; large against a
/// block of flash.
pub const SEGMENT_BYTES_MAX: u64 = 128 << 10;

/// Bytes before the first frame.
pub(super) const HEAD_BYTES: u64 = 48;

const MAGIC: [u8; 8] = *b"PXSPOOL1";

/// Most bytes of a file that are looked at: a segment never has more.
const READ_BYTES_MAX: u64 = SEGMENT_BYTES_MAX + (row::FRAME_BYTES_MAX as u64) + HEAD_BYTES;

/// What the head of a segment says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Lane of its rows.
    pub lane: Lane,
    /// Random identity of the machine's own boot, whose clock the rows' times are of; 0: unknown.
    pub machine: u128,
    /// Number of its first row.
    pub first: u64,
    /// Last number before `first` that was written to disk.
    pub previous: u64,
}

impl Head {
    fn to_bytes(self) -> Vec<u8> {
        let mut covered = vec![
            match self.lane {
                Lane::Urgent => 1,
                Lane::Routine => 2,
            },
            0,
            0,
            0,
        ];
        covered.extend(self.machine.to_le_bytes());
        covered.extend(self.first.to_le_bytes());
        covered.extend(self.previous.to_le_bytes());
        let mut bytes = MAGIC.to_vec();
        bytes.extend(crc32c::crc32c(&covered).to_le_bytes());
        bytes.extend(covered);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let covered = rest.get(..36)?;
        if *magic != MAGIC || u32::from_le_bytes(*sum) != crc32c::crc32c(covered) {
            return None;
        }
        let (lane, rest) = covered.split_first_chunk::<4>()?;
        let (machine, rest) = rest.split_first_chunk::<16>()?;
        let (first, rest) = rest.split_first_chunk::<8>()?;
        let (previous, _) = rest.split_first_chunk::<8>()?;
        Some(Self {
            lane: match lane {
                [1, ..] => Lane::Urgent,
                [2, ..] => Lane::Routine,
                _ => return None,
            },
            machine: u128::from_le_bytes(*machine),
            first: u64::from_le_bytes(*first),
            previous: u64::from_le_bytes(*previous),
        })
    }
}

/// What can be read of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Its head; `None` when it is damaged.
    pub head: Option<Head>,
    /// Its rows, in the order of the file.
    pub rows: Vec<Row>,
    /// Bytes behind the head that belong to no row.
    pub damaged_bytes: usize,
    /// Whether the bytes end with something that is no row: at least one row is lost there.
    pub torn: bool,
}

/// Reads a segment from its bytes, whatever they are: behind damage it goes on with the next frame
/// that is whole.
#[must_use]
pub fn read(bytes: &[u8]) -> Contents {
    let frames = bytes.get(HEAD_BYTES as usize..).unwrap_or_default();
    let mut contents =
        Contents { head: Head::from_bytes(bytes), rows: Vec::new(), damaged_bytes: 0, torn: !bytes.is_empty() };
    let mut whole = 0;
    let mut end = 0;
    for (row, at) in Frames::new(frames) {
        whole += row::HEAD + row::PREFIX + row.bytes();
        end = at;
        contents.rows.push(row);
    }
    contents.damaged_bytes = frames.len() - whole.min(frames.len());
    contents.torn = end < frames.len() || (bytes.len() as u64) < HEAD_BYTES;
    contents
}

/// The rows in the bytes behind a segment's head, each with the offset where its frame ends.
#[derive(Debug)]
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    offset: usize,
    /// Bytes that may still be summed in vain: rubbish full of marks must not cost the square of its length.
    budget: usize,
}

impl<'a> Frames<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0, budget: bytes.len().saturating_mul(8) }
    }
}

impl Iterator for Frames<'_> {
    type Item = (Row, usize);

    fn next(&mut self) -> Option<(Row, usize)> {
        loop {
            let rest = self.bytes.get(self.offset..).filter(|rest| !rest.is_empty())?;
            match row::first(rest) {
                Found::Row(row, length) => {
                    self.offset += length;
                    return Some((row, self.offset));
                }
                Found::Cut => {}
                Found::Damage { tried } => self.budget = self.budget.checked_sub(tried)?,
            }
            // A frame that is cut off may be rubbish as well: what is behind it may be whole.
            let after = rest.get(1..).unwrap_or_default();
            let begin = after.windows(row::MARK.len()).position(|bytes| bytes == row::MARK)?;
            self.offset += 1 + begin;
        }
    }
}

/// What is known of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u64,
    /// See [`Head::previous`].
    pub(super) previous: u64,
    /// Its last number; `first - 1` while it is empty.
    pub(super) last: u64,
    /// Bytes of head and whole frames.
    pub(super) bytes: u64,
    /// When the newest row in it ended; `None`: not known yet.
    pub(super) newest_ms: Option<u64>,
}

impl Segment {
    /// Makes a new segment file without rows, open for appending.
    ///
    /// # Errors
    /// What the disk said; no file is left behind then.
    pub(super) fn create(folder: &Path, head: Head) -> io::Result<(Self, File)> {
        let path = path(folder, head.lane, head.first);
        disk::fault(disk::Step::Create)?;
        // One of that name is left of a try that failed: nothing but part of a head.
        let mut file = File::options().append(true).create(true).open(&path)?;
        file.set_len(0)?;
        disk::append(&mut file, &head.to_bytes()).inspect_err(|_| {
            // Empty, so nothing is lost with it; a full disk must not be filled with these.
            disk::remove_file(&path);
        })?;
        let last = head.first.saturating_sub(1);
        Ok((Self { first: head.first, previous: head.previous, last, bytes: HEAD_BYTES, newest_ms: None }, file))
    }

    /// Appends a frame whole, or not at all.
    ///
    /// # Errors
    /// What the disk said, and whether half of the frame stays behind: then nothing may be appended
    /// to this file any more.
    pub(super) fn append(&mut self, file: &mut File, frame: &[u8], row: &Row) -> Result<(), (io::Error, bool)> {
        if let Err(error) = disk::append(file, frame) {
            return Err((error, file.set_len(self.bytes).is_err()));
        }
        self.bytes += frame.len() as u64;
        self.last = row.sequence;
        self.newest_ms = Some(self.newest_ms.unwrap_or(0).max(row.ended_ms));
        Ok(())
    }
}

/// Reads the head of a segment file.
///
/// # Errors
/// What the disk said.
pub(super) fn head(path: &Path) -> io::Result<Option<Head>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut bytes)?;
    Ok(Head::from_bytes(&bytes))
}

/// Reads the bytes of a segment file from an offset on.
///
/// # Errors
/// What the disk said.
pub(super) fn bytes_from(path: &Path, offset: u64, end: u64) -> io::Result<Vec<u8>> {
    disk::fault(disk::Step::Read)?;
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    let length = end.saturating_sub(offset).min(READ_BYTES_MAX);
    let mut bytes = Vec::with_capacity(length as usize);
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a segment file whole.
///
/// # Errors
/// What the disk said.
pub(super) fn load(path: &Path) -> io::Result<Contents> {
    bytes_from(path, 0, READ_BYTES_MAX).map(|bytes| read(&bytes))
}

/// The file of a segment.
pub(super) fn path(folder: &Path, lane: Lane, first: u64) -> PathBuf {
    folder.join(format!("{lane}-{first:020}.segment"))
}

/// Lane and first number, from a file's name.
pub(super) fn of_name(path: &Path) -> Option<(Lane, u64)> {
    let (lane, rest) = path.file_name()?.to_str()?.split_once('-')?;
    let lane = Lane::from_word(lane)?;
    let first = rest.strip_suffix(".segment").filter(|digits| digits.len() == 20)?.parse().ok()?;
    // Numbers begin at 1, and no agent lives to see this many.
    (first > 0 && first < 1 << 48).then_some((lane, first))
}
