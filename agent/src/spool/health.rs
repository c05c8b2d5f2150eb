//! Whether the disk takes what it is given.

use std::io;

/// Wait before a failing disk is tried again: at first, and at most.
const RETRY_MIN_MS: u64 = 1_000;
const RETRY_MAX_MS: u64 = 60_000;

/// What the disk was like at the last try.
#[derive(Debug, Default)]
pub(super) struct Health {
    failing: Option<Failing>,
    /// When a change was last news: a disk at the edge must not fill the log.
    told_ms: Option<u64>,
}

#[derive(Debug)]
struct Failing {
    /// In words.
    why: String,
    /// When it is tried again, by the boot-time clock.
    retry_ms: u64,
    /// How long was waited for that.
    wait_ms: u64,
    told: bool,
}

impl Health {
    pub(super) fn works(&self) -> bool {
        self.failing.is_none()
    }

    /// Whether a failing disk is to be tried again now.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        self.failing.as_ref().is_some_and(|failing| now_ms >= failing.retry_ms)
    }

    /// The disk failed; whether that is news.
    pub(super) fn failed(&mut self, error: &io::Error, now_ms: u64) -> bool {
        let before = self.failing.as_ref();
        let wait_ms = before.map_or(RETRY_MIN_MS, |failing| failing.wait_ms.saturating_mul(2).min(RETRY_MAX_MS));
        let was_told = before.is_some_and(|failing| failing.told);
        let news = !was_told && self.told_ms.is_none_or(|told| now_ms >= told.saturating_add(RETRY_MAX_MS));
        if news {
            self.told_ms = Some(now_ms);
        }
        let (why, retry_ms) = (error.to_string(), now_ms.saturating_add(wait_ms));
        self.failing = Some(Failing { why, retry_ms, wait_ms, told: was_told || news });
        news
    }

    /// The disk works; whether that is news.
    pub(super) fn worked(&mut self) -> bool {
        self.failing.take().is_some_and(|failing| failing.told)
    }

    pub(super) fn why(&self) -> Option<&str> {
        self.failing.as_ref().map(|failing| failing.why.as_str())
    }
}

/// What the owner can do about an error of the disk.
pub(super) fn remedy(error: &io::Error) -> &'static str {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let kind = error.kind();
    if kind == StorageFull || kind == QuotaExceeded {
        "free space there, or lower spool_bytes_max"
    } else if kind == ReadOnlyFilesystem {
        "mount it writable, and look into the kernel's log why it is not"
    } else if kind == PermissionDenied {
        "give the folder to the user the agent runs as"
    } else {
        "look into the kernel's log and at the disk's health"
    }
}
