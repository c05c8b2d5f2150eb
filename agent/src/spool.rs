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
//! **Sent first**: the running boot's urgent lane, then its routine lane, because only they can decide
//! a verdict now; then what earlier boots left, urgent lanes first, newest boot first.
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
use std::path::{Path, PathBuf};
use std::time::Duration;

use parallax_decide::observation::LossReason;

use boot::Boot;
pub use boot::BootId;
use health::Health;
pub use lane::Lane;
use lane::Lanes;
use log::Hole;
pub use loss::Loss;
use loss::Losses;
pub use memory::MEMORY_BYTES_MAX;
use memory::Memory;
pub use row::{Content, Row};
use segment::{HEAD_BYTES, Head, Segment};
pub use syncing::{SyncWork, Synced};

mod boot;
mod cursor;
pub mod disk;
mod health;
mod lane;
mod log;
mod loss;
mod memory;
mod row;
pub mod segment;
mod syncing;

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

    /// The next rows to send, in the order the module's head tells. `None`: nothing.
    ///
    /// # Errors
    /// When the system is short of file handles or memory: worth trying again.
    pub fn next_batch(&mut self, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        for lane in Lane::ALL {
            if let Some(batch) = self.read_running(lane, rows_max, bytes_max)? {
                return Ok(Some(batch));
            }
        }
        for lane in Lane::ALL {
            if let Some(batch) = self.read_earlier(lane, rows_max, bytes_max)? {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// As [`Self::next_batch`], of one lane alone.
    ///
    /// # Errors
    /// As there.
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
        self.settle(id, lane, |log| log.acknowledge(sequence))
    }

    /// The coordinator refused one row: it will never take it, so it is done with, as soon as
    /// those before it are. Returns as [`Self::acked`].
    pub fn refused(&mut self, id: BootId, lane: Lane, sequence: u64) -> u64 {
        self.settle(id, lane, |log| log.refuse(sequence))
    }

    /// The coordinator cannot take this row, however it is sent: it is done with, and recorded as lost.
    pub fn set_aside(&mut self, id: BootId, lane: Lane, sequence: u64) {
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
        if self.health.is_due(self.now_ms) && !self.memory.is_empty() {
            self.write_back();
        }
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
        for row in self.memory.rows(lane).filter(|row| row.sequence > log.sent) {
            if rows.len() >= rows_max || bytes >= bytes_max {
                break;
            }
            bytes += row.bytes();
            rows.push(row.clone());
        }
        if let Some(row) = rows.last() {
            log.sent = log.sent.max(row.sequence);
        }
        Ok((!rows.is_empty()).then_some(Batch { boot: self.running.id, lane, rows }))
    }

    fn read_earlier(&mut self, lane: Lane, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        for index in (0..self.earlier.len()).rev() {
            let Some(boot) = self.earlier.get_mut(index) else { continue };
            let mut holes = Vec::new();
            let read = boot.logs.of_mut(lane).read(&boot.folder, rows_max, bytes_max, &mut holes);
            let id = boot.id;
            self.unreadable(index, lane, &holes);
            let rows = read?;
            if !rows.is_empty() {
                return Ok(Some(Batch { boot: id, lane, rows }));
            }
        }
        Ok(None)
    }

    /// The boot with that place in order; the running one is the last.
    fn boot(&self, index: usize) -> &Boot {
        self.earlier.get(index).unwrap_or(&self.running)
    }

    fn unreadable(&mut self, index: usize, lane: Lane, holes: &[Hole]) {
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

    fn number(&mut self, lane: Lane, ended_ms: u64, good: bool, content: Content) -> u64 {
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

    fn failed(&mut self, error: &io::Error) {
        if self.health.failed(error, self.now_ms) {
            tracing::warn!(
                folder = %self.root.display(), %error, memory_bytes_max = MEMORY_BYTES_MAX,
                "the disk takes no observations; the newest are kept in memory and the disk is tried again, at least every minute; {}", health::remedy(error)
            );
        }
    }

    /// Keeps a row in memory. When that is full too, the oldest good one goes.
    fn remember(&mut self, lane: Lane, row: Row) {
        self.memory.push(lane, row);
        while self.memory.is_over() {
            let lane = if self.memory.has(Lane::Routine) { Lane::Routine } else { Lane::Urgent };
            let Some(row) = self.memory.take(lane) else { return };
            self.lose_row(lane, &row);
        }
    }

    fn lose_row(&mut self, lane: Lane, row: &Row) {
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

    /// Gives the disk what is kept in memory; what it does not take stays there. Whether it took all.
    fn write_back(&mut self) -> bool {
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
    fn write(&mut self, lane: Lane, row: &Row) -> io::Result<()> {
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
            self.room_in_vain = false;
            if self.health.worked() {
                tracing::info!(folder = %self.root.display(), "the disk takes observations again");
            }
        }
        outcome
    }

    fn try_write(&mut self, lane: Lane, row: &Row) -> io::Result<()> {
        let Some(frame) = row.frame() else {
            // By the limits of the wire this cannot be; it must not stop what comes behind it.
            tracing::error!(bytes = row.bytes(), "an observation is larger than the spool stores; it is lost");
            self.lose_row(lane, row);
            return Ok(());
        };
        let size = frame.len() as u64;
        self.make_room(size);
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
                    *writer = None;
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
    fn attach(&mut self) -> io::Result<()> {
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
                Ok(boot) if boot.is_empty() => remove_folder(&folder),
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

    /// Drops until `size` more bytes fit.
    fn make_room(&mut self, size: u64) {
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
    fn drop_old(&mut self) {
        let age_max = i64::try_from(self.limits.age_max.as_millis()).unwrap_or(i64::MAX);
        let limit = i64::try_from(self.now_ms).unwrap_or(i64::MAX).saturating_sub(age_max);
        for index in (0..=self.earlier.len()).rev() {
            for lane in Lane::ALL {
                while self.newest_of_front(index, lane).is_some_and(|newest| newest < limit) {
                    self.lose_front(index, lane, LossReason::Old);
                }
            }
        }
        self.forget_empty();
    }

    /// When the newest row of a lane's oldest segment ended, on our clock.
    fn newest_of_front(&mut self, index: usize, lane: Lane) -> Option<i64> {
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
    fn lose_oldest(&mut self, reason: LossReason) -> bool {
        self.lose_oldest_of(Lane::Routine, reason) || self.lose_oldest_of(Lane::Urgent, reason)
    }

    fn lose_oldest_of(&mut self, lane: Lane, reason: LossReason) -> bool {
        let has = |index: &usize| !self.boot(*index).logs.of(lane).segments.is_empty();
        let Some(index) = (0..=self.earlier.len()).find(has) else { return false };
        self.lose_front(index, lane, reason);
        self.forget_empty();
        true
    }

    /// Drops the oldest segment of a lane that is not being written; little comes free with that one.
    fn lose_closed(&mut self, lane: Lane) -> bool {
        let open = usize::from(self.writers.of(lane).is_some());
        let closed = self.earlier.iter().any(|boot| !boot.logs.of(lane).segments.is_empty())
            || self.running.logs.of(lane).segments.len() > open;
        closed && self.lose_oldest_of(lane, LossReason::Full)
    }

    fn lose_oldest_boot(&mut self) {
        for lane in Lane::ALL {
            while self.earlier.first().is_some_and(|boot| !boot.logs.of(lane).segments.is_empty()) {
                self.lose_front(0, lane, LossReason::Full);
            }
        }
        self.forget_empty();
    }

    /// Drops the oldest segment of a lane of a boot, and counts what was not done with.
    fn lose_front(&mut self, index: usize, lane: Lane, reason: LossReason) {
        let boot = self.earlier.get(index).unwrap_or(&self.running);
        let log = boot.logs.of(lane);
        let Some(segment) = log.segments.front().copied() else { return };
        let path = segment::path(&boot.folder, lane, segment.first);
        if segment.last > log.acked {
            let rows = segment::load(&path).map(|contents| contents.rows).unwrap_or_default();
            let first = segment.first.max(log.acked.saturating_add(1));
            let unsure = log.not_done(first, segment.last);
            let now = i64::try_from(self.now_ms).unwrap_or(i64::MAX);
            let mut lost = Loss {
                reason,
                boot: boot.id,
                lane,
                count: 0,
                good: 0,
                sequences: (first, segment.last),
                ended_ms: (i64::MAX, i64::MIN),
            };
            let mut records = Vec::new();
            for row in rows.iter().filter(|row| row.sequence <= segment.last && !log.is_done(row.sequence)) {
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
            let unread = unsure.saturating_sub(lost.count + records.len() as u64);
            if lost.ended_ms.0 > lost.ended_ms.1 {
                lost.ended_ms = (0, now);
            }
            let damaged = Loss { reason: LossReason::Damaged, count: unread, good: 0, ..lost };
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
    }

    /// Writes down what was lost, and then how far the lanes are done with.
    fn write_losses(&mut self) {
        self.losses.due = false;
        for loss in self.losses.take() {
            tracing::warn!(reason = loss.reason.word(), boot = %loss.boot, lane = %loss.lane, count = loss.count, "observations were lost");
            self.number(Lane::Urgent, self.now_ms, false, Content::Loss(loss));
            let boot = self.earlier.iter_mut().chain([&mut self.running]).find(|boot| boot.id == loss.boot);
            if let Some(cursor) = boot.and_then(|boot| boot.cursor()) {
                // Not yet durable; what was dropped and is not covered is found by its numbers.
                let _ = cursor.write(false);
            }
        }
    }

    fn forget_empty(&mut self) {
        self.earlier.retain(|boot| {
            if boot.is_empty() {
                remove_folder(&boot.folder);
            }
            !boot.is_empty()
        });
    }

    fn bytes(&self) -> u64 {
        let of = |boot: &Boot| boot.logs.each().iter().map(|(_, log)| log.bytes()).sum::<u64>();
        self.earlier.iter().map(of).sum::<u64>() + of(&self.running)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.sync();
    }
}

fn folder_name(folder: &Path) -> Option<(u64, BootId)> {
    let (number, id) = folder.file_name()?.to_str()?.split_once('-')?;
    Some((number.parse().ok()?, id.parse().ok()?))
}

fn remove_folder(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "cannot remove an emptied part of the spool");
    }
}

#[cfg(test)]
mod tests;
