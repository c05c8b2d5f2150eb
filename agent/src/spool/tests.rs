use std::path::Path;

use super::disk::{Step, faults};
use super::segment::HEAD_BYTES;
use super::*;

mod basics;
mod damage;
mod disk;
mod killed;
mod model;
mod mounted;
mod outage;

const BYTES: usize = 1 << 20;

/// A spool in a folder of its own, whose clock is moved by the test.
struct Rig {
    root: tempfile::TempDir,
    limits: Limits,
    spool: Option<Spool>,
    boots: u128,
    now_ms: u64,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let mut rig = Self { root: tempfile::tempdir().unwrap(), limits, spool: None, boots: 0, now_ms: 1_000 };
        rig.restart();
        rig
    }

    fn small() -> Self {
        Self::new(Limits { bytes_max: SPOOL_BYTES_MIN, age_max: SPOOL_AGE_MAX })
    }

    /// Ends the agent properly and starts it anew.
    fn restart(&mut self) {
        self.spool = None;
        self.start();
    }

    /// `kill -9`: nothing is done at the end.
    fn kill(&mut self) {
        if let Some(spool) = self.spool.take() {
            std::mem::forget(spool);
        }
    }

    fn start(&mut self) {
        self.boots += 1;
        self.spool = Some(Spool::open(self.root.path().join("spool"), BootId(self.boots), self.limits, self.now_ms));
    }

    fn spool(&mut self) -> &mut Spool {
        self.spool.as_mut().unwrap()
    }

    fn boot(&self) -> BootId {
        BootId(self.boots)
    }

    /// Appends rows of that size, one a millisecond; their content is their number.
    fn append(&mut self, lane: Lane, count: usize, size: usize) {
        for _ in 0..count {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            let spool = self.spool();
            let mut bytes = spool.next_sequence(lane).to_le_bytes().to_vec();
            bytes.resize(size.max(8), 7);
            spool.append(lane, now_ms, lane == Lane::Routine, &bytes);
        }
    }

    fn try_next(&mut self, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
        next(self.spool(), rows_max, bytes_max)
    }

    /// The same, which is there.
    fn next(&mut self, rows_max: usize) -> Batch {
        self.try_next(rows_max, BYTES).unwrap().unwrap()
    }

    /// All there is to send now, batch by batch.
    fn batches(&mut self) -> Vec<Batch> {
        let mut batches = Vec::new();
        while let Some(batch) = self.try_next(100, BYTES).unwrap() {
            batches.push(batch);
        }
        batches
    }

    /// The same, acknowledged, until nothing comes any more.
    fn drain(&mut self) -> Got {
        let mut got = Got::default();
        loop {
            let batches = self.batches();
            if batches.is_empty() {
                self.spool().rewind();
                if !self.spool().has_unsent() {
                    return got;
                }
                continue;
            }
            for batch in batches {
                let last = batch.rows.last().unwrap().sequence;
                self.spool().acked(batch.boot, batch.lane, last);
                got.take(batch);
            }
        }
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for folder in std::fs::read_dir(self.root.path().join("spool")).unwrap() {
            for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                files.push(file.unwrap().path());
            }
        }
        files.retain(|path| path.extension().is_some_and(|ending| ending == "segment"));
        files.sort();
        files
    }

    fn disk_bytes(&self) -> u64 {
        self.files().iter().map(|file| std::fs::metadata(file).unwrap().len()).sum()
    }
}

/// What is sent next, as the uplink takes it: what is urgent first.
fn next(spool: &mut Spool, rows_max: usize, bytes_max: usize) -> io::Result<Option<Batch>> {
    for lane in Lane::ALL {
        if let Some(batch) = spool.next_batch_of(lane, rows_max, bytes_max)? {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

/// What the coordinator got.
#[derive(Debug, Default)]
struct Got {
    rows: Vec<(u128, Lane, u64)>,
    losses: Vec<Loss>,
}

impl Got {
    fn take(&mut self, batch: Batch) {
        for row in batch.rows {
            match row.content {
                Content::Loss(loss) => self.losses.push(loss),
                Content::Observation(bytes) => {
                    let number = u64::from_le_bytes(*bytes.first_chunk().unwrap());
                    assert_eq!(number, row.sequence, "a row with the content of another");
                    self.rows.push((batch.boot.0, batch.lane, row.sequence));
                }
            }
        }
    }

    fn numbers(&self, boot: u128, lane: Lane) -> Vec<u64> {
        self.rows.iter().filter(|row| (row.0, row.1) == (boot, lane)).map(|row| row.2).collect()
    }

    fn lost(&self, reason: LossReason) -> u64 {
        self.losses.iter().filter(|loss| loss.reason == reason).map(|loss| loss.count).sum()
    }

    fn lost_in_all(&self) -> u64 {
        self.losses.iter().map(|loss| loss.count).sum()
    }
}
