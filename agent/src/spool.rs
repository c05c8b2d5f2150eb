//! Observations on disk until the coordinator has acknowledged them.
//!
//! ```text
//! spool/
//!   0000000003-5f0c…e1/                    one folder a start of the agent; the counter gives the order
//!     urgent-00000000000000000001.segment  one lane's rows, named after the first sequence number
//!     routine-00000000000000000001.segment
//!     routine-00000000000000000413.segment
//!     cursor                               up to where each lane is done with
//! ```
//!
//! **Sent first**: of each lane what the running boot measured, because only that can decide a verdict
//! now; then what earlier boots left, newest boot first. The lanes do not wait for each other on the way,
//! and the urgent one is looked at first. While no coordinator is there the spool begins a boot anew every
//! ten minutes (`turning`), so that after a long outage the last moments are sent before its hours.
//!
//! **Bounds**: bytes and age. Whole segments are dropped, the oldest of a routine lane first; of an
//! urgent lane only when no routine one is left, so that evidence of a fault outlives the routine.
//! Whatever is dropped becomes a row itself ([`Loss`]): why, how many, which, from when to when.
//!
//! **Durable**: an observation survives `kill -9` from the moment [`Spool::append`] returned (it is
//! in the kernel's hands), and a power cut when its probe ended more than 200 ms before: everything
//! new is made durable together, 100 ms after the first of it. Segments are deleted only after the
//! cursor that says they are done with is durable. A cursor may lag behind: then some rows are sent
//! again, which changes nothing.
//!
//! **Damage** costs what is damaged: a torn tail is passed over, and behind a flipped byte reading goes
//! on with the next whole frame. Sequence numbers tell how many rows are missing.
//!
//! **A disk that takes nothing** (full, read only, failing, folder gone) ends nothing: rows are kept in
//! a little memory by the same rule, the disk is tried again, and gets them when it works.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use parallax_decide::observation::{Lane, LossReason};

use boot::Boot;
pub use boot::BootId;
use health::Health;
use lanes::Lanes;
pub use loss::Loss;
use loss::Losses;
pub use memory::MEMORY_BYTES_MAX;
use memory::Memory;
pub use row::{Content, Row};
pub use syncing::{SyncWork, Synced};

mod boot;
mod cursor;
pub mod disk;
mod dropping;
mod health;
mod lanes;
mod log;
mod loss;
mod memory;
mod row;
pub mod segment;
mod syncing;
mod turning;
mod writing;

/// Default for the most bytes kept on disk: days of usual probing (some ten megabytes a day).
pub const SPOOL_BYTES_MAX: u64 = 64 << 20;

/// Least that may be configured: a few segments must fit.
pub const SPOOL_BYTES_MIN: u64 = 256 << 10;

/// Default for how long an observation is kept.
pub const SPOOL_AGE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Least that may be configured.
pub const SPOOL_AGE_MIN: Duration = Duration::from_secs(60);

/// Most earlier boots kept: an agent that is started again and again must not fill the disk with folders.
const BOOTS_MAX: usize = 256;

/// Losses are gathered this long before they are written down.
const LOSSES_EVERY_MS: u64 = 5_000;

/// What the spool may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes on disk.
    pub bytes_max: u64,
    /// How long an observation is kept. Whole segments are dropped, so it may be a twenty-fourth more.
    pub age_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes_max: SPOOL_BYTES_MAX, age_max: SPOOL_AGE_MAX }
    }
}

/// Rows to send, of one lane of one boot, in sequence order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The boot that numbered them.
    pub boot: BootId,
    /// Their lane.
    pub lane: Lane,
    /// The rows; never empty.
    pub rows: Vec<Row>,
    /// Whether this process numbered them, so that their times are known.
    pub ours: bool,
}

/// A segment file that is being written.
#[derive(Debug)]
struct Writer {
    file: File,
    /// When its first row ended.
    begun_ms: u64,
    unsynced: bool,
}

/// The spool.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    limits: Limits,
    machine: u128,
    /// Earlier boots in order.
    earlier: Vec<Boot>,
    running: Boot,
    /// Whether the running boot has its folder.
    attached: bool,
    next: Lanes<u64>,
    writers: Lanes<Option<Writer>>,
    /// Closed segments that are not durable yet.
    closed: Vec<File>,
    /// Folders with files that are not durable yet.
    folders: Vec<PathBuf>,
    memory: Memory,
    losses: Losses,
    health: Health,
    /// Whether dropping segments did not help a full disk the last time.
    room_in_vain: bool,
    /// Newest time that was told, by the boot-time clock.
    now_ms: u64,
    /// Since when nothing was taken and no session stands, by the boot-time clock; `None`: not yet.
    waiting_since_ms: Option<u64>,
    /// A session is being opened or stands: the boot stays what it is.
    held: bool,
}

impl Spool {
    /// Opens the spool for a new boot; what earlier boots left stays to be sent. Neither damage nor a
    /// disk that cannot be used is an error: rows are then kept in memory, and the log says so.
    #[must_use]
    pub fn open(root: PathBuf, boot: BootId, limits: Limits, now_ms: u64) -> Self {
        let mut spool = Self {
            running: Boot::new(boot, root.join(format!("0000000001-{boot}"))),
            root,
            limits,
            machine: boot::machine(),
            earlier: Vec::new(),
            attached: false,
            next: Lanes { urgent: 1, routine: 1 },
            writers: Lanes::default(),
            closed: Vec::new(),
            folders: Vec::new(),
            memory: Memory::default(),
            losses: Losses::default(),
            health: Health::default(),
            room_in_vain: false,
            now_ms,
            waiting_since_ms: None,
            held: false,
        };
        if let Err(error) = spool.attach() {
            spool.failed(&error);
        }
        while spool.earlier.len() > BOOTS_MAX {
            spool.lose_oldest_boot();
        }
        // A backlog above a cap that was lowered is dropped by the same rule, and the start goes on.
        spool.make_room(0);
        spool.drop_old();
        spool.write_losses();
        spool
    }

    /// Appends a row and returns its number. What the disk does not take is kept in memory.
    pub fn append(&mut self, lane: Lane, ended_ms: u64, good: bool, observation: &[u8]) -> u64 {
        self.now_ms = self.now_ms.max(ended_ms);
        let sequence = self.number(lane, ended_ms, good, Content::Observation(observation.to_vec()));
        if self.losses.due {
            self.write_losses();
        }
        sequence
    }

    /// The next rows of a lane to send, in the order the module's head tells. `None`: nothing.
    ///
    /// # Errors
    /// When the system is short of file handles or memory: worth trying again.
    pub fn next_batch_of(&mut self, lane: Lane, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        match self.read_running(lane, rows_max, bytes_max)? {
            Some(batch) => Ok(Some(batch)),
            None => self.read_earlier(lane, rows_max, bytes_max),
        }
    }

    /// Whether something is left to be sent.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        Lane::ALL.into_iter().any(|lane| self.has_unsent_of(lane))
    }

    /// Whether something of this lane is left to be sent.
    #[must_use]
    pub fn has_unsent_of(&self, lane: Lane) -> bool {
        let unsent = |boot: &Boot| {
            let log = boot.logs.of(lane);
            log.segments.back().is_some_and(|segment| segment.last > log.sent)
        };
        let in_memory = self.memory.last(lane).is_some_and(|last| last > self.running.logs.of(lane).sent);
        in_memory || unsent(&self.running) || self.earlier.iter().any(unsent)
    }

    /// A session begins or was lost: everything not acknowledged is to be sent again, and what is
    /// known of losses with it.
    pub fn rewind(&mut self) {
        for boot in self.earlier.iter_mut().chain([&mut self.running]) {
            for lane in Lane::ALL {
                boot.logs.of_mut(lane).rewind();
            }
        }
        self.write_losses();
    }

    /// Everything up to `sequence` of that lane of that boot is stored by the coordinator. An
    /// acknowledgement of what was never sent is cut to what was. Returns up to where the lane is
    /// done with now, refused rows included.
    pub fn acked(&mut self, id: BootId, lane: Lane, sequence: u64) -> u64 {
        self.waiting_since_ms = None;
        self.settle(id, lane, |log| log.acknowledge(sequence))
    }

    /// The coordinator refused one row: it will never take it, so it is done with, as soon as
    /// those before it are. Returns as [`Self::acked`].
    pub fn refused(&mut self, id: BootId, lane: Lane, sequence: u64) -> u64 {
        self.settle(id, lane, |log| log.refuse(sequence))
    }

    /// The coordinator cannot take this row, however it is sent: it is done with, and recorded as lost.
    pub fn set_aside(&mut self, id: BootId, lane: Lane, sequence: u64) {
        // A row that is read again after a reconnection is lost once.
        let boot = self.earlier.iter().chain([&self.running]).find(|boot| boot.id == id);
        if boot.is_none_or(|boot| boot.logs.of(lane).is_done(sequence)) {
            return;
        }
        // When it was measured is not known here; the range holds it.
        let ended_ms = (0, i64::try_from(self.now_ms).unwrap_or(i64::MAX));
        let (reason, sequences) = (LossReason::Damaged, (sequence, sequence));
        let loss = Loss { reason, boot: id, lane, count: 1, good: 0, sequences, ended_ms };
        self.losses.add(loss, self.now_ms);
        self.refused(id, lane, sequence);
    }

    /// What is due by time: drops what is too old, tries a failing disk again, writes losses down.
    pub fn tick(&mut self, now_ms: u64) {
        self.now_ms = self.now_ms.max(now_ms);
        self.drop_old();
        if self.health.is_due(self.now_ms) {
            self.try_again();
        }
        self.turn_when_due();
        let gathered = self.now_ms >= self.losses.since_ms.saturating_add(LOSSES_EVERY_MS);
        if self.losses.due || (gathered && !self.losses.is_empty()) {
            self.write_losses();
        }
    }

    /// The number the next row of a lane gets.
    #[must_use]
    pub fn next_sequence(&self, lane: Lane) -> u64 {
        *self.next.of(lane)
    }

    /// Rows dropped since the start, of this boot and of earlier ones.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.total
    }

    /// Why the disk takes nothing at present; `None`: it does.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.health.why()
    }

    fn settle(&mut self, id: BootId, lane: Lane, by: impl FnOnce(&mut log::Log)) -> u64 {
        // Of a boot that is done with altogether.
        let Some(boot) = self.earlier.iter_mut().chain([&mut self.running]).find(|boot| boot.id == id) else {
            return u64::MAX;
        };
        let log = boot.logs.of_mut(lane);
        by(log);
        let done = log.acked;
        if id == self.running.id {
            self.memory.forget(lane, done);
        }
        done
    }

    fn read_running(&mut self, lane: Lane, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        let mut holes = Vec::new();
        let log = self.running.logs.of_mut(lane);
        let read = log.read(&self.running.folder, rows_max, bytes_max, &mut holes);
        self.unreadable(self.earlier.len(), lane, &holes);
        let mut rows = read?;
        let mut bytes: usize = rows.iter().map(Row::bytes).sum();
        let log = self.running.logs.of_mut(lane);
        // What is in memory is newer than everything on disk: it waits for that.
        let on_disk = log.segments.back().is_some_and(|segment| segment.last > log.sent);
        for row in self.memory.rows(lane).filter(|row| !on_disk && row.sequence > log.sent) {
            if rows.len() >= rows_max || bytes >= bytes_max {
                break;
            }
            bytes += row.bytes();
            rows.push(row.clone());
        }
        if let Some(row) = rows.last() {
            log.sent = log.sent.max(row.sequence);
        }
        Ok((!rows.is_empty()).then_some(Batch { boot: self.running.id, lane, rows, ours: true }))
    }

    fn read_earlier(&mut self, lane: Lane, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        for index in (0..self.earlier.len()).rev() {
            let Some(boot) = self.earlier.get_mut(index) else { continue };
            let mut holes = Vec::new();
            let read = boot.logs.of_mut(lane).read(&boot.folder, rows_max, bytes_max, &mut holes);
            let (id, ours) = (boot.id, boot.ours);
            self.unreadable(index, lane, &holes);
            let rows = read?;
            if !rows.is_empty() {
                return Ok(Some(Batch { boot: id, lane, rows, ours }));
            }
        }
        Ok(None)
    }

    /// The boot with that place in order; the running one is the last.
    fn boot(&self, index: usize) -> &Boot {
        self.earlier.get(index).unwrap_or(&self.running)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.sync();
    }
}

#[cfg(test)]
mod tests;
