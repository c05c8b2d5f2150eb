//! One start of the agent, or one part of a long outage: its identity, and what is on disk of it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use parallax_decide::observation::Lane;

use super::cursor::{self, Cursor};
use super::lanes::Lanes;
use super::log::Log;
use super::segment::{self, HEAD_BYTES, Head, Segment};

/// Random identity of one start of the agent, or of one part of a long outage within it. Sequence numbers count within it.
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

/// Random identity of the machine's own boot (proc(5), sys/kernel/random/boot_id): the boot-time
/// clock counts within it. 0 when the kernel does not tell; then no two are taken for the same.
pub(super) fn machine() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// What there is of one start of the agent.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) id: BootId,
    pub(super) folder: PathBuf,
    pub(super) logs: Lanes<Log>,
    /// End of its newest row, when the machine was started since: its clock is another one then.
    pub(super) before_machine_ms: Option<u64>,
    /// Whether this process numbered it.
    pub(super) ours: bool,
    /// What of the cursor is on disk.
    cursor: Option<Lanes<u64>>,
}

impl Boot {
    pub(super) fn new(id: BootId, folder: PathBuf) -> Self {
        let logs = Lanes { urgent: Log::new(Lane::Urgent), routine: Log::new(Lane::Routine) };
        Self { id, folder, logs, before_machine_ms: None, ours: true, cursor: None }
    }

    /// What an earlier boot left. Reads the heads of its segments and the last one of each lane;
    /// damage elsewhere is found when it is read.
    ///
    /// # Errors
    /// When the folder cannot be read: it may be readable at another time.
    pub(super) fn open(folder: &Path, id: BootId, machine: u128) -> io::Result<Self> {
        let mut boot = Self::new(id, folder.to_owned());
        let cursor = cursor::read(folder);
        let mut found: Lanes<BTreeMap<u64, PathBuf>> = Lanes::default();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if let Some((lane, first)) = segment::of_name(&path) {
                found.of_mut(lane).insert(first, path);
            }
        }
        let mut newest = None;
        let mut same_machine = machine != 0;
        for lane in Lane::ALL {
            let acked = cursor.map(|cursor| *cursor.of(lane));
            let recovered = recover(found.of(lane), lane, acked);
            same_machine &= recovered.machine.is_none_or(|of| of == machine);
            newest = newest.max(recovered.segments.back().and_then(|segment| segment.newest_ms));
            let log = boot.logs.of_mut(lane);
            log.acked = acked.unwrap_or_else(|| recovered.segments.front().map_or(0, |segment| segment.previous));
            log.sent = log.acked;
            log.segments = recovered.segments;
        }
        boot.cursor = cursor;
        boot.ours = false;
        boot.before_machine_ms = (!same_machine).then_some(newest.unwrap_or(0));
        Ok(boot)
    }

    /// A time of this boot's rows on the running boot-time clock; negative when the machine was
    /// started since. Then it is later than it was: how long the machine was off is not known.
    pub(super) fn on_our_clock(&self, ended_ms: u64) -> i64 {
        let ended = i64::try_from(ended_ms).unwrap_or(i64::MAX);
        match self.before_machine_ms {
            None => ended,
            Some(newest) => ended.saturating_sub(i64::try_from(newest).unwrap_or(i64::MAX)).min(0),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.logs.each().iter().all(|(_, log)| log.segments.is_empty())
    }

    /// The cursor, when it is not on disk as it is now.
    pub(super) fn cursor(&self) -> Option<Cursor> {
        let now = Lanes { urgent: self.logs.urgent.acked, routine: self.logs.routine.acked };
        (self.cursor != Some(now)).then(|| Cursor { folder: self.folder.clone(), acked: now })
    }

    /// Up to where the cursor is on disk.
    pub(super) fn cursor_written(&mut self, cursor: Option<Lanes<u64>>) {
        self.cursor = cursor;
    }

    /// Up to where segments may be deleted: what the cursor on disk says is done with.
    pub(super) fn deletable(&self, lane: Lane) -> u64 {
        self.cursor.map_or(0, |cursor| *cursor.of(lane))
    }
}

struct Recovered {
    segments: VecDeque<Segment>,
    /// Of the heads that could be read; `None`: of none.
    machine: Option<u128>,
}

/// The segments of one lane, from their heads; the last one is read whole.
fn recover(files: &BTreeMap<u64, PathBuf>, lane: Lane, acked: Option<u64>) -> Recovered {
    let mut segments: VecDeque<Segment> = VecDeque::new();
    let mut machine = None;
    for (&first, path) in files {
        // Cannot be read or is damaged: reading tells how much is lost with it.
        let head = segment::head(path).ok().flatten().filter(|head| head.first == first && head.lane == lane);
        machine = head.map(|head: Head| head.machine).or(machine);
        let previous = head.map_or(first - 1, |head| head.previous.min(first - 1));
        if let Some(before) = segments.back_mut() {
            before.last = previous.max(before.first);
        }
        let bytes = std::fs::metadata(path).map_or(HEAD_BYTES, |data| data.len());
        segments.push_back(Segment { first, previous, last: first, bytes, newest_ms: None });
    }
    if let (Some(segment), Some(path)) = (segments.back_mut(), files.values().next_back()) {
        let read = segment::load(path);
        let torn = read.as_ref().map_or(true, |contents| contents.torn);
        let rows = read.map(|contents| contents.rows).unwrap_or_default();
        let last = rows.iter().map(|row| row.sequence).filter(|&sequence| sequence >= segment.first).max();
        // Something that is no row at the end was at least one row.
        let torn_row = u64::from(torn);
        segment.last = last.unwrap_or(segment.first - 1).saturating_add(torn_row);
        segment.newest_ms = rows.iter().map(|row| row.ended_ms).max();
        if torn {
            tracing::warn!(file = %path.display(), "the end of a segment of the spool is damaged; what is whole is kept");
        }
    }
    // Begun and never written to, or done with: only the file is left to delete.
    segments.retain(|segment| {
        let wanted = segment.last >= segment.first && acked.is_none_or(|acked| segment.last > acked);
        if !wanted && let Some(path) = files.get(&segment.first) {
            super::disk::remove_file(path);
        }
        wanted
    });
    Recovered { segments, machine }
}
