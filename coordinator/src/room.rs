//! Room on the disk of the embedded database: it has a cap, and never fills the disk that it shares.
//!
//! | used of the cap | what happens |
//! |---|---|
//! | below 90 % | nothing |
//! | from 90 % on | said once in the log, on `/metrics` and by `/-/ready` |
//! | from 100 % on | days of the log are dropped before their time, the oldest first, down to two; routine rows ("as before") are refused with a reason and counted; urgent ones, what verdicts rest on, are taken |
//! | from 110 % on, or when the disk itself has less than 512 MiB left | nothing is taken: agents keep what they measure, within their own limits, until there is room |
//!
//! Only the embedded database is watched: the room of a server of yours is yours.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::state::App;
use crate::store::{self, StoreError};

/// How often it is measured: a disk fills in minutes, not in seconds.
const LOOK_EVERY: Duration = Duration::from_secs(20);

/// Left free on the disk, in bytes: Postgres that cannot write its log at all stops.
const FREE_BYTES_MIN: u64 = 512 << 20;

/// Fewest days of the log that are kept when room is short.
const DAYS_MIN: u32 = 2;

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Enough.
    Enough,
    /// Nine tenths are used.
    Short,
    /// The cap is reached.
    Full,
    /// Beyond the cap, or the disk itself is nearly full.
    Over,
}

impl Level {
    const ALL: [Self; 4] = [Self::Enough, Self::Short, Self::Full, Self::Over];

    /// From what is used of the cap, and what the disk has left, in bytes.
    #[must_use]
    pub fn of(used: u64, cap: u64, free: u64) -> Self {
        let tenths = |n: u64| cap / 10 * n;
        if free < FREE_BYTES_MIN || used >= tenths(11) {
            Self::Over
        } else if used >= cap {
            Self::Full
        } else if used >= tenths(9) {
            Self::Short
        } else {
            Self::Enough
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Enough => 0,
            Self::Short => 1,
            Self::Full => 2,
            Self::Over => 3,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enough => "enough",
            Self::Short => "short",
            Self::Full => "full",
            Self::Over => "over",
        })
    }
}

/// What is known of the room. Without an embedded database there is always enough.
#[derive(Debug)]
pub struct Room {
    level: AtomicU8,
    used: AtomicU64,
    /// Whole days for which rows of the log are kept, beside those of today; `u32::MAX`: as configured.
    days: AtomicU32,
    /// Days must be dropped now.
    pub shorten: Notify,
}

impl Default for Room {
    fn default() -> Self {
        let (level, used, days) = (AtomicU8::new(0), AtomicU64::new(0), AtomicU32::new(u32::MAX));
        Self { level, used, days, shorten: Notify::new() }
    }
}

impl Room {
    /// How much there is.
    #[must_use]
    pub fn level(&self) -> Level {
        let number = usize::from(self.level.load(Ordering::Relaxed));
        Level::ALL.get(number).copied().unwrap_or(Level::Enough)
    }

    /// Bytes that the embedded database uses; 0: not measured.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How long rows of the log are kept: as configured, or shorter while there is no room.
    #[must_use]
    pub fn keep(&self, configured: Duration) -> Duration {
        let days = u64::from(self.days.load(Ordering::Relaxed));
        configured.min(Duration::from_secs(days.saturating_mul(86_400)))
    }

    /// Takes a measurement in. `days` is how many days of the log there are from the oldest to today.
    pub fn measured(&self, used: u64, cap: u64, free: u64, days: u32) {
        let (before, level) = (self.level(), Level::of(used, cap, free));
        self.used.store(used, Ordering::Relaxed);
        self.level.store(level.number(), Ordering::Relaxed);
        let (used_mib, cap_mib, free_mib) = (used >> 20, cap >> 20, free >> 20);
        if level >= Level::Full {
            // Today is one of them and the oldest is to go: rows from before these whole days are of that one.
            self.days.store(days.saturating_sub(2).max(DAYS_MIN - 1), Ordering::Relaxed);
            self.shorten.notify_one();
        } else if level == Level::Enough {
            self.days.store(u32::MAX, Ordering::Relaxed);
        }
        if level == before {
            return;
        }
        match level {
            Level::Enough => tracing::info!(used_mib, cap_mib, free_mib, "the embedded database has room again"),
            Level::Short => tracing::warn!(
                used_mib,
                cap_mib,
                free_mib,
                "the embedded database is at nine tenths of database.embedded.disk_max: raise it, keep less \
                 (database.retain.results), or move to a server of yours (parallax database move)"
            ),
            Level::Full => tracing::error!(
                used_mib,
                cap_mib,
                free_mib,
                "the embedded database is at its cap: the oldest days of the log are dropped and routine rows are refused"
            ),
            Level::Over => tracing::error!(
                used_mib,
                cap_mib,
                free_mib,
                "there is no room for the embedded database: nothing is taken until there is; agents keep what they measure"
            ),
        }
    }
}

/// Measures every few seconds until `shutdown`. `pg` is the folder of the embedded database.
pub async fn watch(app: Arc<App>, pg: PathBuf, shutdown: CancellationToken) {
    loop {
        match store::word(look(&app, &pg)).await {
            Ok(()) => {}
            Err(error) => tracing::debug!(%error, "the room of the embedded database cannot be measured"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// Measures once.
///
/// # Errors
/// When the database or the disk cannot be asked.
pub async fn look(app: &App, pg: &Path) -> Result<(), StoreError> {
    let cap = app.config.load().disk_max;
    let mut connection = app.pool.acquire().await?;
    let used = store::moving::bytes(&mut connection).await?;
    let days = store::partition::span(&mut connection).await?;
    let disk = nix::sys::statvfs::statvfs(pg).map_err(|error| StoreError::Database(sqlx::Error::Io(error.into())))?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    app.room.measured(used, cap, free, days);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn levels_follow_the_cap_and_the_disk() {
        for (used, free, level) in [
            (0, 100 * GIB, Level::Enough),
            (17 * GIB, 100 * GIB, Level::Enough),
            (18 * GIB, 100 * GIB, Level::Short),
            (20 * GIB, 100 * GIB, Level::Full),
            (22 * GIB, 100 * GIB, Level::Over),
            (GIB, GIB / 4, Level::Over),
        ] {
            assert_eq!(Level::of(used, 20 * GIB, free), level, "{used} {free}");
        }
    }

    #[tokio::test]
    async fn at_the_cap_days_go_one_by_one_down_to_two_and_come_back_with_room() {
        let (room, month) = (Room::default(), Duration::from_secs(30 * 86_400));
        let kept = |room: &Room| room.keep(month).as_secs() / 86_400;
        assert_eq!((room.level(), kept(&room)), (Level::Enough, 30));
        for (days, left) in [(10, 8), (9, 7), (3, 1), (2, 1)] {
            room.measured(20 * GIB, 20 * GIB, 100 * GIB, days);
            room.shorten.notified().await;
            assert_eq!((room.level(), kept(&room)), (Level::Full, left));
        }
        // Nine tenths are not yet room: else the same days would come and go.
        room.measured(19 * GIB, 20 * GIB, 100 * GIB, 3);
        assert_eq!((room.level(), kept(&room)), (Level::Short, 1));
        room.measured(10 * GIB, 20 * GIB, 100 * GIB, 3);
        assert_eq!((room.level(), kept(&room)), (Level::Enough, 30));
    }
}
