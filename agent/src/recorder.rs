//! Numbers each fact into its lane of the spool and wakes the uplink.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use parallax_decide::observation::Lane;
use tokio::sync::Notify;

use crate::clock;
use crate::dates::Dates;
use crate::life::LifeNonces;
use crate::measured::{Measured, Reason};
use crate::offset::ClockOffset;
use crate::spool::Spool;
use crate::uplink::wire;
use seen::Seen;

mod seen;

/// Facts are made durable together, this long after the first of them: half of what the spool promises.
const GATHER: Duration = Duration::from_millis(100);

/// What is due by time alone is looked at this often.
const TICK: Duration = Duration::from_secs(1);

/// The way into the spool.
#[derive(Debug, Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    spool: Mutex<Spool>,
    seen: Mutex<Seen>,
    clock: ClockOffset,
    life: LifeNonces,
    dates: Mutex<Dates>,
    urgent: Notify,
    routine: Notify,
    unsynced: Notify,
}

impl Recorder {
    /// Records into this spool.
    #[must_use]
    pub fn new(spool: Spool) -> Self {
        let shared = Shared {
            spool: Mutex::new(spool),
            seen: Mutex::default(),
            clock: ClockOffset::default(),
            life: LifeNonces::default(),
            dates: Mutex::default(),
            urgent: Notify::new(),
            routine: Notify::new(),
            unsynced: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Records a fact that was measured just now.
    pub fn record(&self, reason: Reason, measured: &Measured) {
        self.record_at(reason, measured, clock::boottime_ms());
    }

    /// As [`Self::record`], for a fact that was measured at this time of the boot-time clock.
    pub fn record_at(&self, reason: Reason, measured: &Measured, ended_ms: u64) {
        tracing::debug!(what = ?measured.what, duration_us = clock::micros(measured.duration), "measured");
        self.shared.dates.lock().unwrap_or_else(PoisonError::into_inner).saw(measured.what.outcome(), self.clock());
        let observation = wire::observation(reason, measured);
        let (lane, good) = {
            let mut seen = self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.lane(reason.purpose, &measured.what)
        };
        self.spool().append(lane, ended_ms, good, &observation);
        match lane {
            Lane::Urgent => self.shared.urgent.notify_one(),
            Lane::Routine => self.shared.routine.notify_one(),
        }
        self.shared.unsynced.notify_one();
    }

    /// What nodes sign next to prove their life.
    #[must_use]
    pub fn life(&self) -> &LifeNonces {
        &self.shared.life
    }

    /// How far this machine's clock is from the coordinator's.
    #[must_use]
    pub fn clock(&self) -> &ClockOffset {
        &self.shared.clock
    }

    /// The spool itself.
    pub fn spool(&self) -> MutexGuard<'_, Spool> {
        self.shared.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when something was recorded in that lane since the last time.
    pub async fn appended(&self, lane: Lane) {
        match lane {
            Lane::Urgent => self.shared.urgent.notified().await,
            Lane::Routine => self.shared.routine.notified().await,
        }
    }

    /// Makes what was recorded durable, again and again, and lets the spool do what is due by time.
    pub async fn keep_synced(&self) {
        loop {
            let recorded = tokio::time::timeout(TICK, self.shared.unsynced.notified()).await.is_ok();
            if recorded {
                tokio::time::sleep(GATHER).await;
            }
            let (work, losses) = {
                let mut spool = self.spool();
                let before = spool.next_sequence(Lane::Urgent);
                spool.tick(clock::boottime_ms());
                (spool.sync_work(), spool.next_sequence(Lane::Urgent) != before)
            };
            if losses {
                self.shared.urgent.notify_one();
            }
            let Some(work) = work else { continue };
            // Flash can take long to sync; probes go on meanwhile.
            if let Ok(synced) = tokio::task::spawn_blocking(move || work.run()).await {
                self.spool().synced(synced);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use parallax_decide::observation::{Missed, MissedReason};

    use super::*;
    use crate::measured::What;
    use crate::spool::{BootId, Limits};

    #[tokio::test]
    async fn what_is_recorded_wakes_its_lane_and_becomes_durable() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path().to_owned(), BootId::random().unwrap(), Limits::default(), 0);
        let recorder = Recorder::new(spool);
        let what = What::Missed(Missed { reason: MissedReason::Busy, count: 1 }, "nodes".into());
        recorder.record(Reason::SCHEDULED, &Measured { what, duration: Duration::ZERO });
        recorder.appended(Lane::Urgent).await;
        let routine = tokio::time::timeout(Duration::from_millis(10), recorder.appended(Lane::Routine)).await;
        assert!(routine.is_err(), "nothing was recorded there");

        let batch = recorder.spool().next_batch_of(Lane::Urgent, 9, 9000).unwrap().unwrap();
        recorder.spool().acked(batch.boot, batch.lane, 1);
        let syncing = recorder.clone();
        let syncing = tokio::spawn(async move { syncing.keep_synced().await });
        // The cursor is written with it.
        let own = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        while !own.join("cursor").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        syncing.abort();
    }
}
