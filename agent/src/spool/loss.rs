//! What is remembered of rows that were dropped.

use std::collections::BTreeMap;

use parallax_decide::observation::{Lane, LossReason};

use super::boot::BootId;

/// Rows that were dropped: how many, why, which, and when they were measured. It is a row itself,
/// of the urgent lane, so that the coordinator can tell "measured and lost" from "not measured".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// The boot that numbered them.
    pub boot: BootId,
    /// Their lane.
    pub lane: Lane,
    /// How many. Rows that were on their way when they were dropped are counted, though they may arrive.
    pub count: u64,
    /// How many of them said that something works.
    pub good: u64,
    /// A range of sequence numbers that holds them all.
    pub sequences: (u64, u64),
    /// When the first and the last of them ended, in ms on the boot-time clock of the run that wrote
    /// this; negative: before the machine was started. What cannot be known is taken so that the
    /// range holds them all.
    pub ended_ms: (i64, i64),
}

impl Loss {
    /// Bytes of its stored form.
    pub const BYTES: usize = 66;

    /// Its stored form.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.push(match self.reason {
            LossReason::Full => 1,
            LossReason::Old => 2,
            LossReason::Disk => 3,
            LossReason::Damaged => 4,
        });
        bytes.push(match self.lane {
            Lane::Urgent => 1,
            Lane::Routine => 2,
        });
        bytes.extend(self.boot.0.to_le_bytes());
        for number in [self.count, self.good, self.sequences.0, self.sequences.1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.ended_ms.0.to_le_bytes());
        bytes.extend(self.ended_ms.1.to_le_bytes());
        bytes
    }

    /// Reads its stored form.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&reason, rest) = bytes.split_first()?;
        let (&lane, rest) = rest.split_first()?;
        let (boot, mut rest) = rest.split_first_chunk::<16>()?;
        let mut next = || {
            let (number, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            Some(*number)
        };
        let loss = Self {
            reason: match reason {
                1 => LossReason::Full,
                2 => LossReason::Old,
                3 => LossReason::Disk,
                4 => LossReason::Damaged,
                _ => return None,
            },
            lane: match lane {
                1 => Lane::Urgent,
                2 => Lane::Routine,
                _ => return None,
            },
            boot: BootId(u128::from_le_bytes(*boot)),
            count: u64::from_le_bytes(next()?),
            good: u64::from_le_bytes(next()?),
            sequences: (u64::from_le_bytes(next()?), u64::from_le_bytes(next()?)),
            ended_ms: (i64::from_le_bytes(next()?), i64::from_le_bytes(next()?)),
        };
        rest.is_empty().then_some(loss)
    }

    /// Takes another one of the same kind in.
    fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.good = self.good.saturating_add(other.good);
        self.sequences = (self.sequences.0.min(other.sequences.0), self.sequences.1.max(other.sequences.1));
        self.ended_ms = (self.ended_ms.0.min(other.ended_ms.0), self.ended_ms.1.max(other.ended_ms.1));
    }
}

/// Losses that are not yet rows: one of each kind, however many rows are dropped meanwhile, so that
/// the records do not fill the spool themselves.
#[derive(Debug, Default)]
pub(super) struct Losses {
    open: BTreeMap<(BootId, Lane, u8), Loss>,
    /// When the oldest of them came about.
    pub(super) since_ms: u64,
    /// Rows lost since the start, those of earlier records not counted again.
    pub(super) total: u64,
    /// Whether some are to be written down at once.
    pub(super) due: bool,
    told_ms: Option<u64>,
}

impl Losses {
    /// Rows were dropped just now.
    pub(super) fn add(&mut self, loss: Loss, now_ms: u64) {
        if loss.count > 0 {
            self.total = self.total.saturating_add(loss.count);
            self.carry(loss, now_ms);
        }
    }

    /// The row with this record was dropped; what it says must not be.
    pub(super) fn carry(&mut self, loss: Loss, now_ms: u64) {
        if self.open.is_empty() {
            self.since_ms = now_ms;
        }
        let reason = match loss.reason {
            LossReason::Full => 1,
            LossReason::Old => 2,
            LossReason::Disk => 3,
            LossReason::Damaged => 4,
        };
        self.open.entry((loss.boot, loss.lane, reason)).and_modify(|open| open.merge(&loss)).or_insert(loss);
    }

    /// Whether the log was not told for a minute.
    pub(super) fn is_news(&mut self, now_ms: u64) -> bool {
        let news = self.told_ms.is_none_or(|told| now_ms >= told.saturating_add(60_000));
        if news {
            self.told_ms = Some(now_ms);
        }
        news
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether something of that boot waits to be written down.
    pub(super) fn concern(&self, boot: BootId) -> bool {
        self.open.keys().any(|(of, _, _)| *of == boot)
    }

    /// All of them, to be written down.
    pub(super) fn take(&mut self) -> Vec<Loss> {
        std::mem::take(&mut self.open).into_values().collect()
    }
}
